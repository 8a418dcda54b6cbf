"""The run-book text that is generated from the checks."""

import msgspec
import pytest

from checks.check import Check, discover, documented
from checks.finding import Severity
from checks.runbook import UnknownReason, condition_table, conditions_page, explain, main


@pytest.mark.parametrize(
    ("name", "told"),
    [
        pytest.param(
            "Xid79FallenOffBus",
            [
                "Xid79FallenOffBus (GpuXidError: Fault, effect node-out, urgency now, action REBOOT)",
                "XID 79",
                "RESTART_BM",
            ],
            id="a fault",
        ),
        pytest.param(
            "Xid13GraphicsException", ["Warning, effect none", "restarted by its owner"], id="a warning"
        ),
        pytest.param(
            "KernelLogUnreadable", ["a reason of Unknown", "dmesg_restrict"], id="a reason of Unknown"
        ),
        pytest.param("GpuXidError", ["What on-call does", "kubectl-nodemend"], id="a whole condition"),
        pytest.param(
            "RepeatedStartFailures",
            ["(PodStartFailing: Fault, effect none, urgency person, action NONE)", "device plugin"],
            id="the scheduler's own",
        ),
    ],
)
def test_explain(name: str, told: list[str]) -> None:
    """A reason's text says what it is, what is done and what to do."""
    text = explain(name)
    assert [part for part in told if part not in text] == []


def test_explain_names_what_is_spelled_alike() -> None:
    """A typing error costs one look."""
    with pytest.raises(UnknownReason, match="did you mean Xid79FallenOffBus"):
        explain("Xid79FalenOffBus")


def test_every_reason_has_a_text_of_its_own() -> None:
    """On-call never meets a reason without a run-book."""
    for check in documented():
        texts = [explain(reason.name) for reason in (*check.reasons, *check.unknown_reasons)]
        assert len(set(texts)) == len(texts)


def test_the_table_names_every_fault_that_ends_running_work() -> None:
    """Effect and urgency are columns; what costs jobs is listed in full."""
    table = condition_table()
    assert "| Effect on new work | Urgency |" in table
    for check in documented():
        for reason in check.reasons:
            if reason.urgency.value == "now" and reason.severity is Severity.FAULT:
                assert f"`{reason.name}`" in table
    assert {line.count("|") for line in table.splitlines()} == {7}


def test_the_page_holds_every_reason_once() -> None:
    """docs/conditions.md is complete."""
    page = conditions_page()
    for check in documented():
        for reason in (*check.reasons, *check.unknown_reasons):
            assert page.count(f"#### {reason.name}\n") == 1


def test_a_class_without_a_condition_is_told_as_such() -> None:
    """The tables say that its reasons turn nothing True; the run-book is found by the check's own name."""
    (check,) = (check for check in discover() if check.name == "xid")
    warnings = tuple(reason for reason in check.reasons if reason.severity is Severity.WARNING)
    alone = [msgspec.structs.replace(check, condition="", reasons=warnings, unknown_reasons=())]

    table, page = condition_table(alone), conditions_page(alone)

    assert "| none (warnings) | `Xid" in table
    assert " False " not in table
    assert "## xid (no condition)" in page
    assert "False says" not in page
    assert explain("xid", alone).startswith("xid\n\n")
    assert "(xid: Warning" in explain("Xid13GraphicsException", alone)


@pytest.mark.parametrize(
    ("arguments", "exit_code", "begins"),
    [
        pytest.param([], 0, "# Node conditions", id="the page"),
        pytest.param(["--table"], 0, "| Condition |", id="the table"),
        pytest.param(["Xid48DoubleBitEcc"], 0, "Xid48DoubleBitEcc (", id="one reason"),
        pytest.param(["NoSuchReason"], 2, "", id="a reason that does not exist"),
    ],
)
def test_the_command(
    arguments: list[str], exit_code: int, begins: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`python -m checks.runbook` prints what the documents hold."""
    assert main(arguments) == exit_code
    printed = capsys.readouterr()
    assert printed.out.startswith(begins)
    assert bool(printed.err) == (exit_code != 0)


@pytest.mark.parametrize("check", discover(), ids=lambda check: str(check.name))
def test_every_setting_has_its_reason(check: Check) -> None:
    """A threshold that nobody can explain cannot be changed by anybody; the page prints both."""
    assert sorted(check.why_settings) == sorted(check.default_settings)
    assert [name for name, why in check.why_settings.items() if len(why) < 10] == []
    assert [name for name in check.single_look if name not in check.default_settings] == []
    page = conditions_page([check])
    assert [name for name in check.default_settings if f"| `{name} = " not in page] == []
