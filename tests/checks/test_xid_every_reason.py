"""Every reason that a line of the kernel log can give: raised by a line of its kind, and ended by a new boot."""

import pytest

from checks.check import Context
from checks.finding import Severity
from checks.nvlink5 import Action, Look, Rule, all_rules
from checks.xid import CHECK
from checks.xid_catalog import catalog
from checks.xid_reasons import NVLINK5_FAULTS, XID_REASONS
from tests.checks.kernel import NEXT_BOOT, at
from tests.checks.xid_scene import Machine

RECOVERY = 154  # its reasons are those of what the driver wants: tests/checks/test_xid_recovery.py
CODES = [code for code in sorted(XID_REASONS) if code != RECOVERY]


def line_of(rule: Rule) -> str:
    """Write a line that this rule fits, in the layout of old drivers."""
    words = f"0x{rule.v1 | rule.subcode << 20 | 5 << 13:08x} 0x{rule.status:08x} 0x00000000 0x00000000"
    return f"{rule.units[0]} Fatal XC1 i0 Link 05 ({words} 0x00000000 0x00000000)"


def resets(code: int) -> Rule:
    return next(
        rule
        for rule in all_rules()
        if rule.code == code
        and Action.RESET_GPU in (rule.action, rule.when_fatal)
        and rule.look is not Look.PEER
    )


def ended_by_a_boot(machine: Machine) -> bool:
    judgement = CHECK.judge(
        [], machine.memory, Context(boot_id=NEXT_BOOT, now=at(9999), settings=CHECK.default_settings)
    )
    return judgement.findings == ()


@pytest.mark.parametrize("code", CODES)
def test_a_line_of_each_code_is_named_by_its_reason(code: int) -> None:
    """A fault turns the condition True, a warning does not; the next boot knows nothing of either."""
    machine = Machine(settings=CHECK.default_settings).xid(10, code, "some words of the driver")
    machine.wait(60)
    (finding,) = machine.judgement.findings
    reason = XID_REASONS[code]
    assert (finding.reason, finding.severity, finding.effect) == (reason.name, reason.severity, reason.effect)
    assert machine.condition is not None
    assert (machine.condition.status == "True") is (reason.severity is Severity.FAULT)
    assert ended_by_a_boot(machine)


def test_every_code_of_the_catalogue_is_tried_here() -> None:
    """A new row is tried by itself."""
    assert sorted(catalog()) == sorted([*CODES, RECOVERY])


@pytest.mark.parametrize("code", sorted(NVLINK5_FAULTS))
def test_a_decoded_reset_of_nvlink_5_is_a_fault_of_its_own(code: int) -> None:
    """A line for which NVIDIA's table asks for a reset."""
    machine = Machine(settings=CHECK.default_settings).xid(10, code, line_of(resets(code)))
    machine.wait(60)
    assert [finding.reason for finding in machine.judgement.findings] == [NVLINK5_FAULTS[code].name]
    assert ended_by_a_boot(machine)
