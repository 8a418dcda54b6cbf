"""Checks are found by themselves, and names that are not one's own are refused at load."""

import msgspec
import pytest

from checks.check import Check, CheckDefect, _refuse_double_names, discover, documented
from checks.finding import Severity
from checks.xid import CHECK

OTHER = msgspec.structs.replace(
    CHECK, name="other", condition="OtherFault", reasons=(), unknown_reasons=CHECK.unknown_reasons[:0]
)
FAULTS = (msgspec.structs.replace(CHECK.reasons[0], name="New", severity=Severity.FAULT),)


def test_several_checks_may_be_without_a_condition() -> None:
    """Classes of warnings alone do not claim one name among them."""
    warns = [msgspec.structs.replace(OTHER, name=name, condition="") for name in ("one", "two")]
    _refuse_double_names([CHECK, *warns])


def test_every_check_is_found_by_name() -> None:
    """In the order of their names, so that output is the same everywhere."""
    names = [check.name for check in discover()]
    assert "xid" in names
    assert names == sorted(names)


def test_what_the_scheduler_publishes_is_documented_and_no_check() -> None:
    """No agent judges or publishes it, no drill finds it; the public table has it last."""
    checks, known = discover(), documented()
    assert known[: len(checks)] == checks
    assert [one.condition for one in known[len(checks) :]] == ["PodStartFailing"]
    assert not any(isinstance(one, Check) for one in known[len(checks) :])


@pytest.mark.parametrize(
    ("defect", "said"),
    [
        pytest.param(
            {"condition": "GpuXidError"}, "GpuXidError is already claimed by checks/xid", id="a condition"
        ),
        pytest.param(
            {"condition": "", "reasons": FAULTS}, "has warnings alone", id="a fault without a condition"
        ),
        pytest.param(
            {"reasons": CHECK.reasons[:1]}, f"{CHECK.reasons[0].name} is already claimed by", id="a reason"
        ),
        pytest.param(
            {"unknown_reasons": CHECK.unknown_reasons}, "is already claimed by", id="a reason of Unknown"
        ),
        pytest.param(
            {"reasons": (msgspec.structs.replace(CHECK.reasons[0], name="New", runbook=" "),)},
            "reason New has no run-book text",
            id="a reason that on-call is left alone with",
        ),
    ],
)
def test_a_name_has_one_owner_and_a_run_book(defect: dict[str, object], said: str) -> None:
    """Names are API: two owners of one would make policies and alerts mean either."""
    _refuse_double_names([CHECK, OTHER])
    with pytest.raises(CheckDefect, match="checks/other") as refused:
        _refuse_double_names([CHECK, msgspec.structs.replace(OTHER, **defect)])
    assert said in str(refused.value)
