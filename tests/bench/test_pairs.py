"""Beginnings and ends: the first sights count, and nothing that began is dropped."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.pairs import Pairs


def test_seconds_run_from_the_beginning_to_the_first_end() -> None:
    """Later sights of the same end change nothing."""
    pairs = Pairs()
    pairs.begin("a", 10.0)
    pairs.end("a", 10.5)
    pairs.end("a", 12.0)
    assert dict(pairs.seconds()) == {"a": 0.5}
    assert pairs.last_end() == 10.5


def test_what_has_no_end_is_missing() -> None:
    """A lost sample is named, in the order in which they began."""
    pairs = Pairs()
    for key in ("c", "a", "b"):
        pairs.begin(key, 1.0)
    pairs.end("a", 2.0)
    assert pairs.missing() == ("c", "b")
    assert dict(pairs.seconds()) == {"a": 1.0}


def test_a_key_begins_once() -> None:
    """Two samples under one name would hide a lost one."""
    pairs = Pairs()
    pairs.begin("a", 1.0)
    with pytest.raises(ValueError, match="twice"):
        pairs.begin("a", 2.0)


def test_the_first_sight_of_a_beginning_counts() -> None:
    """A watch shows a state again and again."""
    pairs = Pairs()
    pairs.begin_once("a", 1.0)
    pairs.begin_once("a", 2.0)
    pairs.end("a", 3.0)
    assert dict(pairs.seconds()) == {"a": 2.0}


def test_an_end_without_beginning_is_no_sample() -> None:
    """Somebody else's end is not counted as one of ours."""
    pairs = Pairs()
    pairs.end("a", 3.0)
    assert dict(pairs.seconds()) == {}
    assert pairs.missing() == ()
    assert not pairs.wait(1, 0.0)


def test_wait_ends_when_enough_have_both() -> None:
    """It says whether the count was reached."""
    pairs = Pairs()
    pairs.begin("a", 1.0)
    assert not pairs.wait(1, 0.0)
    pairs.end("a", 2.0)
    assert pairs.wait(1, 0.0)
    assert pairs.ended_by(1.9) == 0
    assert pairs.ended_by(2.0) == 1


def test_nothing_has_ended() -> None:
    """There is no last end of nothing."""
    with pytest.raises(ValueError, match="nothing"):
        Pairs().last_end()


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.booleans())))
def test_every_beginning_is_either_measured_or_missing(sights: list[tuple[str, bool]]) -> None:
    """Whatever is seen in whatever order, no sample gets lost between the two lists."""
    pairs = Pairs()
    for at, (key, is_end) in enumerate(sights):
        if is_end:
            pairs.end(key, float(at))
        else:
            pairs.begin_once(key, float(at))
    begun = {key for key, is_end in sights if not is_end}
    assert begun == {*pairs.seconds(), *pairs.missing()}
    assert not {*pairs.seconds()} & {*pairs.missing()}
