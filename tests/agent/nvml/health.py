"""Machines whose GPUs are asked for their health: shared by the tests of what they say, and of what they refuse.

NVML writes one entry past the end of what it was asked for here, as real ones do.
"""

from pathlib import Path

from agent.nvml_reading import health_of
from agent.nvml_wire import GpuSaid, RoundSaid
from checks.gpu_health import GpuHealth
from sandbox.fake_nvml import FakeDriver, make_gpus
from tests.agent.nvml.driver import Asking
from tests.sandbox.nvml_program import built_or_skip

V100, A100, H100 = "Tesla V100-SXM2-32GB", "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"
B200, GB200, L4 = "NVIDIA B200", "NVIDIA GB200", "NVIDIA L4"
MODELS = (V100, A100, H100, B200, GB200, L4)
FIELDS = "nvmlDeviceGetFieldValues"


def said(child: Asking) -> RoundSaid:
    answer = child.ask()
    assert isinstance(answer, RoundSaid), answer
    return answer


def health(gpu: GpuSaid) -> GpuHealth:
    assert gpu.health is not None, gpu
    return health_of(gpu.health)


def first(child: Asking) -> GpuHealth:
    """Give the health of the first GPU in one more round."""
    return health(said(child).gpus[0])


def machine(root: Path, *models: str) -> FakeDriver:
    """Lay out a machine of these GPUs, on which NVML touches the entry past the last one."""
    gpus = [make_gpus(1, model, first=index)[0] for index, model in enumerate(models)]
    driver = FakeDriver(root, gpus, built=built_or_skip())
    driver.setting("touch_past_end", 1)
    return driver
