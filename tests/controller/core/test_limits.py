"""Breaker and budget: how much may be taken out, and when the observer is suspected."""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.breaker import Burst, Turn, burst
from controller.budget import Place, Pool
from controller.survey import Survey, survey
from controller.terms import read
from kube.policy import BREAKER_ACKNOWLEDGED, BreakerPolicy, BudgetPolicy, RemediationPolicy
from kube.remediation import Phase, Remediation
from kube.types import Node
from tests import build as make
from tests.build import NOW, SEEN, SETTINGS, XID
from tests.controller.core.stage import reboot

LOST = make.finding()
TERMS = read(make.policy(), SETTINGS)
MINUTE = timedelta(minutes=1)


def turns(*minutes: float) -> list[Turn]:
    return [Turn(at=NOW + minute * MINUTE, node=f"n-{number:02}") for number, minute in enumerate(minutes)]


@pytest.mark.parametrize(
    ("minutes", "size", "members"),
    [
        pytest.param([], 20, 0, id="nothing"),
        pytest.param([0], 8, 0, id="one node never trips it"),
        pytest.param([0, 1], 8, 2, id="two of eight"),
        pytest.param([0, 1], 20, 0, id="two of twenty are ten per cent, not more"),
        pytest.param([0, 1, 2], 20, 3, id="three of twenty"),
        pytest.param([0, 5, 10], 20, 3, id="within the window to the second"),
        pytest.param([0, 5, 10.1], 20, 0, id="a little too far apart"),
        pytest.param([0, 1, 2, 9, 300], 20, 4, id="the late one is not of the burst"),
        pytest.param([0, 1, 2, 100, 101, 102, 200], 20, 6, id="two bursts"),
        pytest.param([0, 6, 12, 18, 24], 20, 0, id="a slow trickle"),
    ],
)
def test_a_burst_is_more_than_the_threshold_within_the_window(
    minutes: list[float], size: int, members: int
) -> None:
    """More than ten per cent of the pool, and at least two nodes, within ten minutes."""
    found = burst(turns(*minutes), size, TERMS)
    assert len(found.nodes) == members
    assert (found.since is None) == (members == 0)


def test_one_node_that_turns_often_is_one_node() -> None:
    """A flapping node is no burst."""
    flaps = [Turn(at=NOW + n * timedelta(seconds=1), node="n-1") for n in range(50)]
    assert burst(flaps, 20, TERMS) == Burst()


def test_a_person_may_believe_a_burst() -> None:
    """What turned up to the acknowledged time does not count any more."""
    terms = read(make.policy(annotations={BREAKER_ACKNOWLEDGED: "2026-03-01T12:01:00Z"}), SETTINGS)
    assert burst(turns(0, 0.5, 1), 8, terms) == Burst()
    assert len(burst(turns(0, 1, 2, 3), 8, terms).nodes) == 2


def test_the_breaker_can_be_raised_out_of_the_way() -> None:
    """A threshold of 100% never trips."""
    terms = read(make.policy(breaker=BreakerPolicy(threshold="100%")), SETTINGS)
    assert burst(turns(*[0] * 50), 50, terms) == Burst()


@given(st.lists(st.integers(0, 60), max_size=40), st.integers(1, 60))
def test_the_burst_is_the_union_of_all_windows_that_are_too_full(minutes: list[int], size: int) -> None:
    """The sliding count agrees with counting every window."""
    events = turns(*minutes)
    most = max(TERMS.breaker_threshold.of(size), 1)
    expected: set[str] = set()
    for first in events:
        inside = {t.node for t in events if timedelta(0) <= t.at - first.at <= 10 * MINUTE}
        expected |= inside if len(inside) > most else set()
    assert burst(events, size, TERMS).nodes == expected


def looked(
    nodes: Iterable[Node], *, policy: RemediationPolicy | None = None, findings: bool = True, **given_: object
) -> Survey:
    nodes = list(nodes)
    healths = [
        make.health(
            n,
            [LOST]
            if findings and any(c.type == XID and c.status == "True" for c in n.status.conditions)
            else [],
        )
        for n in nodes
    ]
    fleet = make.fleet(*nodes, healths=healths, policies=[policy or make.policy()], **given_)  # type: ignore[arg-type]
    return survey(fleet, NOW)


def ill(count: int, status: str = "True", at: datetime = SEEN, **fields: object) -> list[Node]:
    return [make.node(f"ill-{n}", conditions={XID: (status, at)}, **fields) for n in range(count)]  # type: ignore[arg-type]


YOUNG = NOW - timedelta(minutes=3)
UPGRADE = {"nvidia.com/gpu-driver-upgrade-state": "pod-restart-required"}


@pytest.mark.parametrize(
    ("nodes", "tripped"),
    [
        pytest.param(lambda: ill(4), True, id="four of ten lost a GPU"),
        pytest.param(lambda: ill(4, "Unknown"), True, id="four of ten could not be read"),
        pytest.param(lambda: ill(4, "False"), False, id="four of ten are well"),
        pytest.param(
            lambda: ill(4, "Unknown", created=YOUNG), False, id="four new nodes were not looked at yet"
        ),
        pytest.param(lambda: ill(4, created=YOUNG), True, id="four new nodes lost a GPU"),
        pytest.param(
            lambda: ill(4, "Unknown", labels=UPGRADE), False, id="a driver upgrade blinds four of ten"
        ),
        pytest.param(lambda: ill(4, "Unknown", unschedulable=True), False, id="people took four of ten out"),
        pytest.param(
            lambda: ill(4, at=NOW - timedelta(days=3)),
            True,
            id="four of ten turned together and are ill since",
        ),
    ],
)
def test_what_counts_for_the_breaker(nodes: Callable[[], list[Node]], tripped: bool) -> None:
    """True and Unknown count; what somebody is at work on, or was never looked at, does not."""
    pool = looked([*nodes(), *make.idle_nodes(6)]).pool_on("ill-0")
    assert pool is not None
    assert bool(pool.burst.nodes) == tripped


def test_drills_do_not_trip_the_breaker() -> None:
    """Unless the policy says that they are real."""
    nodes = [*ill(4), *make.idle_nodes(6)]
    healths = [make.health(n, [make.finding(drill=True)]) for n in nodes[:4]]
    for real in (False, True):
        fleet = make.fleet(*nodes, healths=healths, policies=[make.policy(drills_are_real=real)])
        pool = survey(fleet, NOW).pool_on("ill-0")
        assert pool is not None
        assert bool(pool.burst.nodes) == real


def incident(n: int, phase: Phase, opened: datetime, **status: object) -> Remediation:
    return make.remediation(make.node(f"ill-{n}"), phase=phase, opened_at=opened, **status)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("phase", "opened", "tripped"),
    [
        pytest.param(Phase.REVALIDATING, NOW - 5 * MINUTE, True, id="open incidents of a moment ago"),
        pytest.param(Phase.ESCALATED, NOW - timedelta(days=2), True, id="open incidents that began together"),
        pytest.param(Phase.RETURNED, NOW - 5 * MINUTE, True, id="closed incidents of a moment ago"),
        pytest.param(Phase.RETURNED, NOW - 11 * MINUTE, False, id="closed incidents of before"),
    ],
)
def test_incidents_count_beside_conditions(phase: Phase, opened: datetime, tripped: bool) -> None:
    """A fast repair does not hide that the node turned ill; events of last week do not replay (NVIDIA/NVSentinel#450)."""
    nodes = [*ill(4, "False", at=NOW - timedelta(days=9)), *make.idle_nodes(6)]
    remediations = [incident(n, phase, opened, before=make.before()) for n in range(4)]
    pool = looked(nodes, remediations=remediations).pool_on("ill-0")
    assert pool is not None
    assert bool(pool.burst.nodes) == tripped


def test_what_people_cancelled_does_not_count() -> None:
    """Their word ends the burst: the fault stands, and they know it."""
    nodes = [*ill(4, at=NOW - timedelta(hours=1)), *make.idle_nodes(6)]
    cancelled = [incident(n, Phase.CANCELLED, NOW - timedelta(hours=1), closed_at=NOW) for n in range(4)]
    pool = looked(nodes, remediations=cancelled).pool_on("ill-0")
    assert pool is not None
    assert pool.burst == Burst()


def out_nodes() -> list[Node]:
    return [
        make.node("not-ready", ready=False),
        make.node("cordoned", unschedulable=True),
        make.node("upgrading", labels=UPGRADE),
        make.quarantined(make.node("ours"), "inc-ours"),
        make.quarantined(make.node("repairing", ready=False), "inc-repairing"),
    ]


def test_everything_out_of_service_counts() -> None:
    """NotReady, people's cordons, others' maintenance and our own incidents, also those in repair."""
    ours = make.remediation(make.node("ours"), phase=Phase.ESCALATED, name="inc-ours")
    repairing = make.remediation(
        make.node("repairing"),
        phase=Phase.REPAIRING,
        name="inc-repairing",
        attempts=(reboot(submitted_at=SEEN),),
    )
    pool = looked([*out_nodes(), *make.idle_nodes(5)], remediations=[ours, repairing]).pool_on("ours")
    assert pool is not None
    assert sorted(pool.out) == ["cordoned", "not-ready", "ours", "repairing", "upgrading"]
    assert sorted(pool.ours) == ["ours", "repairing"]
    assert sorted(pool.repairing) == ["repairing"]


def test_a_repair_that_outlives_its_incident_counts() -> None:
    """A person cancelled, and the machine may reboot any moment: it is out of service and a repair is in flight."""
    cancelled = make.remediation(
        make.node("gpu-1"), phase=Phase.CANCELLED, closed_at=NOW, attempts=(reboot(submitted_at=SEEN),)
    )
    pool = looked([make.node("gpu-1"), *make.idle_nodes(9)], remediations=[cancelled]).pool_on("gpu-1")
    assert pool is not None
    assert (sorted(pool.out), sorted(pool.repairing)) == (["gpu-1"], ["gpu-1"])


def a_pool(size: int, *, out: int = 0, policy: RemediationPolicy | None = None) -> Pool:
    pool = Pool(("gpus", "default"), read(policy or make.policy(), SETTINGS))
    for number in range(size):
        pool.enter(f"n-{number:03}", out_of_service=number < out, incidents=(), now=NOW)
    return pool


@pytest.mark.parametrize(
    ("size", "out", "takes_node", "held_by"),
    [
        pytest.param(100, 9, False, "", id="the tenth of a hundred"),
        pytest.param(100, 10, False, "budget", id="the eleventh of a hundred"),
        pytest.param(100, 10, True, "", id="the eleventh, with a lost GPU"),
        pytest.param(100, 29, True, "", id="the thirtieth, with a lost GPU"),
        pytest.param(100, 30, True, "budget", id="the thirty-first, with a lost GPU"),
        pytest.param(8, 0, False, "", id="the first of eight"),
        pytest.param(8, 1, False, "budget", id="the second of eight"),
        pytest.param(8, 1, True, "", id="the second of eight, with a lost GPU"),
        pytest.param(8, 2, True, "budget", id="the third of eight, with a lost GPU"),
    ],
)
def test_the_budget_of_quarantines(size: int, out: int, takes_node: bool, held_by: str) -> None:
    """Ten per cent, rounded down, at least one; lost GPUs up to thirty."""
    pool = a_pool(size, out=out)
    hold = pool.why_not_quarantine(f"n-{size - 1:03}", takes_node=takes_node)
    assert (hold.by if hold is not None else "") == held_by


@pytest.mark.parametrize(
    ("takes_node", "out", "held_by"),
    [
        pytest.param(False, 0, "breaker", id="a burst takes no node out"),
        pytest.param(True, 0, "", id="but one with a lost GPU"),
        pytest.param(True, 2, "", id="the third of ten"),
        pytest.param(True, 3, "breaker", id="the fourth of ten"),
    ],
)
def test_a_burst_contains_lost_gpus_alone(takes_node: bool, out: int, held_by: str) -> None:
    """While the observer is suspected only what certainly kills work is contained, up to the second limit."""
    pool = a_pool(10, out=out)
    pool.burst = Burst(nodes=frozenset({"n-009"}), since=NOW)
    hold = pool.why_not_quarantine("n-009", takes_node=takes_node)
    assert (hold.by if hold is not None else "") == held_by
    work = pool.why_not_work("n-009", None)
    assert work is not None
    assert work.by == "breaker"


def test_what_one_node_takes_is_gone_for_the_next() -> None:
    """Two nodes of one plan never share the last place."""
    pool = a_pool(10)
    assert pool.why_not_quarantine("n-000", takes_node=False) is None
    pool.take_out("n-000")
    assert pool.why_not_quarantine("n-001", takes_node=False) is not None
    assert pool.why_not_work("n-000", None) is None
    pool.take_place("n-000", Place(since=NOW, incident="inc-0"))
    assert pool.why_not_work("n-001", None) is not None
    assert pool.why_not_repair("n-000", None) is None
    pool.take_repair("n-000", Place(since=NOW, incident="inc-0"))
    assert pool.why_not_repair("n-001", None) is not None


def place(minute: int) -> Place:
    return Place(since=NOW + minute * MINUTE, incident=f"inc-{minute}")


def test_places_are_given_in_turn_so_that_a_full_pool_heals() -> None:
    """Twelve lost GPUs, a budget of ten, one node that a person took out: the first nine are worked on."""
    pool = a_pool(100, out=1)
    for number in range(1, 13):
        pool.take_out(f"n-{number:03}")
        pool.take_place(f"n-{number:03}", place(number))
    may = [pool.why_not_work(f"n-{number:03}", place(number)) is None for number in range(1, 13)]
    assert may == [True] * 9 + [False] * 3


def test_the_earlier_of_two_repairs_goes_on_where_the_limit_was_lowered() -> None:
    """Both are written down; one may be submitted."""
    pool = a_pool(100, policy=make.policy(budget=BudgetPolicy(max_repairs_in_flight=1)))
    pool.take_repair("n-000", place(0))
    pool.take_repair("n-001", place(1))
    assert pool.why_not_repair("n-000", place(0)) is None
    assert pool.why_not_repair("n-001", place(1)) is not None


@given(
    st.integers(1, 40), st.lists(st.tuples(st.integers(0, 39), st.sampled_from(["out", "work"])), max_size=80)
)
def test_the_books_agree_with_a_plain_count(size: int, history: list[tuple[int, str]]) -> None:
    """However places are taken, the answer is what counting everything says."""
    pool = a_pool(size, out=size // 5)
    most = pool.terms.max_unavailable.of(size)
    for minute, (number, what) in enumerate(history):
        node = f"n-{number % size:03}"
        if what == "out":
            pool.take_out(node)
        elif node not in pool.places:
            free = len((pool.out - pool.ours | pool.places.keys()) - {node}) < most
            assert (pool.why_not_work(node, None) is None) == free
            if free:
                pool.take_out(node)
                pool.take_place(node, place(minute))
