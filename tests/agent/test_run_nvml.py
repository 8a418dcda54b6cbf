"""The whole agent with NVML: its threads, the real child on the fake driver, a real kernel log, a fake API server."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from agent.config import Config
from agent.runtime import Agent
from kube import paths
from kube.api import NotFound, PatchType
from sandbox.fake_nvml import FakeDriver, make_gpus
from tests.agent.machine import XID_79, FolderMachine
from tests.agent.test_run import NODE, cluster, config_of, running
from tests.fakes import FakeApi, wait_until
from tests.sandbox.nvml_program import built_or_skip

PAUSED = "nvidia.com/gpu.deploy.device-plugin"
WITHIN_S = 30.0


class Rig:
    """A machine with two GPUs and a driver, an API server, and the agent between them."""

    def __init__(self, folder: Path) -> None:
        self.machine = FolderMachine(folder, gpus=2, pipe=True)
        gpus = [
            msgspec.structs.replace(gpu, pci=f"0000:{number + 1:02x}:00.0")
            for number, gpu in enumerate(make_gpus(2))
        ]
        self.driver = FakeDriver(folder / "driver", gpus, built=built_or_skip())
        self.api: FakeApi = cluster()
        more = f'[nvml]\ndriver_root = "{self.driver.root}"\ncall_deadline = "1s"\n'
        config = config_of(self.machine, more)
        often = msgspec.structs.replace(config.nvml, period=timedelta(seconds=1))
        self.config: Config = msgspec.structs.replace(config, nvml=often)

    @contextmanager
    def running(self) -> Iterator[Agent]:
        with running(self.config, self.api) as agent:
            yield agent

    def status(self) -> dict[str, Any]:
        try:
            status: dict[str, Any] = self.api.read(paths.node_health(NODE)).get("status") or {}
        except NotFound:
            return {}
        return status

    def until(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until NodeHealth's status is such; give it."""
        wait_until(lambda: holds(self.status()), WITHIN_S)
        return self.status()

    def label(self, value: str | None) -> None:
        self.api.patch(paths.node(NODE), {"metadata": {"labels": {PAUSED: value}}}, PatchType.MERGE)

    def release(self, release: dict[str, str] | None) -> None:
        self.api.patch(paths.node_health(NODE), {"spec": {"release": release}}, PatchType.MERGE)


def known(status: dict[str, Any]) -> bool:
    return all(part.get("serial") for part in status.get("parts", [])) and bool(status.get("parts"))


def test_nodehealth_shows_what_nvml_knows(tmp_path: Path) -> None:
    """Identity by PCI address, MIG, the driver's version, the source, the count; and the round's time in the metrics."""
    rig = Rig(tmp_path)
    rig.driver.mig(1, True)
    with rig.running() as agent:
        status = rig.until(known)
        first, second = status["parts"]
        values = rig.driver.state().gpus[0]
        assert (first["pci"], first["uuid"], first["serial"]) == (
            "0000:01:00",
            values["uuid"],
            values["serial"],
        )
        assert (first["model"], first["mig"], second["mig"]) == ("NVIDIA H100 80GB HBM3", False, True)
        assert status["driver"] == "580.95.05"
        assert {"name": "nvml", "readable": True, "error": "", "lost": 0} in status["sources"]
        assert status["lastValidated"]["gpus"] == 2
        assert b'nodemend_nvml_round_seconds{group="identity"}' in agent.pages().answer("/metrics")[2]
    assert rig.driver.clients() == ()


def test_gpu_operator_gets_the_driver_free_by_a_label(tmp_path: Path) -> None:
    """Seen as it is set, answered in NodeHealth, and over as soon as the label is back."""
    rig = Rig(tmp_path)
    with rig.running():
        rig.until(known)
        assert len(rig.driver.clients()) == 1
        rig.label("paused-for-driver-upgrade")
        released = rig.until(lambda status: bool(status.get("released")))["released"]
        assert PAUSED in released["why"]
        assert rig.driver.clients() == ()
        rig.label("true")
        rig.until(lambda status: not status.get("released"))
        rig.driver.wait_for_clients(1)


def test_an_incident_gets_the_driver_free_and_its_own_answer(tmp_path: Path) -> None:
    """By NodeHealth.spec.release, until it is taken away; an agent that starts meanwhile asks nothing at all."""
    rig = Rig(tmp_path)
    asked = {"by": "inc-1-reset-gpu-1", "since": "2026-01-01T00:00:00Z"}
    with rig.running():
        rig.until(known)
        rig.release(asked)
        rig.until(lambda status: (status.get("released") or {}).get("by") == asked["by"])
        assert rig.driver.clients() == ()
    before = rig.driver.calls()
    with rig.running():
        rig.until(lambda status: (status.get("released") or {}).get("by") == asked["by"])
        assert rig.driver.calls() == before
        rig.release(None)
        rig.driver.wait_for_clients(1)
        rig.until(lambda status: not status.get("released"))


def test_after_xid_79_in_the_kernel_log_that_gpu_is_left_alone(tmp_path: Path) -> None:
    """The others are still asked."""
    rig = Rig(tmp_path)
    with rig.running() as agent:
        rig.until(known)
        rig.machine.line(XID_79)
        rig.until(lambda status: any(row["reason"] == "Xid79FallenOffBus" for row in status["findings"]))
        wait_until(lambda: b"nodemend_nvml_quiet_gpus 1.0" in agent.pages().answer("/metrics")[2], WITHIN_S)
        settled = rig.driver.calls_to(1)
        wait_until(
            lambda: rig.driver.calls_to(1) > settled, WITHIN_S
        )  # a round after that which may have been under way
        before, others = rig.driver.calls_to(0), rig.driver.calls_to(1)
        wait_until(lambda: rig.driver.calls_to(1) > others, WITHIN_S)
        assert rig.driver.calls_to(0) == before


def test_a_driver_that_hangs_is_no_sick_agent(tmp_path: Path) -> None:
    """The source says which call hangs, and the probe that kubelet asks goes on to say that all is well."""
    rig = Rig(tmp_path)
    rig.driver.hang("nvmlDeviceGetSerial", 0, blocks_sigterm=True)
    with rig.running() as agent:
        rig.until(
            lambda status: any(
                "nvmlDeviceGetSerial" in source["error"] for source in status.get("sources", [])
            )
        )
        assert agent.pages().answer("/healthz")[0] == 200
        assert agent.pages().answer("/readyz")[0] == 200


def test_a_boot_that_begins_ends_the_child_of_the_last(tmp_path: Path) -> None:
    """What was known of the last boot's GPUs is read again."""
    rig = Rig(tmp_path)
    with rig.running():
        rig.until(known)
        rig.machine.boot_id.write_text("5f0e7c1a-0000-4000-8000-000000000002\n")
        status = rig.until(lambda status: status["bootID"].endswith("2") and known(status))
        assert status["driver"] == "580.95.05"
        rig.driver.wait_for_clients(1)
