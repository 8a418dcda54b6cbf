"""What a pod may ask of shared GPUs, exactly, and why it is refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scheduler.gpu_request import SharedGpu, shared_gpu_of, why_not_valid

Raw = dict[str, Any]


def asks(limit: str = "", init: bool = False, **notes: str) -> Raw:
    plain: Raw = {"name": "main", "resources": {}}
    holder: Raw = {"name": "job", "resources": {"limits": {"nvidia.com/gpu": limit}}}
    spec: Raw = {"containers": [plain]}
    if limit:
        spec = (
            {"containers": [plain], "initContainers": [holder]} if init else {"containers": [plain, holder]}
        )
    return {
        "metadata": {"annotations": {key.replace("_", "-"): text for key, text in notes.items()}},
        "spec": spec,
    }


VALID: dict[str, tuple[Raw, SharedGpu | None]] = {
    "nothing": ({}, None),
    "whole GPUs": (asks("2"), None),
    "half a card": (asks(gpu_fraction="0.5"), SharedGpu(portion=500)),
    "an eighth is not cut short": (asks(gpu_fraction="0.1251"), SharedGpu(portion=126)),
    "next to nothing is something": (asks(gpu_fraction="1e-9"), SharedGpu(portion=1)),
    "scientific": (asks(gpu_fraction="25E-2"), SharedGpu(portion=250)),
    "memory on three cards": (
        asks(gpu_memory="2000", gpu_fraction_num_devices="3"),
        SharedGpu(memory_mib=2000, devices=3),
    ),
    "MPS for one container": (
        asks(gpu_fraction=".5", mps="true", gpu_fraction_container_name="main"),
        SharedGpu(portion=500, mps=True, container="main"),
    ),
    "MPS that is off": (asks("1", mps="false"), None),
}


@pytest.mark.parametrize(("pod", "shared"), VALID.values(), ids=VALID)
def test_a_valid_request(pod: Raw, shared: SharedGpu | None) -> None:
    """Read exactly: a fraction is never rounded down."""
    assert why_not_valid(pod) is None
    assert shared_gpu_of(pod) == shared


REFUSED: dict[str, tuple[Raw, str]] = {
    "a whole card is no fraction": (asks(gpu_fraction="1"), "below 1"),
    "nor is nothing": (asks(gpu_fraction="0.0"), "above 0"),
    "nor less than nothing": (asks(gpu_fraction="-0.5"), "'-0.5'"),
    "nor a word": (asks(gpu_fraction="inf"), "'inf'"),
    "nor hexadecimal": (asks(gpu_fraction="0x1p-2"), "decimal"),
    "nor milli": (asks(gpu_fraction="500m"), "'500m'"),
    "nor what rounds to nothing": (asks(gpu_fraction="1e-400"), "above 0"),
    "memory in another unit": (asks(gpu_memory="2Gi"), "whole number of MiB"),
    "memory with a sign": (asks(gpu_memory="+5"), "'+5'"),
    "no memory": (asks(gpu_memory="0"), "above 0"),
    "half a device": (asks(gpu_fraction="0.5", gpu_fraction_num_devices="1.5"), "gpu-fraction-num-devices"),
    "no device": (asks(gpu_memory="5", gpu_fraction_num_devices="0"), "above 0"),
    "devices of nothing": (asks(gpu_fraction_num_devices="2"), "beside it"),
    "MPS on a whole card": (asks("1", mps="true"), "needs gpu-fraction"),
    "share and memory": (asks(gpu_fraction="0.5", gpu_memory="5"), "only one"),
    "a share beside a whole card": (asks("1", gpu_fraction="0.5"), "'job'"),
    "even in an init container": (asks("1", init=True, gpu_memory="5"), "'job'"),
    "a container that is not there": (
        asks(gpu_fraction="0.5", gpu_fraction_container_name="x"),
        "no such container",
    ),
}


@pytest.mark.parametrize(("pod", "said"), REFUSED.values(), ids=REFUSED)
def test_a_refused_request(pod: Raw, said: str) -> None:
    """The annotation, its value, and what would be right."""
    assert said in (why_not_valid(pod) or "")
    assert shared_gpu_of(pod) is None


@given(
    st.dictionaries(
        st.sampled_from(["gpu-fraction", "gpu-memory", "gpu-fraction-num-devices", "mps"]), st.text()
    )
)
def test_any_text_is_judged(notes: dict[str, str]) -> None:
    """Nothing is raised, and what is taken asks for something within bounds."""
    shared = shared_gpu_of({"metadata": {"annotations": notes}, "spec": {"containers": [None]}})
    if shared is not None:
        assert (0 < shared.portion <= 1000) is not (shared.memory_mib > 0)
        assert shared.devices > 0
