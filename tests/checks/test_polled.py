"""The fold of looks: when words become findings, when findings end, and what nobody can say."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks.check import Clearing, Context, Judgement
from checks.finding import Action, Effect, Part, PartKind, Urgency
from checks.polled import MAX_SLOTS, Polled, PolledMemory, Rule, Said, Word, restored
from checks.reason_rows import fault, warning

NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
DOWN = fault(
    "ThingDown", Effect.NO_MULTI_NODE, Urgency.PERSON, Action.CONTACT_SUPPORT, "It is down.", "Look."
)
ODD = warning("ThingOdd", "It is odd.", "Look.")
UNREAD = warning("ThingUnreadable", "It cannot be read.", "Look.")
REASONS = (DOWN, ODD)
PORT = Part(kind=PartKind.PORT, name="mlx5_0/1")
OTHER = Part(kind=PartKind.PORT, name="mlx5_1/1")


class Watch:
    """Looks one after another, `step_s` apart, over one memory."""

    def __init__(self, rule: Rule | None = None, step_s: int = 30) -> None:
        self.rule = rule or Rule()
        self.step_s = step_s
        self.now = NOON
        self.memory: PolledMemory | None = None
        self.boot_id = "boot-1"
        self.cleared_before: datetime | None = None
        self.clearings: tuple[Clearing, ...] = ()
        self.last = Judgement()

    def _polled(self) -> Polled:
        self.now += timedelta(seconds=self.step_s)
        context = Context(
            boot_id=self.boot_id,
            now=self.now,
            watched_ms=self.step_s * 1000,
            cleared_before=self.cleared_before,
            clearings=self.clearings,
        )
        return Polled("thing", REASONS, {DOWN.name: self.rule}, self.memory, context)

    def _end(self, polled: Polled) -> Judgement:
        self.memory = polled.memory()
        self.last = polled.judgement(UNREAD, self.memory)
        return self.last

    def look(self, *words: Word) -> Judgement:
        polled = self._polled()
        polled.hear(words)
        return self._end(polled)

    def fail(self, why: str = "EIO") -> Judgement:
        polled = self._polled()
        polled.fail(why)
        return self._end(polled)

    def pass_by(self) -> Judgement:
        return self._end(self._polled())

    def looks(self, said: Sequence[Said]) -> list[bool]:
        """Give after each look whether the finding stands."""
        return [bool(self.look(word(one)).findings) for one in said]


def word(said: Said, part: Part = PORT, detail: str = "it is down") -> Word:
    return Word(said=said, reason=DOWN, part=part, detail=detail)


BAD, GOOD, UNREADABLE, NOT_SHOWN = Said.BAD, Said.GOOD, Said.UNREADABLE, Said.NOT_SHOWN


@pytest.mark.parametrize(
    ("rule", "said", "stands"),
    [
        pytest.param(Rule(), [BAD], [True], id="without a wait the first bad word is enough"),
        pytest.param(
            Rule(raise_after_s=60),
            [BAD, BAD, BAD],
            [False, False, True],
            id="a wait counts from the first bad word",
        ),
        pytest.param(
            Rule(raise_after_s=60, clear_after_s=60),
            [BAD, BAD, GOOD, BAD, BAD],
            [False, False, False, False, True],
            id="a good word between does not let the wait begin anew",
        ),
        pytest.param(
            Rule(raise_after_s=60, clear_after_s=30),
            [BAD, BAD, GOOD, GOOD, BAD, BAD, BAD],
            [False] * 6 + [True],
            id="good words that last let it begin anew",
        ),
        pytest.param(
            Rule(clear_after_s=60),
            [BAD, GOOD, GOOD, GOOD],
            [True, True, True, False],
            id="a finding ends when good words have lasted",
        ),
        pytest.param(
            Rule(clear_after_s=60),
            [BAD, GOOD, GOOD, BAD, GOOD, GOOD, GOOD],
            [True] * 6 + [False],
            id="a bad word between lets the good ones begin anew",
        ),
        pytest.param(
            Rule(clear_after_s=30, until_reboot=True),
            [BAD, GOOD, GOOD, GOOD],
            [True] * 4,
            id="some end with the boot alone",
        ),
        pytest.param(
            Rule(clear_after_s=30),
            [BAD, UNREADABLE, UNREADABLE, UNREADABLE, UNREADABLE],
            [True] * 5,
            id="what cannot be read any more does not heal",
        ),
        pytest.param(
            Rule(), [BAD, NOT_SHOWN], [True, False], id="what the hardware does not show ends with it"
        ),
    ],
)
def test_a_finding_is_raised_and_ends_by_its_rule(rule: Rule, said: list[Said], stands: list[bool]) -> None:
    """Looks come every half minute."""
    assert Watch(rule).looks(said) == stands


def test_what_comes_and_goes_takes_longer_to_end_each_time() -> None:
    """The second time within an hour twice as long, the third four times."""
    watch = Watch(Rule(clear_after_s=60))
    needed = []
    for _ in range(3):
        watch.look(word(BAD))
        looks = 0
        while watch.last.findings:
            watch.look(word(GOOD))
            looks += 1
        needed.append(looks)
    assert needed == [3, 5, 9]


def test_a_calm_hour_ends_the_damping() -> None:
    """After that the finding ends as fast as the first time, and nothing is remembered of a part that is well."""
    watch = Watch(Rule(clear_after_s=60))
    watch.looks([BAD, GOOD, GOOD, GOOD])
    watch.looks([GOOD] * 121)
    assert watch.memory is not None
    assert watch.memory.slots == {}
    assert watch.looks([BAD, GOOD, GOOD, GOOD]) == [True, True, True, False]


def test_nothing_is_well_while_something_is_suspected() -> None:
    """The condition is left as it stands until the wait is over, one way or the other."""
    watch = Watch(Rule(raise_after_s=60, clear_after_s=30))
    assert watch.look(word(GOOD)).not_yet == ""
    assert "ThingDown is suspected" in watch.look(word(BAD)).not_yet
    assert watch.look(word(GOOD)).not_yet
    assert watch.look(word(GOOD)).not_yet == ""


@pytest.mark.parametrize(
    ("looks", "unknown", "not_yet"),
    [
        pytest.param(1, True, True, id="once: as it stands"),
        pytest.param(2, True, True, id="twice: as it stands"),
        pytest.param(3, True, False, id="three times: Unknown"),
    ],
)
def test_a_part_that_cannot_be_read(looks: int, unknown: bool, not_yet: bool) -> None:
    """Unknown names the part and why."""
    watch = Watch()
    for _ in range(looks):
        watch.look(word(UNREADABLE, detail="EINVAL"))
    assert (watch.last.unreadable is not None, bool(watch.last.not_yet)) == (unknown, not_yet)
    assert watch.last.unreadable is not None
    assert watch.last.unreadable.message == "port mlx5_0/1: EINVAL"
    assert watch.look(word(GOOD)).unreadable is None


def test_a_source_that_fails_three_times_is_unknown() -> None:
    """What was known before stands for the first two tries."""
    watch = Watch()
    watch.look(word(GOOD))
    assert [watch.fail().not_yet for _ in range(3)] == ["EIO", "EIO", ""]
    assert watch.last.unreadable is not None
    assert watch.look(word(GOOD)).unreadable is None


def test_a_source_that_falls_silent_is_unknown() -> None:
    """After five minutes without a look, although nothing said that it failed."""
    watch = Watch(step_s=60)
    watch.look(word(GOOD))
    assert [watch.pass_by().unreadable is not None for _ in range(6)] == [False] * 5 + [True]


def test_nothing_is_well_before_the_first_look() -> None:
    """Nothing can be said yet."""
    assert Watch().pass_by().not_yet == "nothing was read so far"


def test_a_part_that_is_not_named_keeps_what_it_has() -> None:
    """Silence proves nothing, and no wait goes on in it."""
    watch = Watch(Rule(raise_after_s=60, clear_after_s=30))
    watch.look(word(BAD), word(BAD, OTHER))
    for _ in range(4):
        watch.look(word(BAD, OTHER))
    assert [finding.part for finding in watch.last.findings] == [OTHER]
    assert watch.last.not_yet or watch.last.unreadable is not None


def test_a_gap_between_looks_is_not_watched_for_longer_than_two_minutes() -> None:
    """An agent that was away saw nothing."""
    watch = Watch(Rule(raise_after_s=300))
    watch.look(word(BAD))
    watch.step_s = 4_000
    assert watch.look(word(BAD)).findings == ()
    assert watch.look(word(BAD)).findings == ()
    assert watch.look(word(BAD)).findings != ()


def test_a_new_boot_begins_anew() -> None:
    """What stood belonged to the boot before; nothing can be said until the first look."""
    watch = Watch(Rule(until_reboot=True))
    watch.look(word(BAD))
    watch.boot_id = "boot-2"
    judgement = watch.pass_by()
    assert judgement.findings == ()
    assert judgement.not_yet


def test_a_clearing_ends_what_stood_and_a_new_bad_word_raises_it_again() -> None:
    """The same clearing counts once."""
    watch = Watch(Rule(until_reboot=True))
    watch.look(word(BAD))
    watch.cleared_before = watch.now
    assert watch.pass_by().findings == ()
    assert watch.look(word(BAD)).findings != ()
    assert watch.pass_by().findings != ()


def test_what_was_read_back_stands_until_a_look_says_otherwise() -> None:
    """NodeHealth knew more than our own state."""
    first = Watch(Rule(clear_after_s=60))
    (finding,) = first.look(word(BAD)).findings
    second = Watch(Rule(clear_after_s=60))
    second.memory = restored([finding], None, REASONS)
    assert second.pass_by().findings == (finding,)
    assert second.looks([GOOD, GOOD, GOOD]) == [True, True, False]


def test_words_change_at_once_and_dates_only_every_ten_minutes() -> None:
    """Each change is a write of NodeHealth."""
    watch = Watch()
    (first,) = watch.look(word(BAD)).findings
    (second,) = watch.look(word(BAD)).findings
    assert second == first
    (third,) = watch.look(word(BAD, detail="down, and Polling")).findings
    assert (third.detail, third.first_seen, third.count) == ("down, and Polling", first.first_seen, 2)


def test_warnings_do_not_keep_anybody_from_saying_that_all_is_well() -> None:
    """They stand beside it."""
    watch = Watch()
    judgement = watch.look(Word(said=BAD, reason=ODD, part=PORT, detail="odd"))
    assert len(judgement.findings) == 1
    assert (judgement.not_yet, judgement.unreadable) == ("", None)


def test_troubles_beyond_the_bound_are_unknown_and_not_forgotten_in_silence() -> None:
    """What stands keeps its place."""
    watch = Watch()
    parts = [Part(kind=PartKind.PORT, name=f"p{number}/1") for number in range(MAX_SLOTS + 1)]
    judgement = watch.look(*(word(BAD, part) for part in parts))
    assert len(judgement.findings) == MAX_SLOTS
    assert judgement.unreadable is not None


@given(
    st.lists(st.sampled_from([*Said, None]), max_size=40),
    st.integers(0, 200),
    st.integers(0, 200),
    st.booleans(),
)
def test_healthy_is_only_said_after_a_good_look(
    said: list[Said | None], raise_s: int, clear_s: int, latch: bool
) -> None:
    """Whatever was said: without a finding, an unreadable and a not-yet, the newest word was good or never bad at all."""
    watch = Watch(Rule(raise_after_s=raise_s, clear_after_s=clear_s, until_reboot=latch))
    for one in said:
        judgement = watch.fail() if one is None else watch.look(word(one))
        if not judgement.findings and judgement.unreadable is None and not judgement.not_yet:
            assert one in {Said.GOOD, Said.NOT_SHOWN}


def test_looks_that_could_not_tell_of_a_part_end_nothing_of_it() -> None:
    """Two good words with an hour between, in which others were told of, are two moments and no lasting."""
    watch = Watch(Rule(clear_after_s=60))
    watch.look(word(BAD))
    for _ in range(3):
        watch.look(word(GOOD))
        for _ in range(10):
            watch.look(word(GOOD, OTHER))
    assert watch.last.findings != ()
    assert watch.looks([GOOD, GOOD, GOOD])[-1] is False


def test_a_part_that_was_unreadable_meanwhile_was_not_well_meanwhile() -> None:
    """The time between an unreadable look and a good one counts for nothing."""
    watch = Watch(Rule(clear_after_s=60))
    assert watch.looks([BAD, GOOD, UNREADABLE, GOOD, UNREADABLE, GOOD]) == [True] * 6
