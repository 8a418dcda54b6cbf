"""What a pod asks for: containers, sidecars, overhead, shares of a card."""

from typing import Any

import pytest

from controller.scheduler.pod_request import asked, request_of
from controller.scheduler.requests import Request
from tests.scheduler.kube_words import pod


def container(cpu: str = "", gpus: str = "", **other: str) -> dict[str, Any]:
    """Give a container that asks so."""
    requests = {
        "cpu": cpu,
        "nvidia.com/gpu": gpus,
        **{name.replace("_", "/"): text for name, text in other.items()},
    }
    return {"resources": {"requests": {name: text for name, text in requests.items() if text}}}


SIDECAR = {**container("100m"), "restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("spec", "cpu", "gpus"),
    [
        pytest.param(
            {"containers": [container("1", "2"), container("500m")]}, 1500, 2, id="containers run together"
        ),
        pytest.param(
            {"containers": [container("1")], "initContainers": [container("3"), container("2")]},
            3000,
            0,
            id="init containers run one after the other before",
        ),
        pytest.param(
            {"containers": [container("1")], "initContainers": [SIDECAR]},
            1100,
            0,
            id="a sidecar runs beside the others",
        ),
        pytest.param(
            {"containers": [container("1")], "initContainers": [SIDECAR, container("2")]},
            2100,
            0,
            id="and beside the init containers after it",
        ),
        pytest.param(
            {"containers": [container("1")], "initContainers": [container("2"), SIDECAR]},
            2000,
            0,
            id="but not beside those before it",
        ),
        pytest.param(
            {"containers": [container("1")], "overhead": {"cpu": "250m"}}, 1250, 0, id="overhead comes on top"
        ),
        pytest.param(
            {"containers": [container("1", "1")], "resources": {"requests": {"cpu": "4"}}},
            4000,
            1,
            id="what the pod asks for as a whole wins",
        ),
        pytest.param(
            {"containers": [{"resources": {"limits": {"cpu": "2", "nvidia.com/gpu": "1"}}}]},
            2000,
            1,
            id="a limit asks too",
        ),
    ],
)
def test_sums(spec: dict[str, Any], cpu: int, gpus: int) -> None:
    """Kubernetes' own rules of what a pod asks for."""
    needs = asked(pod(spec=spec))
    assert (needs.get("cpu", 0), needs.get("nvidia.com/gpu", 0)) == (cpu, gpus)


def of(annotations: dict[str, str] | None = None, **resources: str) -> Request:
    """Give the request of a pod with one container."""
    return request_of(
        pod(meta={"annotations": annotations or {}}, spec={"containers": [container("1", **resources)]})
    )


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        pytest.param(of(gpus="2"), Request(gpus=2, cpu_milli=1000), id="whole GPUs"),
        pytest.param(of({"gpu-fraction": "0.5"}), Request(portion=500, cpu_milli=1000), id="half of one"),
        pytest.param(
            of({"gpu-fraction": "300m", "gpu-fraction-num-devices": "2"}),
            Request(portion=300, devices=2, cpu_milli=1000),
            id="a part of each of two",
        ),
        pytest.param(
            of({"gpu-fraction": "0.5"}, gpus="1"),
            Request(gpus=1, cpu_milli=1000),
            id="a whole one, whatever an annotation says besides",
        ),
        pytest.param(
            of({"gpu-memory": "much"}, gpus="1"),
            Request(gpus=1, cpu_milli=1000),
            id="an annotation that cannot be read beside a whole one",
        ),
        pytest.param(
            of({"gpu-memory": "4096"}), Request(gpu_memory_mib=4096, cpu_milli=1000), id="MiB of one"
        ),
        pytest.param(
            of({"gpu-fraction-num-devices": "2"}, gpus="1"),
            Request(gpus=1, cpu_milli=1000),
            id="devices of nothing",
        ),
        pytest.param(
            of(None, **{"nvidia.com_mig-1g.10gb": "2"}),
            Request(mig=(("1g.10gb", 2),), cpu_milli=1000),
            id="MIG instances",
        ),
        pytest.param(
            of(rdma_hca="1"),
            Request(other=(("rdma/hca", 1),), rdma=True, cpu_milli=1000),
            id="an RDMA device",
        ),
        pytest.param(
            of(example_thing="1"),
            Request(other=(("example/thing", 1),), cpu_milli=1000),
            id="a device of somebody else's",
        ),
        pytest.param(request_of(pod()), Request(best_effort=True), id="nothing at all"),
    ],
)
def test_requests(found: Request, wanted: Request) -> None:
    """One way of asking for GPUs at a time, in integers."""
    assert found == wanted


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        pytest.param(
            {"gpu-fraction": "1.5"},
            "gpu-fraction is '1.5', but must be a decimal number above 0 and below 1",
            id="more than one",
        ),
        pytest.param(
            {"gpu-fraction": "1"}, "gpu-fraction is '1', but must be a decimal number", id="a whole one"
        ),
        pytest.param(
            {"gpu-fraction": "0"}, "gpu-fraction is '0', but must be a decimal number", id="nothing"
        ),
        pytest.param(
            {"gpu-fraction": "half"}, "gpu-fraction is 'half', but must be a decimal number", id="a word"
        ),
        pytest.param({"gpu-fraction": ""}, "gpu-fraction is '', but must be a decimal number", id="empty"),
        pytest.param(
            {"gpu-memory": "-1"},
            "gpu-memory is '-1', but must be a whole number of MiB",
            id="less than nothing",
        ),
        pytest.param(
            {"gpu-memory": "10Gi"},
            "gpu-memory is '10Gi', but must be a whole number of MiB above 0, without a unit; write 10240",
            id="a unit",
        ),
        pytest.param(
            {"gpu-memory": "0.5"}, "gpu-memory is '0.5', but must be a whole number", id="half a MiB"
        ),
        pytest.param(
            {"gpu-memory": "4096", "gpu-fraction": "0.5"},
            "gpu-fraction and gpu-memory are both set, but only one of them may be",
            id="both ways",
        ),
        pytest.param(
            {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "0"},
            "num-devices is '0', but must be a whole number above 0",
            id="no card",
        ),
        pytest.param(
            {"gpu-fraction-num-devices": "2"},
            "num-devices is '2', but it needs gpu-fraction or gpu-memory beside it",
            id="cards of no part",
        ),
    ],
)
def test_what_cannot_be_read(annotations: dict[str, str], words: str) -> None:
    """The message names the annotation, its value and what would be right."""
    with pytest.raises(ValueError, match=words):
        of(annotations)


def test_huge_pages_of_the_pod_as_a_whole() -> None:
    """They win over the containers' as CPU and memory do; devices are no matter of the pod as a whole."""
    each = {"resources": {"requests": {"hugepages-2Mi": "2Mi", "rdma/hca": "1"}}}
    whole = {"requests": {"hugepages-2Mi": "8Mi", "rdma/hca": "9"}}
    needs = asked(pod(spec={"containers": [each], "resources": whole}))
    assert needs == {"hugepages-2Mi": 8 << 20, "rdma/hca": 1}


def test_less_than_nothing() -> None:
    """It would make room on a node that has none."""
    with pytest.raises(ValueError, match=r"nvidia.com/gpu is '-8': must not be below 0"):
        asked(pod(spec={"containers": [container("1", "-8")]}))
