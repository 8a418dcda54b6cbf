"""The lines of the storm, as kernel records: a driver that reports XIDs of programs, and what else kernels say. Pure."""

from collections.abc import Sequence

# Each of these is a program's own trouble (checks/xid_catalog.csv), so none may turn a condition.
_XIDS = (
    (45, "Ch 00000030"),
    (13, "Graphics SM Warp Exception on (GPC 1, TPC 2, SM 0): Out Of Range Address"),
    (31, "Ch 00000010, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f_a0000000"),
)
_OTHERS = (
    'audit: type=1400 audit({number}.000:{number}): apparmor="ALLOWED" operation="open" profile="containerd"',
    "eth0: renamed from veth{number:x}",
    "cgroup: fork rejected by pids controller in /kubepods.slice/kubepods-burstable.slice/pod{number}",
    "TCP: request_sock_TCP: Possible SYN flooding on port {number}. Sending cookies.",
    "mlx5_core 0000:19:00.0 ibp25s0: Link is up, {number} events before",
)
WARNING = 4


def text(number: int, gpus: Sequence[str]) -> str:
    """Give line `number`: every other one an XID of one of the `gpus`, named by PCI address without function."""
    half = number // 2
    if number % 2:
        return _OTHERS[half % len(_OTHERS)].format(number=number)
    code, words = _XIDS[half % len(_XIDS)]
    pci = gpus[half // len(_XIDS) % len(gpus)]
    return f"NVRM: Xid (PCI:{pci}): {code}, pid={10_000 + half % 50_000}, name=python, {words}"


def fallen(pci: str) -> str:
    """Give the line of a GPU that has fallen off the bus."""
    return f"NVRM: Xid (PCI:{pci}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def record(sequence: int, microseconds: int, words: str) -> bytes:
    """Give a record as /dev/kmsg does (Documentation/ABI/testing/dev-kmsg); `words` are printable ASCII."""
    return f"{WARNING},{sequence},{microseconds},-;{words}\n".encode()
