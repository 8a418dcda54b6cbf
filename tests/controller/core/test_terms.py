"""Policies are read whole or not at all, and every problem is named."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.terms import choose, parse_duration, parse_limit, read
from controller.view import Settings
from kube.policy import (
    BREAKER_ACKNOWLEDGED,
    BreakerPolicy,
    BudgetPolicy,
    DrainPolicy,
    Mode,
    RemediationPolicy,
    RevalidationPolicy,
    Rule,
    Rung,
)
from tests import build as make
from tests.build import SETTINGS


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        pytest.param("0s", 0, id="nothing"),
        pytest.param("90s", 90, id="seconds"),
        pytest.param("1h30m", 5400, id="hours and minutes"),
        pytest.param("500ms", 0.5, id="milliseconds"),
        pytest.param("24h", 86400, id="a day"),
    ],
)
def test_durations_are_read_as_go_writes_them(text: str, seconds: float) -> None:
    """A duration is numbers with units."""
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("10", id="no unit"),
        pytest.param("-5s", id="negative"),
        pytest.param("1d", id="days are no Go unit"),
        pytest.param("5 m", id="a blank inside"),
        pytest.param("99999h", id="longer than a year"),
        pytest.param("9" * 40 + "s", id="absurdly many digits"),
    ],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    """Anything else is refused with what would be right."""
    with pytest.raises(ValueError, match=r"is no duration|is longer than a year"):
        parse_duration(text)


@given(st.integers(0, 31_622_400))
def test_every_number_of_seconds_is_read(seconds: int) -> None:
    """Reading never loses a second."""
    assert parse_duration(f"{seconds}s").total_seconds() == seconds


@pytest.mark.parametrize(
    ("text", "nodes", "limit"),
    [
        pytest.param("10%", 100, 10, id="ten per cent"),
        pytest.param("10%", 99, 9, id="rounded down"),
        pytest.param("10%", 3, 1, id="at least one"),
        pytest.param("10%", 0, 1, id="at least one even of none"),
        pytest.param("3", 2, 3, id="a number of nodes"),
        pytest.param("100%", 8, 8, id="all"),
    ],
)
def test_limits_round_down_and_are_at_least_one(text: str, nodes: int, limit: int) -> None:
    """A percentage is of the pool, rounded down, at least 1."""
    assert parse_limit(text).of(nodes) == limit


@pytest.mark.parametrize("text", ["", "ten", "101%", "-1", "10.5%", "1e3", "10 %"])
def test_what_is_no_limit_is_refused(text: str) -> None:
    """Fractions, signs and more than everything are refused; tests/manifests holds the CRD to the same."""
    with pytest.raises(ValueError, match="is no limit"):
        parse_limit(text)


@pytest.mark.parametrize(
    ("bad", "problems"),
    [
        pytest.param(
            make.policy(default_wait="soon"),
            ["spec.defaultWait: 'soon' is no duration; write it like 30s, 5m or 1h30m"],
            id="a wait that is no duration",
        ),
        pytest.param(
            make.policy(drain=DrainPolicy(deadline="0s", empty_dir_data="keep")),
            [
                "spec.drain.deadline: '0s' leaves no time; give more than 0s",
                "spec.drain.emptyDirData: 'keep' is neither evict nor block",
            ],
            id="a drain without time, and a word that is no choice",
        ),
        pytest.param(
            make.policy(budget=BudgetPolicy(max_unavailable="lots", max_repairs_in_flight=-1)),
            [
                "spec.budget.maxUnavailable: 'lots' is no limit; write 1% to 100%, or a number of nodes from 1 to 99999",
                "spec.budget.maxRepairsInFlight: -1 is not within 0 and 1000",
            ],
            id="a budget in words, and a negative number",
        ),
        pytest.param(
            make.policy(ladder=(Rung(repair="replace", timeout="1x", attempts=0),)),
            [
                "spec.ladder[0].repair: 'replace' is no repair; known are reboot, reset-gpu",
                "spec.ladder[0].timeout: '1x' is no duration; write it like 30s, 5m or 1h30m",
                "spec.ladder[0].attempts: 0 is not within 1 and 10",
            ],
            id="a repair that does not exist, without time or attempts",
        ),
        pytest.param(
            make.policy(rules=(Rule(reasons=("X",), wait="later", ladder=(Rung(repair="pray"),)),)),
            [
                "spec.rules[0].ladder[0].repair: 'pray' is no repair; known are reboot, reset-gpu",
                "spec.rules[0].wait: 'later' is no duration; write it like 30s, 5m or 1h30m",
            ],
            id="a rule whose wait and ladder cannot be read",
        ),
        pytest.param(
            make.policy(ladder=tuple(Rung(repair="reboot", attempts=7) for _ in range(3))),
            ["spec.ladder: more than 20 attempts in all; give fewer rungs or attempts"],
            id="a ladder without end",
        ),
        pytest.param(
            make.policy(revalidation=RevalidationPolicy(attempts=0), breaker=BreakerPolicy(min_nodes=0)),
            [
                "spec.revalidation.attempts: 0 is not within 1 and 10",
                "spec.breaker.minNodes: 0 is not within 1 and 1000000",
            ],
            id="no revalidation, and a breaker that trips on nothing",
        ),
    ],
)
def test_every_problem_of_a_policy_is_named(bad: RemediationPolicy, problems: Sequence[str]) -> None:
    """All problems are said at once, each with field, value and what would be right."""
    assert sorted(read(bad, SETTINGS).problems) == sorted(problems)


def test_the_default_policy_has_no_problem() -> None:
    """What the CRD fills in can be read."""
    terms = read(make.policy(), SETTINGS)
    assert (terms.problems, terms.warnings) == ((), ())


def test_an_unknown_sink_warns_and_stops_nothing() -> None:
    """A page that cannot be sent is a problem of its own, not a reason to leave a sick node in service."""
    terms = read(make.policy(sinks=("pager", "chat")), SETTINGS)
    assert terms.problems == ()
    assert terms.warnings == (
        "spec.sinks: 'chat' is not in the controller's configuration; configured are pager",
    )


def test_dry_run_reads_every_policy_as_observe() -> None:
    """Under dry_run nothing is permitted."""
    settings = Settings(dry_run=True, sinks=SETTINGS.sinks)
    assert read(make.policy(mode=Mode.ENFORCE), settings).mode is Mode.OBSERVE


@pytest.mark.parametrize(
    ("text", "read_as"),
    [
        pytest.param("2026-03-01T12:00:00Z", datetime(2026, 3, 1, 12, tzinfo=UTC), id="a time with its zone"),
        pytest.param("2026-03-01T12:00:00", None, id="a time without a zone is ignored"),
        pytest.param("yes", None, id="a word is ignored"),
    ],
)
def test_an_acknowledged_breaker_is_a_time(text: str, read_as: datetime | None) -> None:
    """A word that is no time is ignored, and that is shown."""
    terms = read(make.policy(annotations={BREAKER_ACKNOWLEDGED: text}), SETTINGS)
    assert terms.breaker_acknowledged == read_as
    assert bool(terms.warnings) == (read_as is None)


@pytest.mark.parametrize(
    ("policies", "chosen", "why"),
    [
        pytest.param([], None, "no policy selects this node", id="no policy"),
        pytest.param([make.policy("a")], "a", "", id="one policy"),
        pytest.param(
            [make.policy("a", node_selector={"pool": "blue"})],
            None,
            "no policy selects this node",
            id="another pool's",
        ),
        pytest.param(
            [make.policy("a"), make.policy("b", priority=5)], "b", "", id="the higher priority counts"
        ),
        pytest.param(
            [make.policy("b"), make.policy("a")],
            None,
            "policies a and b both select this node with priority 0: it is left alone",
            id="two of the same priority",
        ),
        pytest.param(
            [make.policy("a", default_wait="x"), make.policy("b", priority=-1)],
            None,
            "policy a is invalid (spec.defaultWait: 'x' is no duration; write it like 30s, 5m or 1h30m): "
            "its nodes are left alone",
            id="an invalid policy does not hand its nodes to another",
        ),
    ],
)
def test_one_policy_is_in_force_or_none(
    policies: list[RemediationPolicy], chosen: str | None, why: str
) -> None:
    """A node has one policy, or is left alone for a reason that is said."""
    found, said = choose(make.node(), [read(policy, SETTINGS) for policy in policies])
    assert (None if found is None else found.name, said) == (chosen, why)


def test_the_first_rule_that_names_a_finding_counts() -> None:
    """Rules are asked in order, by reason or by condition; the policy's own values fill the gaps."""
    terms = read(
        make.policy(
            default_wait="1m",
            rules=(
                Rule(reasons=("Xid79FallenOffBus",), wait="5s"),
                Rule(conditions=("GpuXidError",), wait="9s", ladder=(Rung(repair="reboot", attempts=3),)),
            ),
        ),
        SETTINGS,
    )
    lost, other, foreign = make.finding(), make.finding("Xid48"), make.finding("PortDown", condition="IbPort")
    assert [terms.wait_for(f).total_seconds() for f in (lost, other, foreign)] == [5, 9, 60]
    assert [terms.ladder_for(f)[0].attempts for f in (lost, other, foreign)] == [1, 3, 1]


def test_a_rule_for_another_ladder_keeps_the_policys_wait() -> None:
    """Else a rule that only names another ladder would have nodes cordoned at once."""
    ladder = (Rung(repair="reboot", attempts=3),)
    rules = (Rule(reasons=("Xid79FallenOffBus",), ladder=ladder), Rule(reasons=("Xid48",), wait="0s"))
    terms = read(make.policy(default_wait="10m", rules=rules), SETTINGS)
    waits = [terms.wait_for(f).total_seconds() for f in (make.finding(), make.finding("Xid48"))]
    assert waits == [600, 0]


def test_pools_are_told_apart_by_a_label() -> None:
    """Without a label there is one pool; a node that lacks the label is in a pool of its own."""
    labelled = read(make.policy(pool_label="pool"), SETTINGS)
    assert read(make.policy(), SETTINGS).pool_of(make.node()) == "default"
    assert labelled.pool_of(make.node(labels={"pool": "blue"})) == "blue"
    assert labelled.pool_of(make.node()) == "unlabelled"
