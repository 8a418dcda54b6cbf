"""Builders of what NVML says of NVLinks and fabric: machines of eight GPUs, sound but for what a test makes sick."""

from collections.abc import Sequence
from typing import Any

import msgspec

from checks.gpu_health import Fabric, GpuHealth, NvLink, NvLinks, Pcie
from checks.nvlink import CHECK
from checks.observation import GpuReading, NvmlRead, Observation
from tests.checks import nvml

H100, A100_PCIE, B200 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-PCIE-40GB", "NVIDIA B200"
HEALTHY_MASK = 0x1AA
READY = Fabric(state=3, mask=HEALTHY_MASK, summary=1)


def links(
    down: Sequence[int] = (), *, count: int = 18, mbps: int = 26562, state: int = 0, **counters: int
) -> NvLinks:
    """Build links of which some are in another state; the counters are those of link 3, the others' are 0."""
    return NvLinks(
        count=count,
        links=tuple(
            NvLink(
                index=number,
                state=state if number in down else 1,
                mbps=mbps,
                counters={
                    name: value if number == 3 or name.endswith("ber") else 0
                    for name, value in counters.items()
                },
            )
            for number in range(count)
        ),
    )


def gpu(
    number: int = 0,
    nvlinks: NvLinks | None = None,
    fabric: Fabric | None = READY,
    *,
    model: str = H100,
    mig: bool | None = False,
    c2c: int | None = None,
    **health: Any,
) -> GpuReading:
    held = GpuHealth(nvlinks=nvlinks, fabric=fabric, pcie=Pcie(c2c_links=c2c), architecture=9, **health)
    return msgspec.structs.replace(nvml.gpu(number), model=model, mig=mig, health=held)


def eight(sick: GpuReading | None = None, **alike: Any) -> NvmlRead:
    """Build a round of eight GPUs that are alike, but for GPU 0 where one is given."""
    alike.setdefault("nvlinks", links())
    gpus = [gpu(number, **alike) for number in range(8)]
    return nvml.read(*([sick, *gpus[1:]] if sick is not None else gpus))


def watched(read: Observation, seconds: float = 600, **kwargs: Any) -> nvml.Watched:
    watch = nvml.Watched(CHECK, **kwargs)
    watch.waits(seconds, read)
    return watch


DOWN = gpu(0, links([3, 4, 7]))
