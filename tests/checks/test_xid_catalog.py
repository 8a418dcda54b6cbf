"""The catalogue: complete, with a stated meaning for each bucket, and refusing what it does not know."""

import re

import pytest

from checks.check import CheckDefect
from checks.finding import Action, Effect, Severity, Urgency
from checks.xid_catalog import BUCKETS, CATALOG_FILE, COLUMNS, catalog, parse

GOOD_ROW = "79,FALLEN,Xid79FallenOffBus,The GPU is gone,pcie,RESTART_BM,,,,,a source"


def _file(*rows: str) -> str:
    return "\n".join([",".join(COLUMNS), *rows]) + "\n"


def test_every_code_from_1_to_176_has_a_row() -> None:
    """Codes of the published catalogue and of the newest driver header are all known."""
    assert list(catalog()) == list(range(1, 177))


def test_every_bucket_of_the_table_is_used() -> None:
    """A bucket that no row uses would be a meaning that nobody can check."""
    assert {xid.bucket for xid in catalog().values()} == set(BUCKETS)


@pytest.mark.parametrize(
    ("code", "severity", "effect", "urgency", "action"),
    [
        pytest.param(79, "Fault", "node-out", "now", "REBOOT", id="a GPU off the bus takes the node at once"),
        pytest.param(48, "Fault", "part-out", "now", "RESET_GPU", id="a double-bit error takes the part at once"),
        pytest.param(95, "Fault", "part-out", "now", "RESET_GPU", id="an uncontained error takes the part at once"),
        pytest.param(119, "Fault", "part-out", "now", "RESET_GPU", id="a GSP time-out takes the part at once"),
        pytest.param(120, "Fault", "part-out", "now", "RESET_GPU", id="a GSP fault takes the part at once"),
        pytest.param(63, "Fault", "prefer-not", "when-idle", "RESET_GPU", id="a recorded remap waits until idle"),
        pytest.param(94, "Fault", "prefer-not", "when-idle", "RESET_GPU", id="a contained error waits until idle"),
        pytest.param(74, "Fault", "no-multi-gpu", "when-idle", "RESET_GPU", id="an NVLink error degrades the link"),
        pytest.param(54, "Fault", "part-out", "person", "CONTACT_SUPPORT", id="a power cable needs hands"),
        pytest.param(167, "Fault", "part-out", "person", "CONTACT_SUPPORT", id="no action published but fatal by name"),
        pytest.param(13, "Warning", "none", "when-idle", "RESTART_APP", id="a graphics exception is the program's"),
        pytest.param(31, "Warning", "none", "when-idle", "RESTART_APP", id="a page fault is the program's"),
        pytest.param(43, "Warning", "none", "when-idle", "NONE", id="a reset channel is a consequence"),
        pytest.param(45, "Warning", "none", "when-idle", "NONE", id="a removed channel follows another XID"),
        pytest.param(149, "Warning", "none", "when-idle", "NONE", id="NVLink 5 events are shown until decoded"),
        pytest.param(154, "Warning", "none", "when-idle", "NONE", id="a wish of the driver is shown"),
        pytest.param(164, "Warning", "none", "person", "NONE", id="without a published action it is shown"),
    ],
)  # fmt: skip
def test_meaning_of_a_code(code: int, severity: str, effect: str, urgency: str, action: str) -> None:
    """What a code takes away, when, and what ends it."""
    xid = catalog()[code]
    assert (severity, effect, urgency, action) == (xid.severity, xid.effect, xid.urgency, xid.action)


def test_a_fault_takes_something_away_and_a_warning_nothing() -> None:
    """Severity, effect and action of one row never contradict one another."""
    for xid in catalog().values():
        takes_away = xid.effect is not Effect.NONE
        assert takes_away == (xid.severity is Severity.FAULT), xid.reason
        assert not takes_away or xid.action not in {Action.NONE, Action.RESTART_APP}, xid.reason
        assert xid.urgency is not Urgency.NOW or takes_away, xid.reason


def test_reasons_are_valid_condition_reasons() -> None:
    """The API server refuses a condition whose reason is not CamelCase."""
    for xid in catalog().values():
        assert re.fullmatch(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", xid.reason), xid.reason


@pytest.mark.parametrize(
    ("row", "told"),
    [
        pytest.param(
            GOOD_ROW.replace("RESTART_BM", "ASK_A_FRIEND"),
            ["line 2", "code 79", "bucket 'ASK_A_FRIEND'", "RESTART_APP", "WORKFLOW_XID_45"],
            id="an unknown bucket",
        ),
        pytest.param(
            GOOD_ROW.replace("pcie", "magic"), ["category 'magic'", "nvlink"], id="an unknown category"
        ),
        pytest.param(
            GOOD_ROW.replace(",,,,,", ",,all-out,,,"),
            ["effect 'all-out'", "node-out"],
            id="an unknown effect",
        ),
        pytest.param(
            GOOD_ROW.replace(",,,,,", ",,,soon,,"), ["urgency 'soon'", "when-idle"], id="an unknown urgency"
        ),
        pytest.param(
            GOOD_ROW.replace(",,,,,", ",PRAY,,,,"), ["action 'PRAY'", "RESET_GPU"], id="an unknown action"
        ),
        pytest.param(
            "seventy" + GOOD_ROW[2:], ["code 'seventy'", "whole number"], id="a code that is no number"
        ),
        pytest.param("0" + GOOD_ROW[2:], ["code '0'", "from 1 to 65535"], id="a code of zero"),
        pytest.param("70000" + GOOD_ROW[2:], ["code '70000'", "from 1 to 65535"], id="a code out of range"),
        pytest.param(
            GOOD_ROW.replace("Xid79Fallen", "Xid80Fallen"),
            ["reason", "Xid79 and"],
            id="a reason of another code",
        ),
        pytest.param(
            GOOD_ROW.replace("The GPU is gone", ""), ["meaning ''", "one sentence"], id="no meaning"
        ),
        pytest.param(GOOD_ROW.replace("a source", ""), ["source ''", "comes from"], id="no source"),
        pytest.param(GOOD_ROW.removesuffix(",a source"), ["10 fields", "must have 11"], id="a field too few"),
        pytest.param(GOOD_ROW + ",more", ["12 fields", "must have 11"], id="a field too many"),
        pytest.param('79,"FALLEN' + GOOD_ROW[9:], ["not valid CSV"], id="a quotation that does not end"),
        pytest.param(
            GOOD_ROW.replace("RESTART_BM,,,", "IGNORE,,part-out,now"),
            ["effect 'part-out'", "an action that ends it", "NONE does not"],
            id="an effect that no action ends",
        ),
    ],
)
def test_a_malformed_row_is_refused(row: str, told: list[str]) -> None:
    """The error names file, row, field, value and what would be right."""
    with pytest.raises(CheckDefect) as refused:
        parse(_file(row), "some.csv")
    assert [part for part in ["some.csv", *told] if part not in str(refused.value)] == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param("", "the header is ''", id="an empty file"),
        pytest.param(_file(), "holds no row", id="a header alone"),
        pytest.param("code,reason\n79,x\n", "the header is 'code,reason'", id="another header"),
        pytest.param(_file(GOOD_ROW, GOOD_ROW), "code '79' is there twice", id="a code twice"),
        pytest.param(
            _file(GOOD_ROW, GOOD_ROW.replace("79,", "7,", 1).replace("Xid79", "Xid7")),
            "",
            id="two codes are fine",
        ),
    ],
)
def test_a_malformed_file_is_refused(text: str, told: str) -> None:
    """Nothing is guessed where the file as a whole is wrong."""
    if not told:
        assert list(parse(text, CATALOG_FILE)) == [79, 7]
        return
    with pytest.raises(CheckDefect, match=re.escape(told)):
        parse(text, CATALOG_FILE)


def test_an_override_replaces_the_default_of_the_bucket() -> None:
    """A row that takes something away is a fault, whatever its bucket says."""
    row = GOOD_ROW.replace("RESTART_BM,,,,", "IGNORE,REBOOT,prefer-not,person,")
    xid = parse(_file(row), CATALOG_FILE)[79]
    assert (xid.severity, xid.action, xid.effect, xid.urgency) == (
        Severity.FAULT, Action.REBOOT, Effect.PREFER_NOT, Urgency.PERSON,
    )  # fmt: skip
