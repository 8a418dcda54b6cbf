"""What selectors are asked, how often, and what they see of a device."""

import msgspec
import pytest

from controller.scheduler.cel.values import EvaluationError
from controller.scheduler.device_rules import with_rules
from controller.scheduler.device_selectors import MOST_COST, NOT_YET, Selectors, seen_by_selectors
from kube.devices import DeviceTaintRule, ResourceSlice, SliceDevice
from tests.scheduler.selector_words import slice_device

LONG = f"{list(range(100))}.all(x, {list(range(100))}.all(y, x + y >= 0))"
INDEX = "device.attributes['d'].index"


def piece(devices: int = 3, name: str = "s") -> ResourceSlice:
    """Give a slice of driver d whose devices have their number as an attribute."""
    every = [{"name": f"gpu-{index}", "attributes": {"index": {"int": index}}} for index in range(devices)]
    spec = {"driver": "d", "nodeName": "n", "pool": {"name": "n"}, "devices": every}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, ResourceSlice)


class Counted(Selectors):
    """Counts how often devices are looked at."""

    def __init__(self, most_cost: int = MOST_COST) -> None:
        super().__init__(most_cost)
        self.looked = 0

    def _matches(self, program: object, device: dict[str, object]) -> bool:
        self.looked += 1
        return super()._matches(program, device)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("expressions", "expected"),
    [
        pytest.param((), (True, True, True), id="no selector takes all"),
        pytest.param((f"{INDEX} > 0", f"{INDEX} < 2"), (False, True, False), id="all of several must hold"),
        pytest.param((f"6 / {INDEX} > 2",), ("division by zero", True, True), id="one device has no answer"),
        pytest.param(
            (f"{INDEX} > 0", f"{INDEX}.x == 1"), (False, *["no such overload: int.x"] * 2), id="in order"
        ),
        pytest.param((INDEX,), ("the selector gives a int, which is no bool",) * 3, id="no yes and no no"),
        pytest.param((LONG,), ("the selector takes too long",) * 3, id="one that takes too long"),
    ],
)
def test_answers(expressions: tuple[str, ...], expected: tuple[bool | str, ...]) -> None:
    """One for each device."""
    assert Selectors().ask(piece(), {"class": expressions}, {})["class"] == expected
    found = Selectors().ask(piece(), {"class": ()}, {"kind": ("class", expressions)})
    assert found["kind"] == expected


def test_a_selector_is_asked_once_for_a_device() -> None:
    """Until the slice or the selector is another one; taints that rules add change nothing that it sees."""
    selectors, first = Counted(), piece()
    rule = msgspec.convert(
        {
            "metadata": {"name": "r"},
            "spec": {"deviceSelector": {}, "taint": {"key": "k", "effect": "NoSchedule"}},
        },
        DeviceTaintRule,
    )
    counts = []
    for asked, expression in (
        (first, "true"),
        (first, "true"),
        (with_rules((first,), (rule,))[0], "true"),
        (first, "false"),
        (piece(2), "true"),
    ):
        selectors.turn()
        selectors.ask(asked, {"class": (expression,)}, {})
        counts.append(selectors.looked)
    assert counts == [3, 3, 3, 6, 8]


def test_what_is_not_asked_for_a_turn_is_forgotten() -> None:
    selectors, first = Counted(), piece()
    for asked in (first, piece(name="other"), first):
        selectors.turn()
        selectors.ask(asked, {"class": ("true",)}, {})
    assert selectors.looked == 9


def test_one_that_takes_too_long_is_asked_about_one_device() -> None:
    """And then of no other device of that slice."""
    selectors = Counted()
    selectors.ask(piece(100), {"class": (LONG,)}, {})
    assert selectors.looked == 1


def test_a_snapshot_is_bounded_and_the_next_goes_on() -> None:
    """Selectors that are slow, though each is within its bound: later devices are looked at in later snapshots."""
    nearly = f"{list(range(90))}.all(x, {list(range(90))}.all(y, true)) && {INDEX} >= 0"
    selectors, slices = Counted(100_000), [piece(5, f"s{number}") for number in range(8)]
    done = []
    for _ in range(4):
        selectors.turn()
        answers = [selectors.ask(one, {"c": ()}, {"kind": ("c", (nearly,))})["kind"] for one in slices]
        done.append(sum(one.count(True) for one in answers))
        assert all({*one} <= {True, NOT_YET} for one in answers)
    assert done[0] < 15 < done[-1] == 40
    assert done == sorted(done)


@pytest.mark.parametrize("most", [100_000, 30_000])
def test_what_fails_costs_as_much(most: int) -> None:
    nearly = f"{list(range(90))}.all(x, {list(range(90))}.all(y, true)) && 1 / 0 == {INDEX}"
    answers = Selectors(most).ask(piece(100), {"c": ()}, {"kind": ("c", (nearly,))})["kind"]
    assert 0 < answers.count("division by zero") <= most / 8_000 + 1
    assert {*answers} == {"division by zero", NOT_YET}


def test_what_was_answered_of_a_slice_is_not_asked_again() -> None:
    """Else a slice that takes longer than one snapshot has would never be done, and nobody else's be asked."""
    nearly = f"{list(range(90))}.all(x, {list(range(90))}.all(y, true)) && {INDEX} >= 0"
    selectors, slow = Counted(30_000), piece(10)
    for _ in range(5):
        selectors.turn()
        answers = selectors.ask(slow, {"c": ()}, {"kind": ("c", (nearly,))})["kind"]
    assert answers == (True,) * 10
    assert selectors.looked == 10


def test_a_request_is_asked_about_what_its_class_takes() -> None:
    """And of what the class has no answer for, it has none either."""
    asked = {"class": (f"6 / {INDEX} > 4",)}
    found = Counted().ask(piece(), asked, {"kind": ("class", (f"{INDEX} > 1",))})
    assert found == {"class": ("division by zero", True, False), "kind": ("division by zero", False, False)}


def test_classes_are_asked_however_long_it_takes() -> None:
    """What they take is counted."""
    answers = Selectors(0).ask(piece(), {"class": ("true",)}, {"kind": ("class", ("true",))})
    assert answers == {"class": (True,) * 3, "kind": (NOT_YET,) * 3}


def test_a_class_that_says_what_a_request_said_is_asked_all_the_same() -> None:
    """Though the request's own answers are not all there."""
    selectors, first = Selectors(0), piece()
    request = {"kind": ("every", ("true",))}
    for classes in ({"every": ()}, {"every": (), "class": ("true",)}, {"every": (), "class": ("true",)}):
        selectors.turn()
        answers = selectors.ask(first, classes, request)
    assert answers["class"] == (True,) * 3


@pytest.mark.parametrize(
    ("device", "why"),
    [
        pytest.param(slice_device(attributes={"a": {}}), "attribute a: unsupported", id="of tomorrow's type"),
        pytest.param(
            slice_device(attributes={"a": {"version": "8"}}), "no semantic version", id="no version"
        ),
        pytest.param(slice_device(capacity={"m": {"value": "much"}}), "no quantity", id="no amount"),
    ],
)
def test_a_device_that_says_what_is_no_value(device: SliceDevice, why: str) -> None:
    """Kubernetes has no answer for it either."""
    with pytest.raises(EvaluationError, match=why):
        seen_by_selectors("d", device)
