"""Phase x fault on the real control plane: nobody is bound twice, lost or evicted needlessly, and no gang stays half there.

Everything is half done by real means (scheduler_phases.py), struck (scheduler_strikes.py), and then counted from outside
(scheduler_ledger.py): what the API server's audit record and a watch of the pods say.
"""

import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import NamedTuple

import msgspec
import pytest

from sandbox.cluster import Sandbox
from sandbox.install import install, install_scheduler
from tests.cluster.gate import Gate
from tests.cluster.scheduler_ledger import Account
from tests.cluster.scheduler_phases import JOBS, MEMBERS, Phase, Scene
from tests.cluster.scheduler_stage import standing
from tests.cluster.scheduler_strikes import STRIKES, Fault, Second, start

pytestmark = [pytest.mark.cluster, pytest.mark.faults, pytest.mark.timeout(300)]

QUIET_S = 3.0  # what is done twice is done soon
HALF_S = (
    40.0  # where the server is away for ten seconds: these, a Lease, a doubtful bind's five, and the grace
)
EXPECTED = {
    Phase.GANG: Account(bound=16),
    Phase.ROOM: Account(bound=8, evicted=4),
    Phase.RECLAIM: Account(bound=8, waiting=8, evicted=8),
}


class Played(NamedTuple):
    """The accounts, for how long each gang was half there, and what processes exited with."""

    accounts: Mapping[Phase, Account]
    half_s: Mapping[str, float]
    exits: tuple[int, ...]


class Rounds:
    """Lets each fault strike when it is first asked for, all phases at once, and keeps what it came to."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._played: dict[Fault, Played | Exception] = {}

    def of(self, fault: Fault) -> Played:
        """Give the round of this fault. Raises what it raised, for each of its cells."""
        if fault not in self._played:
            try:
                self._played[fault] = self._play(fault)
            except Exception as error:  # noqa: BLE001 - raised below, and not played again for every cell
                self._played[fault] = error
        found = self._played[fault]
        if isinstance(found, Exception):
            raise found
        return found

    def _play(self, fault: Fault) -> Played:
        namespace = f"struck-{fault.name.lower().replace('_', '-')}"
        self._sandbox.create_namespace(namespace)
        began = time.monotonic()
        seconds: dict[str, float] = {}

        def passed(what: str) -> None:
            seconds[what] = round(time.monotonic() - began, 1)

        with ExitStack() as ends:
            gate = Gate(self._sandbox.server, self._sandbox.ca_file)
            ends.callback(gate.close)
            scene = Scene(ends.enter_context(standing(self._sandbox, namespace)), gate)
            ends.callback(scene.close)
            for job, least in MEMBERS.items():
                scene.ledger.watch_gang(job, least)
            scene.prepare()
            running = start(scene, fault)
            ends.callback(running.stop)
            strike = STRIKES.get(fault)
            if strike is None:
                strike = second = Second(scene)
                ends.callback(second.stop)
            scene.lend()
            passed("prepared")
            scene.hold()
            passed("held")
            strike(scene, running)
            passed("struck")
            scene.end()
            passed("ended")
            time.sleep(QUIET_S)
            accounts = {phase: scene.ledger.account(job) for phase, job in JOBS.items()}
            print(f"{fault.value}: seconds {seconds}, half {scene.ledger.half_s}, {accounts}")
            return Played(accounts, dict(scene.ledger.half_s), tuple(running.exits))


@pytest.fixture(scope="module")
def rounds(sandbox: Sandbox) -> Rounds:
    """The rounds, on a sandbox with nodemend's own manifests."""
    install(sandbox, "observe")
    install_scheduler(sandbox)
    return Rounds(sandbox)


@pytest.mark.parametrize("phase", Phase, ids=lambda one: one.value)
@pytest.mark.parametrize("fault", Fault, ids=lambda one: one.value)
def test_a_fault_strikes_in_a_phase(rounds: Rounds, fault: Fault, phase: Phase) -> None:
    """Every pod has the place that is due to it, by one bind, and only those were evicted who had to be."""
    found = rounds.of(fault).accounts[phase]
    assert msgspec.to_builtins(found) == msgspec.to_builtins(EXPECTED[phase])


def test_a_leader_that_wakes_up_late_ends(rounds: Rounds) -> None:
    """Its process exits with 1, having done nothing more."""
    assert rounds.of(Fault.LEADER_CHANGED).exits == (1,)


@pytest.mark.parametrize("fault", Fault, ids=lambda one: one.value)
def test_no_gang_is_half_there_for_long(rounds: Rounds, fault: Fault) -> None:
    """As long as a Lease and a few seconds, at most."""
    assert {job: took for job, took in rounds.of(fault).half_s.items() if took > HALF_S} == {}
