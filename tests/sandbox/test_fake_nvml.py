"""The fake NVML as nvidia-ml-py sees it: well GPUs, each call with each code, hangs, losses, versions."""

from pathlib import Path

import pytest

from sandbox.fake_nvml import FakeDriver, make_gpus
from tests.sandbox.nvml_program import built_or_skip, nvidia_smi, run


@pytest.fixture
def driver(tmp_path: Path) -> FakeDriver:
    return FakeDriver(tmp_path / "root", make_gpus(2), built=built_or_skip())


def test_a_well_gpu_says_who_it_is(driver: FakeDriver) -> None:
    """Identity comes through the binding as a real GPU's does."""
    gpu = make_gpus(2)[0]
    answers = run(
        driver,
        "say([nvmlDeviceGetCount(), nvmlDeviceGetName(h), nvmlDeviceGetUUID(h), nvmlDeviceGetPciInfo(h).busId])",
    )
    assert answers == [2, gpu.model, gpu.uuid, "00000000:18:00.0"]


def test_a_reset_wants_persistence_mode_off(driver: FakeDriver) -> None:
    """Persistence mode is an attachment: the reset is refused until it is off."""
    code, words = nvidia_smi(driver, "--gpu-reset", "-i", "0")
    assert (code, "In use by another client" in words, driver.resets()) == (255, True, 0)
    assert nvidia_smi(driver, "-pm", "0", "-i", "0")[0] == 0
    assert nvidia_smi(driver, "--gpu-reset", "-i", "0") == (
        0,
        "GPU 00000000:18:00.0 was successfully reset.\n",
    )
    assert driver.resets() == 1
