"""A node that stays open, in words: what is waited for, what comes then, and what holds it."""

from typing import Any

import pytest

from controller.explain import explain
from kube.policy import Mode
from kube.remediation import QUARANTINE, Phase
from tests import build as make
from tests.build import NOW
from tests.controller.core.open_node import EVICTS, SICK, WAITS, degraded, narrow, narrow_policy, work
from tests.controller.core.stage import decide

BUSY = {SICK: [work("holder")], "GPU-5": [work("neighbour")]}
OPEN = (
    "The node is open: the scheduler keeps off it what the fault takes away, and nothing was changed on it."
)
FULL = "budget: pool default is at its limit of 10% out of service"
OFFERED = "kubelet would still give a pod the GPU of Xid95UncontainedEcc on GPU 3 at 0000:03:00"
OUT = make.reset_finding()
NO_ROOM = {"others": [make.node("spare-1", unschedulable=True), *make.idle_nodes(8, "more")]}


@pytest.mark.parametrize(
    ("finding", "given", "lines"),
    [
        pytest.param(
            degraded(),
            {"cards": BUSY, "drain": WAITS},
            [OPEN, "Waited for: jobs/holder.", "Then: the cordon and reset-gpu."],
            id="a degraded GPU with a pod",
        ),
        pytest.param(
            degraded(),
            {"cards": {}, "drain": WAITS, **NO_ROOM},
            [
                OPEN,
                f"Then: the cordon and reset-gpu, held by budget: {FULL}.",
            ],
            id="an idle one, and no room in the budget",
        ),
        pytest.param(
            OUT,
            {"cards": BUSY, "withheld": [SICK], "drain": EVICTS},
            [OPEN, "Waited for: jobs/holder.", "Then: the cordon and reset-gpu."],
            id="a sick GPU whose pod is evicted",
        ),
        pytest.param(
            OUT,
            {"cards": BUSY, "drain": EVICTS},
            [
                OPEN,
                f"Then: the cordon, since {OFFERED}.",
            ],
            id="the fence is lost",
        ),
        pytest.param(
            degraded(),
            {"unknown": [SICK], "drain": WAITS},
            [OPEN, "Waited for: nobody says who holds GPU-3.", "Then: the cordon and reset-gpu."],
            id="kubelet is not heard",
        ),
        pytest.param(
            degraded(),
            {"pods_synced": False, "drain": WAITS},
            [OPEN, "Who has what is ill is not known here."],
            id="the pods could not be read",
        ),
    ],
)
def test_a_node_that_waits(finding: Any, given: dict[str, Any], lines: list[str]) -> None:
    """The same functions are asked that decide."""
    found = explain(narrow(Phase.WAITING, [finding], **given), "gpu-1", NOW)
    assert [line for line in found if line in lines] == lines
    assert "Incident" in " ".join(found)


@pytest.mark.parametrize(
    ("given", "held_by", "effects"),
    [
        pytest.param({}, "", ("Quarantine",), id="the cordon comes before the proof"),
        pytest.param({"policy": narrow_policy(paused=True)}, "policy", (), id="paused holds every cordon"),
        pytest.param({"policies": []}, "policy", (), id="so does a policy that is gone"),
        pytest.param(
            {"node": {"annotations": {QUARANTINE: "{"}}},
            "owner",
            (),
            id="a mark that cannot be read stays as it is",
        ),
    ],
)
def test_a_node_in_service_is_cordoned_for_its_proof(
    given: dict[str, Any], held_by: str, effects: tuple[str, ...]
) -> None:
    """After a fault that went away by itself, and at a person's word."""
    first = {"before": make.before(applied=False), "message": "as built", **given}
    found = decide(narrow(Phase.REVALIDATING, [OUT], cards=BUSY, drain=EVICTS, **first))
    assert (found.phase, found.held_by, found.effects) == (Phase.REVALIDATING, held_by, effects)


def test_observe_says_what_narrow_containment_would_do() -> None:
    """Before it is switched on."""
    observe = narrow_policy(mode=Mode.OBSERVE)
    for finding, withheld, would in (
        (
            degraded(),
            [],
            "wait until what is ill is idle, cordon it for reset-gpu, then reboot, and revalidate",
        ),
        (OUT, [SICK], "evict the pods on GPU-3, cordon it for reset-gpu, then reboot, and revalidate"),
        (make.person_finding(), [SICK], "and hand it to a person"),
    ):
        found = " ".join(
            explain(
                narrow(Phase.SUSPECTED, [finding], cards=BUSY, withheld=withheld, policy=observe),
                "gpu-1",
                NOW,
            )
        )
        assert "would leave the node open for" in found
        assert would in found
