"""Phase x fault on the real control plane: nothing is done twice, nothing is forgotten, nobody else's cordon is undone.

Every incident is held in its phase by real means (tests/cluster/holds.py), struck (strikes.py), let go, and then counted
from outside (ledger.py): what the API server's audit record, the receiver of pages, the machine and the Node itself say.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import msgspec
import pytest

from sandbox.cluster import Sandbox
from sandbox.install import install
from tests.cluster.drill import Drill
from tests.cluster.expected import EXPECTED, at_most, patched_at_most
from tests.cluster.forwarder import Forwarder
from tests.cluster.holds import Held
from tests.cluster.ledger import Account
from tests.cluster.stage import Stage, standing
from tests.cluster.strikes import STRIKES, WATCHED, CutOff, Fault

pytestmark = [pytest.mark.cluster, pytest.mark.faults, pytest.mark.timeout(600)]

# What strikes one node runs beside others of its kind, under one controller; what strikes all of them runs alone.
ROUNDS: tuple[tuple[Fault, ...], ...] = (
    (Fault.AGENT_KILLED, Fault.NODE_REPLACED, Fault.UNCORDONED),
    (Fault.CANCELLED, Fault.CORDONED_BEFORE),
    (Fault.CONTROLLER_KILLED,),
    (Fault.LEADER_CHANGED,),
    (Fault.WATCH_GONE,),
    (Fault.API_DOWN,),
)
CELLS = [
    pytest.param(fault, held, id=f"{fault.value} | {held.value}")
    for round_ in ROUNDS
    for fault in round_
    for held in EXPECTED[fault]
]
# The strike can take the answer to a request, and its line in the audit record, that was on its way in that instant.
LOSES_ANSWERS = {(Fault.API_DOWN, Held.JUST_TRUE), (Fault.WATCH_GONE, Held.JUST_TRUE)}


class Played(NamedTuple):
    """A round's accounts, what the controllers' processes exited with, and what the server said to old watches."""

    accounts: Mapping[tuple[Fault, Held], Account]
    exits: tuple[int, ...]
    to_old_watches: tuple[str, ...]


class Rounds:
    """Plays each round when it is first asked for, whole, and keeps what it came to."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._played: dict[Fault, Played | Exception] = {}

    def of(self, fault: Fault) -> Played:
        """Give the round of this fault. Raises what its setting up raised, for each of its cells."""
        if fault not in self._played:
            round_ = next(one for one in ROUNDS if fault in one)
            try:
                played: Played | Exception = self._play(round_)
            except Exception as error:  # noqa: BLE001 - raised below, and not played again for every cell
                played = error
            self._played.update(dict.fromkeys(round_, played))
        found = self._played[fault]
        if isinstance(found, Exception):
            raise found
        return found

    def _play(self, faults: tuple[Fault, ...]) -> Played:
        namespace = f"drill-{faults[0].name.lower().replace('_', '-')}"
        self._sandbox.create_namespace(namespace)
        cut_off = CutOff(Forwarder(int(self._sandbox.server.rpartition(":")[2])))
        try:
            with standing(self._sandbox, namespace) as stage:
                _start_controllers(stage, faults, cut_off)
                with ThreadPoolExecutor(len(faults)) as pool:
                    found = list(pool.map(lambda fault: _drill(stage, fault, cut_off), faults))
                exits, answers = tuple(stage.controllers.exits), tuple(cut_off.answers)
        finally:
            cut_off.way.close()
            self._sandbox.kubectl("delete", "namespace", namespace, "--wait=false")
        rows = zip(faults, found, strict=True)
        return Played(
            {(fault, held): one for fault, row in rows for held, one in row.items()}, exits, answers
        )


def _start_controllers(stage: Stage, faults: tuple[Fault, ...], cut_off: CutOff) -> None:
    if Fault.WATCH_GONE in faults:
        stage.start_controllers(1, **cut_off.settings(stage))
    else:
        stage.start_controllers(2 if Fault.LEADER_CHANGED in faults else 1)


def _drill(stage: Stage, fault: Fault, cut_off: CutOff) -> dict[Held, Account]:
    strike = cut_off if fault is Fault.WATCH_GONE else STRIKES[fault]
    drill = Drill(stage, fault, strike, list(EXPECTED[fault]))
    try:
        return drill.run()
    finally:
        print(f"{fault.value}: seconds {drill.seconds}")


@pytest.fixture(scope="module")
def rounds(sandbox: Sandbox) -> Rounds:
    """The rounds, on a sandbox with nodemend's own manifests."""
    install(sandbox, "enforce")
    return Rounds(sandbox)


@pytest.mark.parametrize(("fault", "held"), CELLS)
def test_a_fault_strikes_in_a_phase(rounds: Rounds, fault: Fault, held: Held) -> None:
    """The Node is as it was found, and Jobs, evictions and messages are exactly those that were due."""
    expected, found = EXPECTED[fault][held], rounds.of(fault).accounts[fault, held]
    allow = at_most if (fault, held) in LOSES_ANSWERS else patched_at_most
    found = allow(found, expected)
    assert msgspec.to_builtins(found) == msgspec.to_builtins(expected)


def test_a_leader_that_wakes_up_late_ends(rounds: Rounds) -> None:
    """Its process exits with 1, having done nothing more (what it might have done twice is counted above)."""
    assert rounds.of(Fault.LEADER_CHANGED).exits == (1,)


def test_the_server_had_really_forgotten(rounds: Rounds) -> None:
    """A watch from what the controller had seen is answered with 410, for everything that it watches."""
    assert rounds.of(Fault.WATCH_GONE).to_old_watches == ("410",) * len(WATCHED)
