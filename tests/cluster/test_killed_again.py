"""The controller is killed again and again, at random instants of a whole loop, until every node is given back.

The table of faults (test_faults.py) strikes where an incident is held; this strikes between any two requests. The seed is
printed, and the instants depend on it alone.
"""

import random
import time

import pytest

from sandbox import nodes as simulated
from sandbox.cluster import Sandbox
from sandbox.install import install
from tests.cluster.expected import RETURNED, at_most
from tests.cluster.holds import Case, Held, break_gpu, prepare
from tests.cluster.ledger import Audit, account
from tests.cluster.stage import Stage, raw_node, standing, take_away

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

NODES = 4
LONGEST_S = 240.0
# As short as whole seconds allow: a killed leader's Lease has to run out before the next one may act.
LEASE = {"lease_duration": "3s", "renew_deadline": "2500ms", "retry_period": "200ms"}


def test_kill_9_at_any_instant_neither_repeats_nor_forgets(sandbox: Sandbox) -> None:
    """Each life of the controller lasts a moment; in the end everything was done, and done once."""
    install(sandbox, "enforce")
    seed = random.randrange(10**6)
    sandbox.create_namespace("killed-again")
    with standing(sandbox, "killed-again") as stage:
        stage.start_controllers(1, leader=LEASE)
        cases = _cases(stage)
        lives = _kill_until_all_returned(stage, cases, random.Random(seed))
        time.sleep(3.0)
        audit = Audit(stage)
        found = {case.name: at_most(account(stage, case, audit), RETURNED) for case in cases}
        take_away(stage, [case.node for case in cases])
    sandbox.kubectl("delete", "namespace", "killed-again", "--wait=false")
    print(f"seed {seed}: {lives} lives of the controller")
    assert found == {case.name: RETURNED for case in cases}
    assert lives > 3


def _cases(stage: Stage) -> list[Case]:
    made = simulated.create(stage.sandbox, [f"killed-again-{number}" for number in range(NODES)])
    cases = [Case(held=Held.JUST_TRUE, node=node) for node in made]
    for case in cases:
        prepare(stage, case)
    stage.start_agents(made)
    for case in cases:
        case.before = raw_node(stage.admin, case.name)
        stage.cordons[case.name] = [False]
        break_gpu(case)
    return cases


def _kill_until_all_returned(stage: Stage, cases: list[Case], instants: random.Random) -> int:
    """Kill each leader a moment after it began to lead; give how many there were."""
    lives = 1
    end = time.monotonic() + LONGEST_S
    while time.monotonic() < end:
        stage.wait(lambda: stage.controllers.leader() is not None, "a controller to lead")
        time.sleep(instants.uniform(0.05, 1.2))
        if all(stage.incidents(case.name) and stage.incident(case.name) is None for case in cases):
            break
        (actor,) = stage.controllers.actors
        actor.kill()
        _await_exits(stage, lives)
        lives += 1
    stage.watching.wait_for(lambda: not any(_waiting(stage, case) for case in cases), 60)
    return lives


def _await_exits(stage: Stage, count: int) -> None:
    stage.wait(lambda: len(stage.controllers.exits) >= count, "the controller to be started again")


def _waiting(stage: Stage, case: Case) -> bool:
    rows = [row for one in stage.incidents(case.name) for row in one.status.notifications]
    return stage.incident(case.name) is not None or any(row.sent_at is None and not row.dead for row in rows)
