"""Phase x fault on the real control plane: nobody is bound twice, lost or evicted needlessly, and no gang stays half there.

Everything is half done by real means (scheduler_phases.py), struck (scheduler_strikes.py), and then counted from outside
(scheduler_ledger.py): what the API server's audit record and a watch of the pods say.

A second scheduler under another Lease is judged by what holds whoever schedules: nobody is bound twice or on two nodes, no
pod is lost, none is evicted twice or deleted, no gang is half there for long. Both decide on books that lack the other's
last writes, and the API server, which takes their Bindings and evictions one by one, holds them against no node's books. So
no scheduler can avoid, and luck alone decides, whether a node is given more than it has for a moment, whether both choose
victims for the same room, and whether one gives away what the other has just emptied. It is kubelet that turns away what is
too much (admission.py), and one scheduler alone that heals the rest once the other one is found, which its metric is for. So
the end is the same as ever: all have the place that is due to them, and no node carries more than it has.
"""

import time
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

import msgspec
import pytest

from sandbox.cluster import Sandbox
from sandbox.install import install, install_scheduler
from tests.cluster.admission import Admission
from tests.cluster.gate import Gate
from tests.cluster.scheduler_ledger import Account
from tests.cluster.scheduler_phases import JOBS, MEMBERS, Phase, Scene
from tests.cluster.scheduler_stage import standing
from tests.cluster.scheduler_strikes import STRIKES, Fault, Second, start

pytestmark = [pytest.mark.cluster, pytest.mark.faults, pytest.mark.timeout(300)]

QUIET_S = 3.0  # what is done twice is done soon
HALF_S = 30.0  # after the fault's end: a Lease, a new process, a doubtful bind's five seconds, and the grace
ONE_SCHEDULES = [one for one in Fault if one is not Fault.SECOND]
EXPECTED = {
    Phase.GANG: Account(bound=16),
    Phase.ROOM: Account(bound=8, evicted=4),
    Phase.RECLAIM: Account(bound=8, waiting=8, evicted=8),
}


class Played(NamedTuple):
    """The accounts, for how long the fault lasted and each gang was half there, and what processes exited with.

    `foreign`: the binds of others that the one scheduler counted; `others`: the pods that another one bound, or a person.
    """

    accounts: Mapping[Phase, Account]
    struck_s: float
    half_s: Mapping[str, float]
    exits: tuple[int, ...]
    foreign: float
    others: frozenset[str]


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
            strike, end = STRIKES.get(fault), scene.end
            if strike is None:
                admission = Admission(scene.stage)
                ends.callback(admission.close)
                ends.callback(lambda: print(f"refused {sorted(admission.refused)}"))
                strike = second = Second(scene)
                ends.callback(second.stop)
                end = partial(scene.end_race, second.stop)
            scene.lend()
            passed("prepared")
            scene.hold()
            passed("held")
            struck_at = time.monotonic()
            strike(scene, running)
            struck_s = time.monotonic() - struck_at
            passed("struck")
            end()
            passed("ended")
            time.sleep(QUIET_S)
            ledger = scene.ledger
            accounts = {phase: ledger.account(job) for phase, job in JOBS.items()}
            foreign = scene.stage.metric("nodemend_scheduler_foreign_binds_total")
            others = frozenset(ledger.bound_by_others() | scene.by_hand)
            print(f"{fault.value}: seconds {seconds}, half {ledger.half_s}, {accounts}")
            print(f"foreign binds {foreign:g}, by others {sorted(others)}")
            return Played(accounts, struck_s, dict(ledger.half_s), tuple(running.exits), foreign, others)


@pytest.fixture(scope="module")
def rounds(sandbox: Sandbox) -> Rounds:
    """The rounds, on a sandbox with nodemend's own manifests."""
    install(sandbox, "observe")
    install_scheduler(sandbox)
    return Rounds(sandbox)


@pytest.mark.parametrize("phase", Phase, ids=lambda one: one.value)
@pytest.mark.parametrize("fault", ONE_SCHEDULES, ids=lambda one: one.value)
def test_a_fault_strikes_in_a_phase(rounds: Rounds, fault: Fault, phase: Phase) -> None:
    """Every pod has the place that is due to it, by one bind, and only those were evicted who had to be."""
    found = rounds.of(fault).accounts[phase]
    assert msgspec.to_builtins(found) == msgspec.to_builtins(EXPECTED[phase])


@pytest.mark.parametrize("phase", Phase, ids=lambda one: one.value)
def test_two_schedulers_race_in_a_phase(rounds: Rounds, phase: Phase) -> None:
    """Nobody is bound or evicted twice, lost or deleted, and in the end every pod has the place that is due to it.

    Who had to leave, and what a node carried on the way, is luck: see above.
    """
    found = rounds.of(Fault.SECOND).accounts[phase]
    due = EXPECTED[phase]
    assert (found.bound, found.waiting, found.odd) == (due.bound, due.waiting, due.odd)


def test_binds_of_others_are_noticed(rounds: Rounds) -> None:
    """At least the one by hand, and never more than there were; those that may have been our own, unanswered, are not."""
    found = rounds.of(Fault.SECOND)
    assert 0 < found.foreign <= len(found.others)


@pytest.mark.parametrize(
    "fault", [one for one in ONE_SCHEDULES if one is not Fault.LEADER_CHANGED], ids=lambda one: one.value
)
def test_who_schedules_alone_takes_no_bind_for_anothers(rounds: Rounds, fault: Fault) -> None:
    """Neither one whose answer was lost nor one that shows late."""
    assert rounds.of(fault).foreign == 0


def test_a_leader_that_wakes_up_late_ends(rounds: Rounds) -> None:
    """Its process exits with 1, having done nothing more."""
    assert rounds.of(Fault.LEADER_CHANGED).exits == (1,)


@pytest.mark.parametrize("fault", Fault, ids=lambda one: one.value)
def test_no_gang_is_half_there_for_long(rounds: Rounds, fault: Fault) -> None:
    """As long as the fault lasts, a Lease and a few seconds, at most."""
    found = rounds.of(fault)
    longest = found.struck_s + HALF_S
    assert {job: took for job, took in found.half_s.items() if took > longest} == {}
