"""The texts of a port in sysfs: its rate as lanes, lane speed and Mb/s, its logical and its physical state. Pure.

Formats: drivers/infiniband/core/sysfs.c. `400 Gb/sec (4X NDR)`, `2.5 Gb/sec (1X SDR)`; an old kernel leaves SDR out
(`10 Gb/sec (4X)`). A text that is none of these gives None: unknown, not a fault.
"""

import re

import msgspec

LANE_MBPS = {
    "SDR": 2_500,
    "DDR": 5_000,
    "QDR": 10_000,
    "FDR10": 10_000,
    "FDR": 14_000,
    "EDR": 25_000,
    "HDR": 50_000,
    "NDR": 100_000,
    "XDR": 200_000,
}
"""Mb/s of one lane, by the name that the kernel prints."""

STATES = {0: "NOP", 1: "DOWN", 2: "INIT", 3: "ARMED", 4: "ACTIVE", 5: "ACTIVE_DEFER"}
PHYSICAL_STATES = {
    1: "Sleep",
    2: "Polling",
    3: "Disabled",
    4: "PortConfigurationTraining",
    5: "LinkUp",
    6: "LinkErrorRecovery",
    7: "Phy Test",
}
DOWN, INIT, ACTIVE, LINK_UP = 1, 2, 4, 5
UNDECODED = "SDR"
"""What a kernel prints for a lane speed that it has no name for: the slowest one."""

_RATE = re.compile(r"([0-9]{1,5})(?:\.([0-9]))? Gb/sec \(([0-9]{1,2})X ?([A-Z0-9]{0,8})\)")
_STATE = re.compile(r"([0-9]{1,2}): ?.{1,64}")


class Rate(msgspec.Struct, frozen=True):
    """`mbps` of all `lanes` together; `lane` is the kernel's name of a lane's speed."""

    mbps: int
    lanes: int
    lane: str

    def shown(self) -> str:
        """Write it for people: `400 Gb/s (4X NDR)`."""
        return f"{gbps(self.mbps)} ({self.lanes}X {self.lane})"


def rate_of(text: str) -> Rate | None:
    """Read the file `rate`; None for any other text."""
    found = _RATE.fullmatch(text.strip())
    if found is None:
        return None
    mbps = int(found[1]) * 1000 + int(found[2] or 0) * 100
    lanes = int(found[3])
    return Rate(mbps, lanes, found[4] or UNDECODED) if mbps and lanes else None


def state_of(text: str) -> int | None:
    """Read the file `state`: the number of one of STATES; None for any other text."""
    number = _numbered(text)
    return number if number in STATES else None


def physical_state_of(text: str) -> int | None:
    """Read the file `phys_state`: the number of one of PHYSICAL_STATES; None for any other text (`8: <unknown>`)."""
    number = _numbered(text)
    return number if number in PHYSICAL_STATES else None


def gbps(mbps: int) -> str:
    """Write Mb/s as Gb/s for people: `400 Gb/s`, `2.5 Gb/s`."""
    whole, rest = divmod(mbps, 1000)
    return f"{whole}.{rest // 100} Gb/s" if rest else f"{whole} Gb/s"


def _numbered(text: str) -> int | None:
    found = _STATE.fullmatch(text.strip())
    return int(found[1]) if found is not None else None
