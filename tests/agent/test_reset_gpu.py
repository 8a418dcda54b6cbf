"""`reset-gpu`: these GPUs and no others, refused before anything is changed, persistence mode put back, a row for each.

Against the fake driver's nvidia-smi, which refuses and forgets as the real one does. Who has a GPU open is told by a procfs
of our own.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from agent.config import Config, NvmlSection, RootsSection
from agent.reset_gpu import (
    EXIT_CODES,
    Report,
    Result,
    as_text,
    reset_gpus,
    termination_message,
    why_not_uuids,
)
from kube.clock import Clock
from sandbox.fake_nvml import FakeDriver
from sandbox.machine import Machine
from sandbox.platforms import Platform
from tests.fakes import FakeClock
from tests.sandbox.nvml_program import built_or_skip


def config_of(machine: Machine, driver_root: Path) -> Config:
    """Give the configuration of an agent on that machine."""
    return Config(
        roots=RootsSection(proc=machine.proc, sys=machine.sys), nvml=NvmlSection(driver_root=driver_root)
    )


class Bench:
    """One machine with four GPUs, its driver, and the program."""

    def __init__(self, root: Path, model: str) -> None:
        platform = Platform(
            name="test", gpus=4, gpu_model=model, ib_ports=0, ib_rate_gbps=None, source="a test"
        )
        self.machine = Machine(root / "machine", "gpu-1", platform)
        gpus = [msgspec.structs.replace(gpu, model="NVIDIA H100 80GB HBM3") for gpu in self.machine.gpus]
        self.driver = FakeDriver(root / "driver", gpus, built=built_or_skip())
        self.uuids = [gpu.uuid for gpu in self.machine.gpus]
        self.clock = FakeClock()
        for number in range(4):
            self.driver.set(number, "persistence", 1)

    def reset(self, *numbers: int, boot: str | None = None, root: Path | None = None) -> Report:
        config = config_of(self.machine, self.driver.root if root is None else root)
        uuids = [self.uuids[number] for number in numbers]
        boot_id = self.machine.boot_id if boot is None else boot
        return reset_gpus(config, uuids, boot_id, self.clock.clock, timeout_s=600)

    def open_by(self, pid: int, comm: str, number: int, path: str = "/dev/nvidia{}") -> None:
        """Let a process have a GPU open."""
        process = self.machine.proc / str(pid)
        (process / "fd").mkdir(parents=True)
        (process / "comm").write_text(f"{comm}\n")
        (process / "fd" / "7").symlink_to(path.format(number))

    @property
    def persistence(self) -> list[str]:
        return [self.driver.state().gpus[number]["persistence"] for number in range(4)]

    @property
    def resets(self) -> list[int]:
        return [self.driver.resets(number) for number in range(4)]


@pytest.fixture
def model() -> str:
    return "NVIDIA H100 80GB HBM3"


@pytest.fixture
def bench(tmp_path: Path, model: str) -> Iterator[Bench]:
    bench = Bench(tmp_path, model)
    yield bench
    bench.machine.close()


def said(report: Report) -> str:
    return f"{report.result}: {report.checks[0].message}"


def test_the_named_gpus_are_reset_and_no_other(bench: Bench) -> None:
    """Each has its row with the time at which it answered; persistence mode is as it was, there and everywhere."""
    bench.driver.require_reset(1)
    bench.driver.set(3, "persistence", 0)
    before = bench.clock.now()
    report = bench.reset(1, 3)
    assert (report.result, report.boot_id) == (Result.RESET, bench.machine.boot_id)
    assert [(row.name, row.result, row.message) for row in report.checks] == [
        (bench.uuids[1], Result.RESET, ""),
        (bench.uuids[3], Result.RESET, ""),
    ]
    assert all(row.at is not None and row.at >= before for row in report.checks)
    assert bench.resets == [0, 1, 0, 1]
    assert bench.persistence == ["1", "1", "1", "0"]
    assert EXIT_CODES[report.result] == 0


@pytest.mark.parametrize(
    ("do", "why"),
    [
        pytest.param(
            lambda bench: bench.driver.mig(1, True), "MIG is on: a reset would end every instance", id="MIG"
        ),
        pytest.param(
            lambda bench: bench.open_by(41, "dcgm-exporter", 1),
            "it is held by dcgm-exporter (pid 41)",
            id="held",
        ),
        pytest.param(
            lambda bench: bench.open_by(42, "x\x1b[31m", 1, "/run/nvidia/driver/dev/nvidia{}"),
            "it is held by x[31m (pid 42)",
            id="held under another root, by something with a name of its own",
        ),
    ],
)
def test_one_gpu_that_may_not_be_reset_keeps_all_from_it(bench: Bench, do: object, why: str) -> None:
    """Nothing is half done: neither the other GPU nor anybody's persistence mode."""
    assert callable(do)
    do(bench)
    report = bench.reset(0, 1)
    assert (report.result, EXIT_CODES[report.result]) == (Result.REFUSED, 1)
    assert (report.checks[0].name, why in report.checks[0].message) == (bench.uuids[1], True)
    assert [row.result for row in report.checks] == [Result.REFUSED, Result.NOT_TRIED]
    assert bench.resets == [0, 0, 0, 0]
    assert bench.persistence == ["1", "1", "1", "1"]


def test_a_client_of_another_gpu_is_nobodys_business(bench: Bench) -> None:
    bench.open_by(41, "trainer", 2)
    bench.open_by(43, "trainer", 11)
    assert bench.reset(1).result is Result.RESET


def test_a_client_that_is_going_is_waited_for(bench: Bench) -> None:
    """For a minute: it was told to go, and has a grace."""
    bench.open_by(41, "nvidia-device-plugin", 1)

    def sleep(seconds: float) -> None:
        bench.clock.sleep(seconds)
        if len(bench.clock.slept) == 5:
            (bench.machine.proc / "41/fd/7").unlink()

    bench.clock.clock = Clock(now=bench.clock.now, monotonic=bench.clock.monotonic, sleep=sleep)
    assert bench.reset(1).result is Result.RESET
    assert len(bench.clock.slept) == 5


@pytest.mark.parametrize(
    ("boot", "why"),
    [
        pytest.param("another", "boot another is over", id="another boot"),
        pytest.param("", "boot  is over", id="no boot"),
    ],
)
def test_another_boot_is_refused(bench: Bench, boot: str, why: str) -> None:
    report = bench.reset(1, boot=boot)
    assert (report.result, report.checks[0].name, why in said(report)) == (Result.REFUSED, "boot", True)
    assert bench.resets == [0, 0, 0, 0]


def test_an_unreadable_boot_id_is_refused(bench: Bench) -> None:
    boot = bench.machine.boot_id
    (bench.machine.proc / "sys/kernel/random/boot_id").unlink()
    report = bench.reset(1, boot=boot)
    assert (report.result, EXIT_CODES[report.result]) == (Result.MISSING, 3)


def test_a_gpu_that_the_driver_does_not_show_is_refused(bench: Bench) -> None:
    """A UUID of another machine resets nothing here, whatever nvidia-smi would make of it."""
    bench.machine.pull(1)
    assert said(bench.reset(1)) == "Refused: the driver shows no GPU with this UUID"


def test_without_nvidia_smi_the_machine_lacks_something(bench: Bench, tmp_path: Path) -> None:
    report = bench.reset(1, root=tmp_path)
    assert (report.result, EXIT_CODES[report.result]) == (Result.MISSING, 3)
    assert f"usr/bin/nvidia-smi is not under {tmp_path}" in said(report)


def test_the_driver_pods_root_is_found_below_the_hosts(bench: Bench, tmp_path: Path) -> None:
    """GPU Operator's driver container keeps its file system under /run/nvidia/driver."""
    (tmp_path / "host/run/nvidia").mkdir(parents=True)
    (tmp_path / "host/run/nvidia/driver").symlink_to(bench.driver.root)
    assert bench.reset(1, root=tmp_path / "host").result is Result.RESET


@pytest.mark.parametrize(
    ("model", "switches", "why"),
    [
        pytest.param("NVIDIA A100-SXM4-80GB", 6, "on a board with NVSwitches", id="an A100 with NVSwitches"),
        pytest.param("NVIDIA A100-SXM4-80GB", 0, "", id="an A100 board without any"),
        pytest.param("Tesla V100-SXM2-32GB", 0, "older than Ampere", id="older than Ampere"),
        pytest.param("NVIDIA H100 80GB HBM3", 4, "", id="an H100 with NVSwitches"),
    ],
)
def test_gpus_that_are_reset_only_together_are_refused(bench: Bench, switches: int, why: str) -> None:
    """Told by the bus, since only the machine itself can know."""
    for number in range(switches):
        bridge = bench.machine.sys / f"bus/pci/devices/0000:c{number}:00.0"
        bridge.mkdir()
        (bridge / "vendor").write_text("0x10de\n")
        (bridge / "class").write_text("0x068000\n")
    report = bench.reset(1)
    assert (report.result is Result.RESET) == (not why)
    assert why in said(report)


@pytest.mark.parametrize(
    ("do", "why"),
    [
        pytest.param(
            lambda driver: driver.process(1, 4242), "In use by another client", id="a client that nobody saw"
        ),
        pytest.param(lambda driver: driver.lose(1), "GPU is lost", id="a GPU that fell off the bus"),
        pytest.param(
            lambda driver: driver.set(1, "reset_together", 1), "not supported", id="only together after all"
        ),
        pytest.param(
            lambda driver: (driver.require_reset(1), driver.set(1, "reset_works", 0)),
            "after the reset the driver asks for 'Reset'",
            id="a reset that only says that it worked",
        ),
    ],
)
def test_a_reset_that_does_not_work_fails_with_the_drivers_word(bench: Bench, do: object, why: str) -> None:
    """And persistence mode is put back all the same; what comes after it in the list is not tried."""
    assert callable(do)
    do(bench.driver)
    report = bench.reset(1, 2)
    assert [row.result for row in report.checks] == [Result.FAILED, Result.NOT_TRIED]
    assert why in said(report)
    assert bench.persistence[2:] == ["1", "1"]
    assert bench.driver.state().gpus[1]["lost"] == "1" or bench.persistence[1] == "1"


def test_the_report_fits_into_a_termination_message(bench: Bench) -> None:
    """Words are cut before rows: each GPU's result is what the proof needs."""
    report = bench.reset(0, 1, 2, 3)
    wordy = tuple(msgspec.structs.replace(row, message="x" * 4000) for row in report.checks)
    raw = termination_message(msgspec.structs.replace(report, checks=wordy))
    assert len(raw) <= 4096
    assert [row["result"] for row in json.loads(raw)["checks"]] == ["Reset"] * 4
    assert as_text(report).splitlines()[1].strip() == f"Reset    {bench.uuids[0]}"


@pytest.mark.parametrize(
    ("uuids", "why"),
    [
        pytest.param([], "0 GPUs are named", id="none: nvidia-smi would reset all of them"),
        pytest.param(["0"], "is no UUID of a GPU", id="an index, which moves"),
        pytest.param(
            ["GPU-8a1f0f4e-11d2-4c8b-9f57-0f6d4c1a2b3c,0"], "is no UUID", id="a list of nvidia-smi's"
        ),
        pytest.param(["GPU-8a1f0f4e-11d2-4c8b-9f57-0f6d4c1a2b3c"] * 2, "named twice", id="twice"),
        pytest.param(["GPU-8a1f0f4e-11d2-4c8b-9f57-0f6d4c1a2b3c"], None, id="a UUID"),
    ],
)
def test_only_uuids_name_gpus(uuids: list[str], why: str | None) -> None:
    told = why_not_uuids(uuids)
    assert (told is None) == (why is None)
    assert (why or "") in (told or "")
