"""The rules of the election, first as a table, then as a world of candidates to whom everything happens."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube.lease import (
    SAFETY_S,
    Create,
    Decision,
    Follow,
    LeaseView,
    Lost,
    Observed,
    Renew,
    Take,
    Timing,
    budget,
    observe,
    step,
)

TIMING = Timing()
START = datetime(2026, 1, 1, tzinfo=UTC)


def held(holder: str, *, duration_s: int = 15, transitions: int = 4, version: int = 1) -> LeaseView:
    return LeaseView(
        holder=holder,
        duration_s=duration_s,
        transitions=transitions,
        resource_version=str(version),
        renewed=START + timedelta(seconds=version),
    )


@pytest.mark.parametrize(
    ("record", "since", "now", "renewed_at", "expected"),
    [
        pytest.param(None, 0.0, 0.0, None, Create(), id="a lease that never was is created"),
        pytest.param(held("other"), 0.0, 1.0, None, Follow("other", 2.0), id="another's fresh claim is followed"),
        pytest.param(held("other"), 0.0, 14.5, None, Follow("other", 0.5), id="and looked at again when it runs out"),
        pytest.param(held("other"), 0.0, 15.0, None, Take(5), id="unchanged for its whole duration it is taken"),
        pytest.param(held("other", duration_s=60), 0.0, 59.0, None, Follow("other", 1.0), id="its own duration counts"),
        pytest.param(held("other", duration_s=0), 0.0, 14.9, None, Follow("other", 0.1), id="without one ours counts"),
        pytest.param(held(""), 0.0, 0.0, None, Take(5), id="a released lease is taken at once"),
        pytest.param(held("me"), 0.0, 0.0, None, Take(4), id="our own name after a lost answer is no change of hands"),
        pytest.param(held("me"), 0.0, 9.9, 0.0, Renew(), id="before the deadline it is renewed"),
        pytest.param(None, 0.0, 3.0, 0.0, Create(), id="deleted under us it is created again before the deadline"),
        pytest.param(
            held("me"), 0.0, 10.0, 0.0, Lost("not renewed for 10.0 s, the deadline is 10 s"),
            id="at the deadline it is lost though nobody took it",
        ),
        pytest.param(None, 9.0, 10.0, 0.0, Lost("not renewed for 10.0 s, the deadline is 10 s"), id="deleted and too late"),
        pytest.param(held("other"), 0.0, 1.0, 0.0, Lost("other holds the lease now"), id="taken by force it is lost"),
        pytest.param(held(""), 0.0, 1.0, 0.0, Lost("nobody holds the lease now"), id="emptied by force it is lost"),
    ],
)  # fmt: skip
def test_step(
    record: LeaseView | None, since: float, now: float, renewed_at: float | None, expected: Decision
) -> None:
    """Each situation has one decision."""
    got = step(Observed(record=record, since=since), "me", now, TIMING, renewed_at)
    if isinstance(got, Follow):
        got = Follow(got.holder, round(got.seconds, 6))
    assert got == expected


def test_a_record_ages_from_when_it_last_changed() -> None:
    """Reading the same claim again does not make it younger; a new one does; a label on the Lease does not."""
    first = observe(None, held("other", version=1), 100.0)
    same = observe(first, held("other", version=1), 105.0)
    labelled = observe(same, msgspec.structs.replace(held("other", version=1), resource_version="9"), 106.0)
    renewed = observe(labelled, held("other", version=2), 107.0)
    assert [
        (o.since, o.record.resource_version if o.record else "") for o in (first, same, labelled, renewed)
    ] == [
        (100.0, "1"),
        (100.0, "1"),
        (100.0, "9"),
        (107.0, "2"),
    ]


@pytest.mark.parametrize(
    ("renewed_at", "now", "expected"),
    [
        pytest.param(None, 0.0, 0.0, id="who does not lead may not write"),
        pytest.param(0.0, 0.0, 9.0, id="just renewed: until the deadline less the margin"),
        pytest.param(0.0, 8.75, 0.25, id="it shrinks"),
        pytest.param(0.0, 3600.0, 0.0, id="and is never negative"),
    ],
)
def test_budget(renewed_at: float | None, now: float, expected: float) -> None:
    """What is left for a write."""
    assert budget(renewed_at, now, TIMING) == expected


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"renew_deadline": 15.0}, id="the deadline must come before the lease ends"),
        pytest.param({"retry_period": 9.5}, id="one retry must fit before the deadline"),
        pytest.param({"retry_period": 8.5}, id="and before that retry there must be time for a write"),
        pytest.param({"retry_period": 0.0}, id="never without a pause"),
    ],
)
def test_a_timing_that_cannot_be_safe_is_refused(wrong: dict[str, float]) -> None:
    """The message names all three values and the rule."""
    with pytest.raises(ValueError, match="each must be less than the next"):
        msgspec.structs.replace(TIMING, **wrong)


class Candidate:
    """One process: its clock starts anywhere, it may be stopped between deciding and writing."""

    def __init__(self, name: str, offset: float) -> None:
        self.name = name
        self.offset = offset
        self.seen: Observed | None = None
        self.renewed_at: float | None = None
        self.dead = False
        self.pending: tuple[float, LeaseView, str] | None = (
            None  # sent at, new record, version it was decided on
        )


class World:
    """A server with one Lease, and candidates around it."""

    def __init__(self, offsets: list[float]) -> None:
        self.now = 0.0
        self.version = 0
        self.record: LeaseView | None = None
        self.candidates = [Candidate(f"c{i}", offset) for i, offset in enumerate(offsets)]

    def decide(self, who: Candidate, *, look: bool) -> None:
        clock = self.now + who.offset
        if look or who.seen is None or who.renewed_at is None:
            who.seen = observe(who.seen, self.record, clock)
        decision = step(who.seen, who.name, clock, TIMING, who.renewed_at)
        old = who.seen.record
        transitions = old.transitions if old is not None else 0
        match decision:
            case Lost():
                who.dead = True
            case Create() | Renew():
                who.pending = (clock, self.claim(who, transitions), old.resource_version if old else "")
            case Take(changed):
                who.pending = (clock, self.claim(who, changed), old.resource_version if old else "")
            case Follow():
                pass

    def claim(self, who: Candidate, transitions: int) -> LeaseView:
        at = START + timedelta(seconds=self.now)
        return LeaseView(
            holder=who.name, duration_s=15, transitions=transitions, resource_version="", renewed=at
        )

    def send(self, who: Candidate, *, answered: bool) -> None:
        if who.pending is None:
            return
        sent_at, record, version = who.pending
        who.pending = None
        current = self.record.resource_version if self.record is not None else ""
        if version != current:  # Conflict, AlreadyExists or NotFound
            who.seen = observe(who.seen, self.record, self.now + who.offset)
            return
        self.version += 1
        self.record = msgspec.structs.replace(record, resource_version=str(self.version))
        if answered:
            who.seen = observe(who.seen, self.record, self.now + who.offset)
            who.renewed_at = sent_at

    def may_write(self) -> list[str]:
        return [
            c.name
            for c in self.candidates
            if not c.dead and budget(c.renewed_at, self.now + c.offset, TIMING) > 0.0
        ]


WAITS = st.sampled_from([0.5, 2.0, 4.5, 8.0, 8.5, 9.0, 10.0, 14.5, 15.0])
WHO = st.integers(0, 1).map(float)
MOSTLY = st.sampled_from([True, True, True, False])
ATTEMPT = st.tuples(st.just("attempt"), WHO, MOSTLY)
ACTIONS = st.one_of(
    ATTEMPT,
    ATTEMPT,
    st.tuples(st.just("wait"), WAITS, st.just(False)),
    st.tuples(st.sampled_from(["decide", "send"]), WHO, MOSTLY),
)


@settings(max_examples=500)
@given(
    offsets=st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=2),
    actions=st.lists(ACTIONS, min_size=4, max_size=40),
)
def test_never_two_may_write(offsets: list[float], actions: list[tuple[str, float, bool]]) -> None:
    """Whatever is delayed, lost, or stopped between two instructions, at most one process may begin a write.

    And the last moment of a write that it may begin lies before anybody else can begin one.
    """
    world = World(offsets)
    last_end, last_writer = 0.0, ""
    for kind, value, flag in actions:
        if kind == "wait":
            world.now += value
            continue
        who = world.candidates[int(value)]
        if who.dead:
            continue
        if kind in ("decide", "attempt"):
            world.decide(who, look=flag or kind == "attempt")
        if kind in ("send", "attempt"):
            world.send(who, answered=flag)
        writers = world.may_write()
        assert len(writers) <= 1
        for writer in writers:
            assert writer == last_writer or world.now >= last_end
            candidate = next(c for c in world.candidates if c.name == writer)
            end = world.now + budget(candidate.renewed_at, world.now + candidate.offset, TIMING) + SAFETY_S
            last_end, last_writer = end, writer
