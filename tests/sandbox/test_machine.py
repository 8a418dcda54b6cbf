"""The simulated machine's files, read as an agent reads them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.host.boot import read_boot_id
from agent.host.inventory import Inventory, read_inventory
from sandbox.machine import DRIVER, Machine
from sandbox.platforms import platform


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path / "gpu-1", "gpu-1", platform("HGX H100 8-GPU"))
    yield made
    made.close()


def seen(machine: Machine) -> Inventory:
    found = read_inventory(machine.sys, machine.proc)
    assert isinstance(found, Inventory)
    return found


def test_the_agent_finds_every_gpu_with_its_identity(machine: Machine) -> None:
    """PCI address, UUID, model and driver come out as they were put in."""
    found = seen(machine)

    assert [(gpu.part.index, gpu.part.pci, gpu.part.uuid, gpu.model) for gpu in found.gpus] == [
        (gpu.index, gpu.pci.removesuffix(".0"), gpu.uuid, gpu.model) for gpu in machine.gpus
    ]
    assert (len(found.gpus), found.driver) == (8, DRIVER)


def test_a_pulled_gpu_is_gone_until_it_is_put_back(machine: Machine) -> None:
    """A dead card stays away over a reboot; the others keep their identity."""
    machine.pull(3)
    machine.boot()
    without = {gpu.part.uuid for gpu in seen(machine).gpus}
    machine.put_back(3)

    assert without == {gpu.uuid for gpu in machine.gpus if gpu.index != 3}
    assert len(seen(machine).gpus) == 8


def test_a_boot_is_a_new_boot_id_on_the_same_hardware(machine: Machine) -> None:
    """The state folder outlives it, as /var does."""
    (machine.state_dir / "kept").touch()
    before, uuids = read_boot_id(machine.proc), [gpu.part.uuid for gpu in seen(machine).gpus]
    after = machine.boot()

    assert before != after == read_boot_id(machine.proc)
    assert [gpu.part.uuid for gpu in seen(machine).gpus] == uuids
    assert (machine.state_dir / "kept").exists()


def test_two_machines_share_no_gpu(tmp_path: Path, machine: Machine) -> None:
    """UUIDs come from the node's name and are the same each time."""
    other = Machine(tmp_path / "gpu-2", "gpu-2", platform("HGX H100 8-GPU"))
    again = Machine(tmp_path / "again", "gpu-1", platform("HGX H100 8-GPU"))
    other.close()
    again.close()

    assert not {gpu.uuid for gpu in machine.gpus} & {gpu.uuid for gpu in other.gpus}
    assert machine.gpus == again.gpus
