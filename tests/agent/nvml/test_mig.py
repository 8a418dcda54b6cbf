"""MIG devices as the real child reads them from the fake driver, and as they are laid on their cards."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.host.inventory import Inventory
from agent.nvml_reading import Readings
from agent.nvml_wire import Order, RoundSaid, read, write
from agent.offered import cards_of
from agent.parts import Known, learn
from sandbox.fake_nvml import FakeDriver, make_gpus
from sandbox.go_modules import MissingProgramError
from tests.fakes import EPOCH


@pytest.fixture
def driver(tmp_path: Path) -> FakeDriver:
    try:
        return FakeDriver(tmp_path / "driver", make_gpus(3))
    except MissingProgramError as error:
        pytest.skip(str(error))


def one_round(driver: FakeDriver) -> tuple[RoundSaid, list[dict[str, Any]]]:
    """Let a child of its own make one round; give what it said at its end, and the calls it announced before."""
    command = [sys.executable, "-m", "agent.host.nvml_child", str(driver.root), str(os.getpid())]
    order = write(Order(round=1))
    done = subprocess.run(command, input=order, capture_output=True, timeout=30, check=False)
    *before, last = [line for line in done.stdout.splitlines() if b'"events"' not in line]
    said = read(last)
    assert isinstance(said, RoundSaid), done
    return said, [json.loads(line) for line in before]


def test_mig_devices_are_read_and_laid_on_their_card(driver: FakeDriver) -> None:
    """Only the GPU with MIG on is asked for them; each of its devices is known by UUID."""
    driver.mig(1, on=True)
    said, calls = one_round(driver)
    devices = [gpu.mig_devices for gpu in said.gpus]
    assert devices[0] == devices[2] == ()
    assert len(devices[1]) > 1
    assert all(uuid.startswith("MIG-") for uuid in devices[1])
    asked = {call["index"] for call in calls if call["call"] == "nvmlDeviceGetMaxMigDeviceCount"}
    assert asked == {1}
    reading = Readings().take(said, {}, child=1, at=EPOCH)
    cards = cards_of(Inventory(), learn(Known(), [reading]))
    assert [(card.mig, card.mig_devices) for card in cards] == [(False, ()), (True, devices[1]), (False, ())]


def test_a_gpu_whose_mig_devices_cannot_be_read_is_still_a_gpu(driver: FakeDriver) -> None:
    """The error stands in its reading, and all else of it is there."""
    driver.mig(1, on=True)
    driver.answer("nvmlDeviceGetMaxMigDeviceCount", 999)
    said, _ = one_round(driver)
    assert said.gpus[1].mig is True
    assert said.gpus[1].mig_devices == ()
    assert [error.call for error in said.gpus[1].errors] == ["nvmlDeviceGetMaxMigDeviceCount"]
    assert said.gpus[1].uuid
