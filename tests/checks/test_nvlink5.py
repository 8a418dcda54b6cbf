"""XID 144 to 150: every rule in both layouts, lines as drivers print them, and lines that no rule fits."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks import nvlink5
from checks.check import CheckDefect
from checks.nvlink5 import Action, Layout, Look, Rule, decode

PADDING = "0x00000000 0x00000000"
ALL = tuple(nvlink5.all_rules())


def line(unit: str, intrinfo: int, status: int, *, severity: str = "Nonfatal", link: str = "03") -> str:
    return f"{unit} {severity} XC0 i0 Link {link} (0x{intrinfo:08x} 0x{status:08x} {PADDING})"


def name(rule: Rule) -> str:
    return f"{rule.code} {rule.units[0]} {rule.subcode} {rule.status:#x}"


def test_the_table_is_whole() -> None:
    """Every row of NVIDIA's sheet is there: 94 of 2025-10, and the two of MSE DEGRADED in edition 610."""
    assert Counter(rule.code for rule in ALL) == {144: 6, 145: 33, 146: 20, 147: 2, 148: 1, 149: 31, 150: 3}


@pytest.mark.parametrize("rule", ALL, ids=name)
def test_each_rule_is_found_in_both_layouts(rule: Rule) -> None:
    """By each name of its unit, whatever link and severity bits stand around it."""
    for unit in (*rule.units, "/".join(rule.units)):
        for low, around in ((rule.v1, 0x0401A000), (rule.v2, 0x04045580)):
            fault = decode(rule.code, line(unit, around | rule.subcode << 20 | low, rule.status))
            assert fault is not None
            assert fault.rule is not None
            assert (fault.action, fault.rule.look) == (rule.action, rule.look)
            assert (fault.rule.subcode, fault.rule.status) == (rule.subcode, rule.status)


@pytest.mark.parametrize("rule", [rule for rule in ALL if rule.code != 150], ids=name)
def test_the_layouts_of_one_unit_never_collide(rule: Rule) -> None:
    """So that the line tells its layout and no driver version is needed; the watchdog is 0 in both."""
    v1 = decode(rule.code, line("/".join(rule.units), rule.subcode << 20 | rule.v1, rule.status))
    v2 = decode(rule.code, line("/".join(rule.units), rule.subcode << 20 | rule.v2, rule.status))
    assert v1 is not None
    assert v2 is not None
    assert (v1.layout, v2.layout) == (Layout.V1, Layout.V2)


@pytest.mark.parametrize(
    ("code", "text", "action", "look", "link"),
    [
        pytest.param(
            149,
            "NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)",
            Action.RESET_GPU,
            Look.REPORT_ALONE,
            -1,
            id="no single link",
        ),
        pytest.param(
            149,
            "NETIR_BER_EVENT Nonfatal XC0 i0 Link 03 (0x00086226 0x00000001 0x00000000 0x00000000)",
            Action.IGNORE,
            Look.SIGNAL_AND_CABLES,
            3,
            id="four words",
        ),
        pytest.param(
            149,
            "NETIR_LINK_DOWN  Fatal   XC0 i0 Link 00 (0x02500011 0x00000000 0x0",
            Action.RESET_GPU,
            Look.PEER,
            0,
            id="runs of blanks, cut off behind what counts, the peer's reset",
        ),
        pytest.param(
            145,
            "RLW_SRC_TRACK Nonfatal XC1 i0 Link 17 (0x04084507 0x00000004",
            Action.XID_154_EVAL,
            Look.NOWHERE,
            17,
            id="cut off behind the status",
        ),
        pytest.param(
            145,
            "RLW_RXPIPE Nonfatal XC0 i0 Link 02 (0x000440c2 0x00000002 0x0 0x0)",
            Action.IGNORE,
            Look.SUPPORT,
            2,
            id="promotable, not promoted",
        ),
        pytest.param(
            145,
            "RLW_RXPIPE Fatal XC0 i0 Link 02 (0x000444c2 0x00000002 0x0 0x0)",
            Action.RESET_GPU,
            Look.SUPPORT,
            2,
            id="promotable, promoted",
        ),
        pytest.param(
            145,
            "RLW_RXPIPE Fatal XC0 i0 Link 02 (0x000444c2 0x00000008 0x0 0x0)",
            Action.IGNORE,
            Look.SUPPORT,
            2,
            id="nothing to promote it to",
        ),
        pytest.param(
            150,
            f"MSE Degraded Fatal XC0 i0 Link -1 (0x00000000 0x00000000 {PADDING})",
            Action.RESET_GPU,
            Look.SUPPORT,
            -1,
            id="a unit of two words",
        ),
        pytest.param(
            150,
            f"MSE Degraded Fatal XC0 i0 Link -1 (0x00000000 0xffffffff {PADDING})",
            Action.RESET_GPU,
            Look.SUPPORT,
            -1,
            id="its other status",
        ),
        pytest.param(
            144,
            "b, SAW_MVB Fatal XC0 i0 Link 01 (0x00002021 0x00000010)",
            Action.RESET_GPU,
            Look.SUPPORT,
            1,
            id="behind what is left of a process called `a, b`",
        ),
        pytest.param(
            147,
            "TREX Fatal, TREX Nonfatal XC0 i0 Link 01 (0x00002184 0x80000000)",
            Action.IGNORE,
            Look.SUPPORT,
            1,
            id="behind a process that calls itself like a unit",
        ),
    ],
)
def test_lines_of_drivers(code: int, text: str, action: Action, look: Look, link: int) -> None:
    """Each is decoded, and its link is taken from its words."""
    fault = decode(code, text)
    assert fault is not None
    assert fault.rule is not None
    assert (fault.action, fault.rule.look, fault.link) == (action, look, link)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        pytest.param(149, "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x00350", id="cut off in its first word"),
        pytest.param(149, "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6", id="cut off before the status"),
        pytest.param(
            149, "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x000", id="cut off in the status"
        ),
        pytest.param(149, "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (nothing here)", id="words that are none"),
        pytest.param(149, "NETIR_INT  Fatal   XC0 i0 Link -1", id="no words"),
        pytest.param(149, line("NETIR_LINK_EVT", 0x00C005C6, 0), id="a sub-code that the table lacks"),
        pytest.param(149, line("NETIR_LINK_EVT", 0x004505C6, 1), id="a status that the table lacks"),
        pytest.param(145, line("RLW_REMAP", 0x00400082, 1), id="a sub-code for a unit without"),
        pytest.param(145, line("RLW_REMAP", 0x000000A2, 1), id="bits of another unit"),
        pytest.param(145, line("RLW_NEW", 0x00000082, 1), id="a unit that the table lacks"),
        pytest.param(146, line("RLW_REMAP", 0x00000082, 1), id="a unit of another code"),
    ],
)
def test_what_no_rule_fits_has_none(code: int, text: str) -> None:
    """It is still read as far as it goes."""
    fault = decode(code, text)
    assert fault is not None
    assert (fault.rule, fault.action, fault.layout) == (None, None, None)


@pytest.mark.parametrize("text", ["", "(", "Ch 00000008", "Fatal", "0x1 0x2", "RLW_REMAP"])
def test_other_texts_are_no_fault_of_nvlink_5(text: str) -> None:
    """Nothing is read into them."""
    assert decode(145, text) is None


def test_the_peer_is_named_for_what_it_did() -> None:
    """Sub-codes 21 and 32 to 37 of a link that went down blame the other end, and nothing else does."""
    assert [rule.subcode for rule in ALL if rule.look is Look.PEER] == [21, *range(32, 38)]


HEADER = "unit,code,v1,v2,subcode,status,action,when_fatal,look,meaning\n"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        pytest.param("", "holds no row", id="empty"),
        pytest.param("X,143,0x1,0x1,0,0x1,IGNORE,,nowhere,so so\n", "code '143'", id="another code"),
        pytest.param(
            "X,144,0x1,0x1,0,0x1,REBOOT,,nowhere,so so\n", "action 'REBOOT' is unknown", id="an action"
        ),
        pytest.param(
            "X,144,0x1,0x1,0,0x1,IGNORE,x,nowhere,so so\n", "when_fatal 'x' is unknown", id="a promotion"
        ),
        pytest.param(
            "X,144,0x1,0x1,0,0x1,IGNORE,,moon,so so\n", "look 'moon' is unknown", id="a place to look"
        ),
        pytest.param("X,144,0x400,0x1,0,0x1,IGNORE,,nowhere,so so\n", "at most 0x3ff", id="too many bits"),
        pytest.param(
            "X,144,0x1,0x1,64,0x1,IGNORE,,nowhere,so so\n", "subcode '64'", id="a sub-code too high"
        ),
        pytest.param(
            "X,144,0x1,0x2,0,0x1,IGNORE,,nowhere,so so\nX/Y,144,0x1,0x3,0,0x1,RESET_GPU,,nowhere,so so\n",
            "two answers",
            id="two answers to one line",
        ),
    ],
)
def test_a_damaged_table_is_refused(row: str, said: str) -> None:
    """The defect names the row and what would be right."""
    with pytest.raises(CheckDefect, match=said):
        nvlink5.parse(HEADER + row, "rules.csv")


@given(
    st.integers(144, 150),
    st.text() | st.from_regex(r"[A-Z_]{3,9} Fatal XC0 i0 Link -?[0-9]{1,3} \(0x[0-9a-fx ]*"),
)
def test_no_text_raises(code: int, text: str) -> None:
    """Whatever stands behind the code."""
    fault = decode(code, text)
    assert fault is None or (fault.rule is None) == (fault.action is None)
