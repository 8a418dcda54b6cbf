"""How `uninstall` brings open incidents to their end: beside a live controller, a dead one, and one that does nothing."""

import pytest

from cli.uninstall_incidents import CLOSED_WITHIN_S
from kube import paths
from kube.remediation import CANCEL
from tests.cli.installed import LEASE, RUNS, installation, is_clean
from tests.cli.objects import INCIDENT, remediation


def test_the_controller_puts_its_node_back_itself() -> None:
    """A cancelled incident is the live controller's to close: the command does not patch that Node's spec."""
    cluster = installation()
    cluster.lead()
    answer = cluster.uninstall()
    assert f"incident {INCIDENT} on gpu-1: closed, its node is as it was found" in answer.out
    assert [one.path for one in cluster.api.writes() if one.path.endswith("/nodes/gpu-1")] == []


def test_without_a_controller_the_annotation_is_enough() -> None:
    """The dead controller's Lease is waited out, then the Node is put back from what stands on it."""
    cluster = installation()
    cluster.lead().alive = False
    answer = cluster.uninstall()
    assert answer.code == 0
    assert is_clean(cluster)
    assert f"no controller leads: {INCIDENT} on gpu-1" in answer.out
    assert "gpu-1: put back as it was found" in answer.out
    assert sum(cluster.clock.slept) < 30


def test_a_controller_that_closes_nothing_is_not_waited_for_for_ever() -> None:
    """It leads and does not act (dry_run, another automation's mark): a minute, then it ends and the Node is put back."""
    cluster = installation()
    cluster.lead().closes = False
    answer = cluster.uninstall()
    assert (answer.code, is_clean(cluster)) == (0, True)
    assert "not closed by the controller" in answer.out
    assert CLOSED_WITHIN_S <= sum(cluster.clock.slept) < CLOSED_WITHIN_S + 10


def test_a_repair_that_runs_is_waited_for() -> None:
    """A reboot under way would hit whatever runs on a node that was given back too early."""
    cluster = installation("Repairing", attempts=[RUNS])
    cluster.lead().ends = {INCIDENT: cluster.clock.monotonic() + 120}
    answer = cluster.uninstall()
    assert (answer.code, is_clean(cluster)) == (0, True)
    assert f"waiting: reboot-{INCIDENT}-1 runs" in answer.out
    assert sum(cluster.clock.slept) >= 118
    assert not [one for one in cluster.api.writes() if CANCEL in str(one.body)]


@pytest.mark.parametrize(
    ("argv", "least_s", "most_s"),
    [
        pytest.param(("--wait", "90s"), 90, 110, id="its time runs out"),
        pytest.param(("--wait", "0s"), 0, 20, id="no time at all"),
        pytest.param(("--cancel",), 0, 20, id="not to be waited for"),
    ],
)
def test_a_repair_is_cancelled_in_the_end(argv: tuple[str, ...], least_s: int, most_s: int) -> None:
    """`--wait` bounds it and `--cancel` leaves it out; the plan has said so."""
    cluster = installation("Repairing", attempts=[RUNS])
    cluster.lead()
    answer = cluster.uninstall(*argv)
    assert (answer.code, is_clean(cluster)) == (0, True)
    assert least_s <= sum(cluster.clock.slept) <= most_s
    assert f"incident {INCIDENT} on gpu-1: cancelled (was Repairing)" in answer.out


def test_a_dead_controller_ends_the_wait_for_a_repair() -> None:
    """Nobody would ever notice that the repair is over."""
    cluster = installation("Revalidating")
    cluster.lead().alive = False
    assert cluster.uninstall("--wait", "2h").code == 0
    assert sum(cluster.clock.slept) < 60


def test_what_an_incident_asked_of_an_agent_is_taken_back() -> None:
    """With kept CRDs the next agent must not wait for an incident that is over."""
    cluster = installation()
    asks = {"spec": {"release": {"by": INCIDENT, "since": "2026-11-29T02:56:00Z"}}}
    held = cluster.api.read(paths.node_health("gpu-1"))
    cluster.api.replace(paths.node_health("gpu-1"), {**held, **asks})
    assert cluster.uninstall("--keep-crds").code == 0
    assert "release" not in cluster.api.read(paths.node_health("gpu-1"))["spec"]


def test_incidents_that_open_meanwhile_are_cancelled_too() -> None:
    """A paused policy still lets an incident be opened and told; none of them may stay open."""
    cluster = installation()
    late = remediation("inc-late", "gpu-2", "Suspected")
    cluster.lead().next = [lambda: cluster.add(remediations=[late])]
    answer = cluster.uninstall()
    assert answer.code == 0
    assert "incident inc-late on gpu-2: cancelled (was Suspected)" in answer.out


def test_the_lease_is_only_read() -> None:
    """Taking the Lease would make the command a leader, with a leader's duties."""
    cluster = installation()
    cluster.lead()
    cluster.uninstall()
    assert [one for one in cluster.api.writes() if one.path == LEASE] == []
