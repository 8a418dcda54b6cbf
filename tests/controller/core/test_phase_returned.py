"""Returned: what follows a revalidation that passed, the exact restore first."""

from typing import Any

import pytest

from controller.steps import Restore
from kube.remediation import Notification, Phase
from tests import build as make
from tests.build import NOW, SEEN
from tests.controller.core.stage import INCIDENT, VALIDATE, decide, stage, validation

UPGRADE = {"nvidia.com/gpu-driver-upgrade-state": "drain-required"}


NEW = make.finding(first_seen=NOW, boot_id="boot-1", index=5)


PASSED = validation(submitted_at=SEEN, finished_at=SEEN, result="Succeeded")


GIVEN_BACK = f"{VALIDATE} succeeded: the node is given back as it was found"


@pytest.mark.parametrize(
    ("recipe", "uncordon", "untaint"),
    [
        pytest.param(make.before(), True, True, id="cordon and taint are ours"),
        pytest.param(make.before(tainted=False), True, False, id="we set no taint"),
        pytest.param(make.before(unschedulable=True), False, True, id="somebody had cordoned it before"),
    ],
)
def test_a_proven_node_is_restored_exactly(recipe: Any, uncordon: bool, untaint: bool) -> None:
    """What we changed is taken back, and nothing else (NVIDIA/k8s-driver-manager#212)."""
    fleet = stage(Phase.REVALIDATING, attempts=(PASSED,), message=GIVEN_BACK, recipe=recipe)
    (step,) = decide(fleet).steps
    assert step == Restore(
        node="gpu-1",
        node_uid="uid-gpu-1",
        resource_version="100",
        incident=INCIDENT,
        uncordon=uncordon,
        untaint=untaint,
    )


@pytest.mark.parametrize(
    ("given", "phase", "message"),
    [
        pytest.param({"marked": False}, Phase.RETURNED, "proven and given back", id="the Node is restored"),
        pytest.param(
            {"marked": False, "node": {"unschedulable": True}, "recipe": make.before(unschedulable=True)},
            Phase.RETURNED,
            "it stays cordoned, as somebody left it before the incident",
            id="restored to the cordon that stood before",
        ),
        pytest.param(
            {"marked": False, "node": {"unschedulable": True}, "before": make.before()},
            Phase.RETURNED,
            "its cordon stays, since our mark was taken off by somebody else",
            id="our mark was taken off by somebody: the cordon is not ours to undo any more",
        ),
        pytest.param(
            {"marked": False, "node": {"version": "80"}, "before": make.before()},
            Phase.REVALIDATING,
            GIVEN_BACK,
            id="a view from before we touched the Node proves no restore",
        ),
        pytest.param(
            {"reported": [NEW]}, Phase.DRAINING, "", id="a fault came between the proof and the restore"
        ),
        pytest.param(
            {"node": {"labels": UPGRADE}},
            Phase.REVALIDATING,
            "left alone",
            id="a driver upgrade came between",
        ),
    ],
)
def test_returned_follows_the_restore(given: dict[str, Any], phase: Phase, message: str) -> None:
    """The incident is closed once our change is off the Node."""
    decision = decide(stage(Phase.REVALIDATING, **{"attempts": (PASSED,), "message": GIVEN_BACK, **given}))
    assert decision.phase is phase
    assert message in decision.message


def test_the_page_is_resolved_only_where_one_was_owed() -> None:
    """A receiver never gets a resolve for something it never heard of."""
    paged = Notification(
        id=f"{INCIDENT}-1-pager",
        sink="pager",
        transition="open",
        sequence=1,
        summary="x",
        created_at=SEEN,
        sent_at=SEEN,
    )
    silent = decide(stage(Phase.REVALIDATING, attempts=(PASSED,), marked=False)).status
    heard = decide(stage(Phase.REVALIDATING, attempts=(PASSED,), marked=False, notifications=(paged,))).status
    assert silent.notifications == ()
    assert [row.transition for row in heard.notifications] == ["open", "resolve"]
    assert heard.closed_at == NOW
