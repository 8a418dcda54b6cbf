"""The controller cannot hear the API server while people act: once it can write again it must not act on what it knew.

Its watches come back one by one, seconds after its writes do. In between, only what is read right before a destructive
request keeps it from following a plan that a person has stopped.
"""

import time

import pytest

from kube.remediation import Phase
from sandbox import nodes as simulated
from sandbox.cluster import Sandbox
from sandbox.install import install
from tests.cluster.forwarder import Forwarder
from tests.cluster.holds import Case, Held, break_gpu, let_go, prepare, why_not_held
from tests.cluster.ledger import Account, Audit, Incident, account
from tests.cluster.stage import Stage, raw_node, standing, take_away
from tests.cluster.strikes import CutOff

pytestmark = pytest.mark.cluster

# Long enough that the pauses between the watches' tries have grown to many seconds; writes are tried again every second.
DEAF_S = 8.0
EXPECTED = Account(
    incidents=(Incident(ended="Cancelled", told=("open", "update", "resolve")),),
    evicted={"slow": 1, "work": 1},
    node_patches=2,
    cordons=(False, True, False),
)


def test_a_person_uncordons_while_the_controller_cannot_hear(sandbox: Sandbox) -> None:
    """The pods that were still to go may be evicted by then, and are not."""
    install(sandbox, "enforce")
    sandbox.create_namespace("deaf")
    cut_off = CutOff(Forwarder(int(sandbox.server.rpartition(":")[2])))
    with standing(sandbox, "deaf") as stage:
        stage.start_controllers(1, **cut_off.settings(stage))
        case = _draining(stage)
        cut_off.way.cut()
        stage.set_cordon(case.name, cordon=False)
        let_go(stage, case)
        time.sleep(DEAF_S)
        cut_off.way.mend()
        stage.wait(lambda: stage.incident(case.name) is None and _is_told(stage, case), "the end", 90)
        found = account(stage, case, Audit(stage))
        guarded = stage.has_pod(case.guarded)
        take_away(stage, [case.node])
    cut_off.way.close()
    sandbox.kubectl("delete", "namespace", "deaf", "--wait=false")
    assert (found, guarded) == (EXPECTED, True)


def _draining(stage: Stage) -> Case:
    (node,) = simulated.create(stage.sandbox, ["deaf"])
    case = Case(held=Held.DRAINING, node=node)
    prepare(stage, case)
    stage.start_agents([node])
    case.before = raw_node(stage.admin, case.name)
    stage.cordons[case.name] = [False]
    break_gpu(case)
    stage.wait(lambda: not why_not_held(stage, case), f"it to be held in {Phase.DRAINING}")
    return case


def _is_told(stage: Stage, case: Case) -> bool:
    rows = [row for one in stage.incidents(case.name) for row in one.status.notifications]
    return all(row.sent_at is not None for row in rows)
