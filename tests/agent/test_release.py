"""Tests of agent.release: who needs the driver free of every handle."""

from datetime import UTC, datetime

import pytest

from agent.config import Config
from agent.judging import Judging
from agent.nvml_feed import wish_of
from agent.release import Wanted, wanted, why_not_held
from kube.nodehealth import Release
from kube.types import Node, ObjectMeta

STATE = "nvidia.com/gpu-driver-upgrade-state"
DEPLOY = "nvidia.com/gpu.deploy."
PAUSED = "paused-for-driver-upgrade"


@pytest.mark.parametrize(
    ("labels", "named"),
    [
        pytest.param({}, "", id="no label says anything"),
        pytest.param({STATE: "upgrade-done"}, "", id="the upgrade is over"),
        pytest.param({STATE: "upgrade-required"}, "", id="the upgrade waits for its turn"),
        pytest.param({STATE: "uncordon-required"}, "", id="the new driver is up and validated"),
        pytest.param(
            {STATE: "upgrade-failed"}, "", id="the operator gave up: what NVML says then is a finding"
        ),
        pytest.param({STATE: "cordon-required"}, STATE, id="the upgrade begins"),
        pytest.param({STATE: "pod-restart-required"}, STATE, id="the driver is about to be unloaded"),
        pytest.param({STATE: "validation-required"}, STATE, id="the new driver is being validated"),
        pytest.param(
            {STATE: "reboot-required"}, STATE, id="a state that a later operator has is in progress"
        ),
        pytest.param(
            {f"{DEPLOY}device-plugin": "true", f"{DEPLOY}driver": "true"}, "", id="all parts are deployed"
        ),
        pytest.param({f"{DEPLOY}driver": "pre-installed"}, "", id="the driver is the host's own"),
        pytest.param(
            {f"{DEPLOY}device-plugin": PAUSED}, "device-plugin", id="the driver manager paused the plugin"
        ),
        pytest.param(
            {f"{DEPLOY}dcgm-exporter": PAUSED}, "dcgm-exporter", id="it paused whatever else runs here"
        ),
        pytest.param({f"{DEPLOY}client": PAUSED}, "client", id="it paused clients that are not its own"),
        pytest.param(
            {f"{DEPLOY}device-plugin": "paused-for-mig-change"},
            "device-plugin",
            id="the MIG manager is at work",
        ),
        pytest.param({f"{DEPLOY}driver": "false"}, "driver", id="the driver is switched off"),
        pytest.param({f"{DEPLOY}device-plugin": "false"}, "device-plugin", id="the plugin is switched off"),
        pytest.param({f"{DEPLOY}operands": "false"}, "operands", id="everything is switched off"),
        pytest.param({f"{DEPLOY}dcgm": "false"}, "", id="a node without DCGM is a node as others"),
        pytest.param(
            {"nvidia.com/gpu.workload.config": "vm-passthrough"},
            "vm-passthrough",
            id="the GPUs go to virtual machines, and cannot be unbound while somebody holds them",
        ),
        pytest.param({"nvidia.com/gpu.workload.config": "container"}, "", id="the GPUs stay here"),
        pytest.param({f"x.{DEPLOY}driver": "false"}, "", id="a label of somebody else is none of these"),
    ],
)
def test_labels_of_the_node_keep_handles_off(labels: dict[str, str], named: str) -> None:
    """Only what takes the driver away, or those who hold it, keeps ours off; the words name the label."""
    why = why_not_held(labels)
    assert named in (why or "")
    assert (why is None) == (not named)


def test_an_older_sight_of_the_node_takes_no_label_back() -> None:
    """The half-minutely read may come from a server that lags behind the watch; a new Node object counts from its first."""
    judging = Judging([], Config())

    def shows(version: str, uid: str = "uid-1", **labels: str) -> bool:
        metadata = ObjectMeta(name="gpu-1", uid=uid, resource_version=version, labels=labels)
        return judging.see(Node(metadata=metadata))

    assert shows("20", state="drain-required")
    assert not shows("19")
    assert judging.labels == {"state": "drain-required"}
    assert shows("21", state="upgrade-done")
    assert shows("3", uid="uid-2")
    assert judging.labels == {}


def test_what_stands_switched_off_is_how_the_node_is_run_and_no_work_on_the_driver() -> None:
    """A plugin or driver of one's own is said by the same label for good; only switching it off is an act."""
    judging = Judging([], Config())
    version = 10

    def asks(uid: str = "uid-1", **parts: str) -> bool:
        nonlocal version
        version += 1
        labels = {f"{DEPLOY}{part}": value for part, value in parts.items()}
        metadata = ObjectMeta(name="gpu-1", uid=uid, resource_version=str(version), labels=labels)
        judging.see(Node(metadata=metadata))
        return wish_of(judging).release is not None

    assert not asks(driver="false")
    assert not asks(driver="false", dcgm="true")
    assert asks(driver="false", operands="false"), "another one"
    assert not asks(driver="true", operands="true")
    assert asks(driver="false"), "it was on in between"
    assert not asks(uid="uid-2", driver="false"), "a new Node object is seen for the first time"
    assert asks(driver=PAUSED, uid="uid-3"), "nobody pauses for good"


def test_an_incident_goes_before_labels_and_is_answered_by_its_own_word() -> None:
    """A reset switches the operator's parts off itself, and waits for the answer to its own attempt."""
    release = Release(by="inc-1-reset-gpu-1", since=datetime(2026, 1, 1, tzinfo=UTC))
    labels = {f"{DEPLOY}driver": "false"}
    assert wanted(labels, release) == Wanted(why="asked by inc-1-reset-gpu-1", by="inc-1-reset-gpu-1")
    assert wanted({}, None) is None
    others = wanted(labels, None)
    assert others is not None
    assert others.by == ""
