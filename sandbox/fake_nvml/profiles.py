"""What a GPU of each model answers when nothing is wrong with it: the attributes that its state begins with.

Counts and generations are those of the platforms' table; PCI ids and sizes are what public `nvidia-smi -q` outputs show. An
attribute that is absent, or None, is NotSupported, as the model's real driver says.
"""

import hashlib
import uuid
from collections.abc import Mapping, Sequence

import msgspec

from sandbox.machine import Gpu

Value = int | str | Sequence[int] | None
MIB = 1 << 20
NOT_SUPPORTED = "-"
_VOLTA, _AMPERE, _ADA, _HOPPER, _BLACKWELL = 5, 7, 8, 9, 10
_NVLINK_MBPS = {
    2: 25_781,
    4: 25_000,
    6: 26_562,
    7: 53_125,
}  # by NVLink version as NVML numbers it: 2.0, 3.0, 4.0, 5.0
_SLOTS = (
    0x18,
    0x2A,
    0x3A,
    0x5D,
    0x9A,
    0xAB,
    0xBA,
    0xDB,
    *range(0xE0, 0xE8),
)  # as boards of eight SXM modules have them
_BER_FLOOR = 15 << 8 | 255  # a bit error rate of zero: mantissa 15, exponent 255
_EVENTS_AMPERE = 0x50B  # single and double bit, XID, MIG configuration, retirement [assumption]
_EVENTS_HOPPER = 0xFF0B  # with storms, poison, unavailable, recovery action [assumption]


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """One product. `memory` in MiB as NVML reports it, `watts` its limit; `alone`: it can be reset without its peers."""

    device_id: int
    architecture: int
    memory: int
    watts: int
    pcie_generation: int
    links: int = 0
    link_version: int = 0
    fabric: bool = False
    mig_most: int = 0
    c2c: bool = False
    alone: bool = True


MODELS: Mapping[str, Model] = {
    "Tesla V100-SXM2-32GB": Model(
        device_id=0x1DB5, architecture=_VOLTA, memory=32_768, watts=300, pcie_generation=3, links=6, link_version=2
    ),
    "NVIDIA A100-SXM4-40GB": Model(
        device_id=0x20B0, architecture=_AMPERE, memory=40_960, watts=400, pcie_generation=4,
        links=12, link_version=4, mig_most=7, alone=False,
    ),
    "NVIDIA A100-SXM4-80GB": Model(
        device_id=0x20B2, architecture=_AMPERE, memory=81_920, watts=400, pcie_generation=4,
        links=12, link_version=4, mig_most=7, alone=False,
    ),
    "NVIDIA A10": Model(
        device_id=0x2236, architecture=_AMPERE, memory=23_028, watts=150, pcie_generation=4
    ),
    "NVIDIA L4": Model(
        device_id=0x27B8, architecture=_ADA, memory=23_034, watts=72, pcie_generation=4
    ),
    "NVIDIA L40S": Model(
        device_id=0x26B9, architecture=_ADA, memory=46_068, watts=350, pcie_generation=4
    ),
    "NVIDIA H100 80GB HBM3": Model(
        device_id=0x2330, architecture=_HOPPER, memory=81_559, watts=700, pcie_generation=5,
        links=18, link_version=6, fabric=True, mig_most=7,
    ),
    "NVIDIA H200": Model(
        device_id=0x2335, architecture=_HOPPER, memory=143_771, watts=700, pcie_generation=5,
        links=18, link_version=6, fabric=True, mig_most=7,
    ),
    "NVIDIA B200": Model(
        device_id=0x2901, architecture=_BLACKWELL, memory=183_359, watts=1000, pcie_generation=5,
        links=18, link_version=7, fabric=True, mig_most=7,
    ),
    "NVIDIA B300 SXM6": Model(
        device_id=0x3182, architecture=_BLACKWELL, memory=275_040, watts=1100, pcie_generation=6,
        links=18, link_version=7, fabric=True, mig_most=7,
    ),
    "NVIDIA GB200": Model(
        device_id=0x2941, architecture=_BLACKWELL, memory=189_471, watts=1200, pcie_generation=1,
        links=18, link_version=7, fabric=True, mig_most=7, c2c=True,
    ),
    "NVIDIA GB300": Model(
        device_id=0x31C2, architecture=_BLACKWELL, memory=284_208, watts=1400, pcie_generation=1,
        links=18, link_version=7, fabric=True, mig_most=7, c2c=True,
    ),
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": Model(
        device_id=0x2BB5, architecture=_BLACKWELL, memory=97_887, watts=600, pcie_generation=5, mig_most=4
    ),
}  # fmt: skip


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """One MIG device: its slot among the GPU's MIG devices, its ids, its share. `uuid` is made up where it is empty."""

    slot: int
    gpu_instance: int
    compute_instance: int = 0
    gpu_slices: int = 1
    compute_slices: int = 1
    multiprocessors: int = 16
    memory: int = 9_728
    uuid: str = ""


# Slot 2 is a hole, as one is left where an instance was destroyed.
INSTANCES = (
    Instance(slot=0, gpu_instance=1, gpu_slices=3, compute_slices=3, multiprocessors=60, memory=40_192),
    Instance(slot=1, gpu_instance=5, gpu_slices=2, compute_slices=2, multiprocessors=32, memory=19_968),
    Instance(slot=3, gpu_instance=13),
)


def make_gpus(
    count: int, model: str = "NVIDIA H100 80GB HBM3", *, name: str = "node", first: int = 0
) -> tuple[Gpu, ...]:
    """Make up `count` GPUs of one model, with addresses as on a board of eight; `first` is the first one's index."""
    return tuple(
        Gpu(
            index=index,
            pci=f"0000:{_SLOTS[index]:02x}:00.0",
            uuid=f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'gpu-{index}.{name}.sandbox.nodemend.dev')}",
            model=model,
        )
        for index in range(first, first + count)
    )


def written(value: Value) -> str:
    """Write an attribute's value as the state holds it."""
    if value is None:
        return NOT_SUPPORTED
    if isinstance(value, int | str):
        return str(int(value) if isinstance(value, int) else value)
    return " ".join(str(number) for number in value) or NOT_SUPPORTED


def attributes(gpu: Gpu, minor: int) -> dict[str, str]:
    """Give what `gpu` answers while it is well. Raises ValueError for a model that is not in `MODELS`."""
    model = MODELS.get(gpu.model)
    if model is None:
        raise ValueError(
            f"GPU {gpu.index}: the fake NVML knows no model {gpu.model!r}; known are {', '.join(MODELS)}"
        )
    number = int(hashlib.sha256(gpu.uuid.encode()).hexdigest()[:10], 16)
    values: dict[str, Value] = {
        "present": 1,
        "lost": 0,
        "reset_required": 0,
        "resets": 0,
        "reset_together": int(not model.alone),
        "uuid": gpu.uuid,
        "name": gpu.model,
        "serial": f"165{number % 10**10:010d}",
        "part_number": f"900-2G{model.device_id % 1000:03d}-0000-000",
        "vbios": f"96.00.{model.device_id & 0xFF:02X}.00.01",
        "minor": minor,
        "pci": _address(gpu.pci),
        "pci_ids": (model.device_id << 16 | 0x10DE, 0x10DE),
        "brand": 14,
        "architecture": model.architecture,
        "bus_type": 2,
        "persistence": 1,  # GPU Operator's driver container and nvidia-persistenced keep it on
        "pstate": 0,
        "utilization": (0, 0),
        "event_types": _EVENTS_HOPPER if model.architecture >= _HOPPER else _EVENTS_AMPERE,
        "recovery_action": 0,
        "c2c_links": 10 if model.c2c else 0,
    }
    for part in (_memory(model), _links(model), _pcie(model), _heat(model), _mig(model)):
        values.update(part)
    values["zero_fields"] = _zero_fields(model)
    return {name: written(value) for name, value in values.items()}


def _address(pci: str) -> str:
    """`0000:18:00.0` of sysfs as NVML writes it: eight digits of domain, upper case."""
    domain, rest = pci.split(":", 1)
    return f"{domain:0>8}:{rest}".upper()


def _memory(model: Model) -> dict[str, Value]:
    newer, remaps = model.architecture >= _HOPPER, model.architecture >= _AMPERE
    return {
        "memory": (model.memory * MIB, 600 * MIB, 0),
        "memory_temperature": 38 if model.links else None,  # HBM alone reports it
        "ecc_mode": (1, 1),
        "sram": (0,) * 12 if remaps else None,
        "repair": (0, 0) if newer else None,
        "unrepairable_memory": 0 if newer else None,
        "remapped_rows": (0, 0, 0, 0) if remaps else None,
        "remapped_rows_inactive": (0, 0) if remaps else None,
        "row_remapper_histogram": (640 if model.links else 96, 0, 0, 0, 0) if remaps else None,
        "bank_remapper": None,
        # Before Ampere pages are retired instead: addresses by cause.
        "retired_pages.0": None if remaps else "",
        "retired_pages.1": None if remaps else "",
        "retired_pending": None if remaps else 0,
    }


def _links(model: Model) -> dict[str, Value]:
    if not model.links:
        return {"fabric": None, "nvlink_states": None}
    counters: Value = None if model.architecture >= _BLACKWELL else (0,) * model.links  # gone with NVLink 5
    return {
        "nvlink_states": (1,) * model.links,
        "nvlink_version": model.link_version,
        "nvlink_mbps": _NVLINK_MBPS[model.link_version],
        "nvlink_remote_type": 2,  # a switch
        "nvlink_remote_pci": "00000000:C5:00.0",
        # Hopper's fields are given a link as their scope; before, each link has fields of its own. [assumption]
        "nvlink_scoped_errors": int(model.architecture >= _HOPPER),
        "nvlink_ber": _BER_FLOOR if model.architecture >= _BLACKWELL else None,
        # Completed, Success, clique 0, the mask of a healthy fabric, healthy.
        "fabric": (3, 0, 0, 0x1AA, 1) if model.fabric else None,
        "platform": (1, 1, 1, 2, 1) if model.c2c else None,
        **{f"nvlink_errors.{counter}": counters for counter in range(5)},
    }


def _pcie(model: Model) -> dict[str, Value]:
    width = (
        1 if model.c2c else 16
    )  # attached by C2C: generation 1, width 1 are placeholders that NVML gives as Success
    return {
        "pcie_generation": model.pcie_generation,
        "pcie_generation_max": model.pcie_generation,
        "pcie_generation_gpu_max": model.pcie_generation,
        "pcie_width": width,
        "pcie_width_max": width,
        "pcie_replays": 0,
        "pcie_speed_mbps": 2_000 << model.pcie_generation if model.pcie_generation > 2 else 2_500,
        "pcie_speed_max": model.pcie_generation,
    }


def _heat(model: Model) -> dict[str, Value]:
    return {
        "clocks_event_reasons": 1,  # idle
        "clocks_event_reasons_supported": 0x1FF,
        "temperature": 31,
        "temperature_thresholds": (95, 92, 95, 87),
        "temperature_margin": 56 if model.architecture >= _ADA else None,
        "clock_sm": 1_980,
        "clock_sm_max": 1_980,
        "clock_sm_application": 1_980,
        "power_mw": model.watts * 100,
        "power_limit_mw": model.watts * 1000,
    }


def _mig(model: Model) -> dict[str, Value]:
    return {"mig_mode": (0, 0) if model.mig_most else None, "mig_most": model.mig_most or None}


def _zero_fields(model: Model) -> str:
    """Field ids that are counters of this model, all at zero."""
    ids = ["7-28", "74-81", "83", "95", "169", "173-183", "226-227", "269-271"]
    if model.links and model.architecture < _BLACKWELL:
        ids += ["38", "45", "52", "59", "160"]
    elif model.links:
        ids += ["206-215", "219", "221", "235-250", "289-290"]
    return " ".join(ids)
