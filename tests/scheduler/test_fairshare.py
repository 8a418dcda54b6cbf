"""Fair shares: KAI's division where it is asked for, ours where KAI's takes from those who come first."""

from collections.abc import Sequence
from time import process_time
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scheduler.amounts import UNLIMITED, WHOLE_GPU
from controller.scheduler.fairshare import Claimant, divide, divide_one
from controller.scheduler.model import Queue, Quota, Settings
from controller.scheduler.queues import build, request
from controller.scheduler.rules import COMPATIBLE, DEFAULT, Rules
from controller.scheduler.state import QueueState

ONE_SECOND_FOR_A_LOADED_MACHINE = 1.0


class Ask(NamedTuple):
    """One queue in whole GPUs or parts of one; `usage` is its share of the past."""

    request: float
    deserved: float = 0
    weight: float = 1
    priority: int = 0
    limit: float = UNLIMITED
    usage: float = 0


def claimants(asks: Sequence[Ask], scale: int = WHOLE_GPU) -> list[Claimant]:
    return [
        Claimant(
            f"q{at}",
            request=round(ask.request * scale),
            deserved=UNLIMITED if ask.deserved == UNLIMITED else round(ask.deserved * scale),
            limit=UNLIMITED if ask.limit == UNLIMITED else round(ask.limit * scale),
            weight=round(ask.weight * 1000),
            priority=ask.priority,
            created=at,
            usage=round(ask.usage * 1_000_000),
        )
        for at, ask in enumerate(asks)
    ]


def shares(total: float, asks: Sequence[Ask], rules: Rules = DEFAULT, k: float = 0) -> list[float]:
    """Divide whole GPUs; give the shares in whole GPUs."""
    parts = claimants(asks)
    divide_one(parts, round(total * WHOLE_GPU), whole=WHOLE_GPU, k_milli=round(k * 1000), rules=rules)
    return [part.share / WHOLE_GPU for part in parts]


@pytest.mark.parametrize("rules", [pytest.param(COMPATIBLE, id="KAI's"), pytest.param(DEFAULT, id="ours")])
@pytest.mark.parametrize(
    ("total", "asks", "wanted"),
    [
        pytest.param(8, [Ask(5, 2), Ask(5, 2)], [4, 4], id="quota first, then surplus by weight"),
        pytest.param(8, [Ask(1, 4), Ask(9, 0)], [1, 7], id="what a queue does not ask for goes on"),
        pytest.param(9, [Ask(9, 0, 2), Ask(9, 0, 1)], [6, 3], id="weights"),
        pytest.param(
            9, [Ask(9, 0, 1, 0), Ask(9, 0, 1, 5)], [0, 9], id="the higher priority takes the surplus"
        ),
        pytest.param(9, [Ask(9, 3, 1, 0), Ask(9, 0, 1, 5)], [3, 6], id="no priority takes somebody's quota"),
        pytest.param(9, [Ask(9, 2, 0), Ask(9, 0, 1)], [2, 7], id="without a weight no surplus"),
        pytest.param(9, [Ask(9, 0, 1, 0, 2), Ask(9)], [2, 7], id="nobody beyond the limit"),
        pytest.param(9, [Ask(9, 4, 1, 0, 2), Ask(9)], [2, 7], id="nor with quota beyond it"),
        pytest.param(9, [Ask(9, 4, 1, 0, 0), Ask(9)], [0, 9], id="limit 0 lets nothing run"),
        pytest.param(8, [Ask(9, UNLIMITED), Ask(9, 0)], [8, 0], id="a quota without bound is all"),
        pytest.param(8, [Ask(3), Ask(3), Ask(3)], [3, 3, 2], id="the older queue gets the odd GPU"),
        pytest.param(5, [Ask(9, 0, 1), Ask(9, 0, 3)], [1, 4], id="the larger remainder gets it first"),
        pytest.param(2.5, [Ask(4), Ask(0.5, priority=-1)], [2, 0.5], id="a part for who can use it"),
        pytest.param(0, [Ask(9), Ask(9)], [0, 0], id="nothing of nothing"),
    ],
)
def test_shares_on_which_both_agree(total: float, asks: list[Ask], wanted: list[float], rules: Rules) -> None:
    """The division as KAI's documents tell it."""
    assert shares(total, asks, rules) == wanted


@pytest.mark.parametrize(
    ("total", "asks", "kai", "ours"),
    [
        pytest.param(
            8,
            [Ask(5, priority=2), Ask(5, priority=2), Ask(5, priority=2), Ask(5, priority=1)],
            [2, 2, 2, 2],
            [3, 3, 2, 0],
            id="nothing of the surplus for a lower priority while a higher one wants it",
        ),
        pytest.param(
            1, [Ask(1, priority=2), Ask(1, priority=2), Ask(1)], [0, 0, 1], [1, 0, 0], id="not even one GPU"
        ),
        pytest.param(6, [Ask(8, 8), Ask(4, 4)], [8, 4], [4, 2], id="a shortage is shared by quota"),
        pytest.param(5, [Ask(8, 8), Ask(4, 4)], [8, 4], [3, 2], id="in whole GPUs"),
        pytest.param(6, [Ask(2, 8), Ask(9, 4)], [2, 4], [2, 4], id="no shortage of what is not wanted"),
        pytest.param(6, [Ask(3, 8), Ask(9, 4)], [3, 4], [3, 3], id="who wants less than its part gets that"),
        pytest.param(
            8,
            [Ask(9, UNLIMITED), Ask(9, UNLIMITED)],
            [8, 8],
            [4, 4],
            id="two quotas without bound share alike",
        ),
        pytest.param(1, [Ask(0.7), Ask(0.6)], [1, 0], [0.6, 0.4], id="parts of a GPU for who asks for parts"),
        pytest.param(
            1, [Ask(0.5), Ask(0.5), Ask(0.5)], [1, 0, 0], [0.5, 0.5, 0], id="in parts that it can use"
        ),
        pytest.param(3, [Ask(2.5), Ask(2.5)], [2, 1], [1.5, 1.5], id="halves for who asks for halves"),
    ],
)
def test_shares_on_which_we_differ(
    total: float, asks: list[Ask], kai: list[float], ours: list[float]
) -> None:
    """Each for the reason that its rule gives."""
    assert shares(total, asks, COMPATIBLE) == kai
    assert shares(total, asks) == ours


def test_past_use_lowers_the_surplus() -> None:
    """Weights 1/2 each; k = 1; the first used half of the cluster, so it pulls with 1/2 + (1/2 - 1/2) against 1."""
    asks = [Ask(9, usage=0.5), Ask(9)]
    assert shares(9, asks, k=1) == shares(9, asks, COMPATIBLE, k=1) == [3, 6]
    assert shares(9, asks, k=0) == [5, 4]


def test_more_capacity_may_take_a_unit_from_a_queue() -> None:
    """What largest remainders do (the Alabama paradox), told in the module so that nobody relies on the contrary."""
    asks = [Ask(99, 0, 6), Ask(99, 0, 6), Ask(99, 0, 2)]
    assert shares(10, asks) == [4, 4, 2]
    assert shares(11, asks) == [5, 5, 1]


amounts = st.integers(0, 40).map(lambda quarters: quarters / 4)
asked = st.builds(
    Ask,
    request=amounts,
    deserved=amounts | st.just(float(UNLIMITED)),
    weight=st.integers(0, 3),
    priority=st.integers(0, 2),
    limit=amounts | st.just(float(UNLIMITED)),
    usage=st.sampled_from((0.0, 0.1, 0.6)),
)


@given(st.lists(asked, max_size=7), st.integers(0, 60), st.sampled_from((0.0, 1.0, 4.0)))
def test_no_share_is_above_limit_or_request_and_all_together_not_above_the_total(
    asks: list[Ask], quarters: int, k: float
) -> None:
    """And in our mode nothing is left that a queue with a weight could use whole."""
    total = quarters / 4
    given_out = shares(total, asks, k=k)
    assert sum(given_out) <= total
    for share, ask in zip(given_out, asks, strict=True):
        assert 0 <= share <= ask.request
        assert ask.limit == UNLIMITED or share <= ask.limit
    left = total - sum(given_out)
    if k == 0 and left >= 1:
        open_to = [
            a for a, share in zip(asks, given_out, strict=True) if a.limit == UNLIMITED and share < a.request
        ]
        assert all(ask.weight == 0 for ask in open_to)


@given(st.lists(asked, max_size=7), st.integers(0, 60), st.randoms(use_true_random=False), st.booleans())
def test_shares_do_not_depend_on_the_order_of_queues(
    asks: list[Ask], total: int, random: object, kai: bool
) -> None:
    """Age and name decide where nothing else does."""
    rules = COMPATIBLE if kai else DEFAULT
    parts, others = claimants(asks), claimants(asks)
    random.shuffle(others)  # type: ignore[attr-defined]
    left = divide_one(parts, total * 250, whole=WHOLE_GPU, k_milli=1000, rules=rules)
    assert left == divide_one(others, total * 250, whole=WHOLE_GPU, k_milli=1000, rules=rules)
    assert {one.name: one.share for one in parts} == {one.name: one.share for one in others}


@given(st.lists(asked, min_size=1, max_size=7), st.integers(0, 60))
def test_without_fractions_shares_are_whole_gpus(asks: list[Ask], total: int) -> None:
    """Where quotas, limits and the total are whole, too."""
    whole = [
        ask._replace(request=int(ask.request), deserved=int(ask.deserved), limit=int(ask.limit))
        for ask in asks
    ]
    assert all(share == int(share) for share in shares(total, whole))


def tree(specs: Sequence[Queue], asks: dict[str, int]) -> dict[str, QueueState]:
    states, _ = build(specs)
    for name, gpus in asks.items():
        request(states[name], (gpus * WHOLE_GPU, 0, 0), 1)
    return states


def quota(deserved: int, limit: int = UNLIMITED) -> tuple[Quota, Quota, Quota]:
    gpu = Quota(deserved=deserved * WHOLE_GPU, limit=limit, weight=1000)
    return (gpu, Quota(), Quota())


def test_a_shortage_is_shared_at_every_level() -> None:
    """Six of twelve GPUs are left: the departments get 4 and 2, and the first's queues 3 and 1 of their 6 and 2."""
    states = tree(
        [
            Queue(name="a", quotas=quota(8)),
            Queue(name="a1", parent="a", quotas=quota(6)),
            Queue(name="a2", parent="a", created=1, quotas=quota(2)),
            Queue(name="b", created=1, quotas=quota(4)),
        ],
        {"a1": 6, "a2": 2, "b": 4},
    )
    divide(states, (6000, 0, 0), Settings(), DEFAULT)
    assert {name: state.fair_share[0] for name, state in states.items()} == {
        "a": 4000,
        "b": 2000,
        "a1": 3000,
        "a2": 1000,
    }
    assert {name: state.quota[0] for name, state in states.items()} == {
        "a": 4000,
        "b": 2000,
        "a1": 3000,
        "a2": 1000,
    }
    divide(states, (12_000, 0, 0), Settings(), DEFAULT)
    assert states["a1"].quota == states["a1"].deserved


def test_children_divide_their_parents_share_and_not_its_quota() -> None:
    """So that a department's surplus reaches its queues."""
    states = tree(
        [
            Queue(name="a", quotas=quota(2)),
            Queue(name="a1", parent="a", quotas=quota(1)),
            Queue(name="a2", parent="a", created=1, quotas=quota(1)),
            Queue(name="b", created=1, quotas=quota(2)),
        ],
        {"a1": 9, "a2": 2, "b": 3},
    )
    divide(states, (10_000, 0, 0), Settings(), DEFAULT)
    assert [states[name].fair_share[0] for name in ("a", "b", "a1", "a2")] == [7000, 3000, 5000, 2000]


def test_two_thousand_queues_are_divided_at_once() -> None:
    """50 departments of 40 queues in three resources; the bound is that of a machine with much else to do."""
    some = tuple(Quota(deserved=3 * unit, limit=UNLIMITED, weight=1000) for unit in (1000, 1000, 1 << 30))
    specs = [Queue(name=f"d{at:02}", created=at, quotas=(some[0], some[1], some[2])) for at in range(50)]
    specs += [
        Queue(name=f"q{at:04}", parent=f"d{at % 50:02}", created=at, priority=at % 3, quotas=specs[0].quotas)
        for at in range(2000)
    ]
    states, _ = build(specs)
    for at in range(2000):
        request(states[f"q{at:04}"], (at % 17 * 500, at % 23 * 700, at % 29 << 28), 1)
    before = process_time()
    divide(states, (5_000_000, 8_000_000, 5 << 40), Settings(), DEFAULT)
    assert process_time() - before < ONE_SECOND_FOR_A_LOADED_MACHINE
    assert sum(states[f"d{at:02}"].fair_share[0] for at in range(50)) == 5_000_000
