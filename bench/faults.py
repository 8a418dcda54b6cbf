"""What is written into the kernel logs, and when: faults to be measured, and a storm of application XIDs beside them. Pure.

Times are seconds from the start of a phase and fixed beforehand (an open loop): a slow answer never puts off the next line,
so a stall is measured by every sample that falls into it.

A condition's message names its findings worst first and is cut at 1,024 characters. So a node's faults come in the reverse
of that order: each new one is named first, and is seen in the message however many stand before it.
"""

from collections.abc import Sequence

import msgspec

from checks.finding import Severity
from checks.xid_reasons import XID_REASONS

GPUS = 8
# Two hardware faults of equal effect; each on eight GPUs is what one node can show, one after the other.
_FAULTS = (
    (95, "Uncontained: SM (0x1). RST: No, D-RST: No"),
    (
        48,
        "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at partition 3.",
    ),
)
MOST_PER_NODE = GPUS * len(_FAULTS)
# What programs do wrong: shown as warnings, never a fault (checks/xid_catalog.csv says so, and a test holds it to that).
_APPLICATION = (
    (13, "Graphics SM Warp Exception on (GPC 1, TPC 2, SM 0): Out Of Range Address"),
    (31, "Ch 00000010, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f_a0000000"),
    (43, "Ch 00000020"),
    (45, "Ch 00000030"),
)


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line to be written at `at_s` on node number `node`, about GPU number `gpu`. `pid` is the driver's word for it."""

    at_s: float
    node: int
    gpu: int
    code: int
    text: str
    pid: str = "'<unknown>'"

    @property
    def reason(self) -> str:
        return XID_REASONS[self.code].name


def faults(
    *, count: int, nodes: int, rate: float, told: Sequence[int] | None = None
) -> tuple[tuple[Line, ...], tuple[int, ...]]:
    """Spread `count` faults over `nodes` in turn, `rate` a second; `told` says how many each node had before.

    Gives the lines, and how many each node has had after them. Raises ValueError where a node would have more than it can
    show.
    """
    had = list(told) if told is not None else [0] * nodes
    lines = []
    for number in range(count):
        node = number % nodes
        if had[node] >= MOST_PER_NODE:
            raise ValueError(f"{count} faults on {nodes} nodes: a node can show at most {MOST_PER_NODE}")
        code, text = _FAULTS[had[node] // GPUS]
        gpu = GPUS - 1 - had[node] % GPUS
        had[node] += 1
        lines.append(Line(at_s=number / rate, node=node, gpu=gpu, code=code, text=text))
    return tuple(lines), tuple(had)


def storm(beside: Sequence[Line], *, rate: float, lead_s: float) -> tuple[Line, ...]:
    """Give application XIDs at `rate` a second in all, from `lead_s` before the first fault until the last one.

    All of them go into the log of the node that fails next, right in front of its fault: the worst place for them.
    """
    lines: list[Line] = []
    position = 0
    end = beside[-1].at_s if beside else 0.0
    for number in range(int((end + lead_s) * rate)):
        at = number / rate - lead_s
        while beside[position].at_s < at:
            position += 1
        code, text = _APPLICATION[number % len(_APPLICATION)]
        gpu = number // len(_APPLICATION) % GPUS
        lines.append(
            Line(
                at_s=at,
                node=beside[position].node,
                gpu=gpu,
                code=code,
                text=text,
                pid=str(10_000 + number % 50_000),
            )
        )
    return tuple(lines)


def why_not_application(code: int) -> str | None:
    """Say why an XID is not only a program's own trouble, or None."""
    reason = XID_REASONS.get(code)
    if reason is None:
        return f"XID {code} is not in the catalogue"
    return None if reason.severity is Severity.WARNING else f"XID {code} turns the condition True"
