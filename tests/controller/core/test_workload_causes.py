"""What a workload may have caused, and what the driver asks for after it."""

import msgspec
import pytest

from checks.xid_catalog import catalog
from controller.workloads import APPLICATION, cause_of
from tests import build as make


def reason_of(beginning: str) -> str:
    """Give the catalogue's own name of the XID that this begins with."""
    code = int("".join(c for c in beginning.removeprefix("Xid")[:3] if c.isdigit()))
    return catalog()[code].reason


@pytest.mark.parametrize(
    ("detail", "cause"),
    [
        pytest.param("XID 154, after XID 119", "Xid119GspTimeout", id="what it names"),
        pytest.param("XID 154, after XID 31, XID 119", APPLICATION, id="the first of them"),
        pytest.param("XID 154, after XID 119, XID 48", "", id="one that no program causes"),
        pytest.param("NVML, without another XID near it", "", id="nothing named"),
        pytest.param("XID 154, after XID 999", "", id="a code that is not known"),
    ],
)
def test_what_the_driver_asks_for_has_the_cause_that_it_names(detail: str, cause: str) -> None:
    """XID 154 sums up others, and says which."""
    asked = msgspec.structs.replace(make.finding("RecoveryGpuReset"), detail=detail)
    assert cause_of(asked) == cause


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        *(pytest.param(code, APPLICATION, id=str(code)) for code in (13, 31, 32, 43, 45)),
        *(pytest.param(code, "itself", id=str(code)) for code in (62, 109, 119, 120)),
        *(pytest.param(code, "", id=str(code)) for code in (48, 63, 64, 74, 79, 92, 94, 95, 110, 140, 149)),
    ],
)
def test_what_a_workload_may_have_caused(code: int, expected: str) -> None:
    """Programs, driver and firmware; never memory, links, bus or board."""
    reason = reason_of(f"Xid{code}")
    assert cause_of(make.finding(reason)) == (reason if expected == "itself" else expected)
    assert cause_of(make.finding(reason, condition="GpuEccFault")) == ""
