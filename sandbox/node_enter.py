"""Runs as a script before each program of a kubelet's node: enters the node's namespaces, starts the program there, waits.

The program becomes a child in the node's process namespace, so this script stays its parent outside: it hands on SIGTERM,
SIGINT and SIGHUP, dies with it and it with this script. Stands alone on the standard library: it is run by path, isolated
(`python -I -S`), and nothing can be imported any more once it is in the node.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path
from types import FrameType

_NEW_PID, _NEW_NS, _NEW_NET, _NEW_UTS, _NEW_IPC = 0x20000000, 0x00020000, 0x40000000, 0x04000000, 0x08000000
_BIND, _REC, _SLAVE = 4096, 16384, 1 << 19
_PR_SET_PDEATHSIG = 1
HIDE_KERNEL_LOG = "hide-kernel-log"


def enter(init: int) -> None:
    """Enter all namespaces of the node whose process 1 is `init` here; only children enter its process namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    handle = os.pidfd_open(init)
    if libc.setns(handle, _NEW_PID | _NEW_NS | _NEW_NET | _NEW_UTS | _NEW_IPC) != 0:
        raise OSError(ctypes.get_errno(), f"setns to the namespaces of {init}")
    os.close(handle)


def hide_kernel_log() -> None:
    """Show /dev/null to this program where the node's others see the simulated kernel log.

    Its mounts stay the others' too: kubelet's volumes have to reach the containers.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if (
        libc.unshare(_NEW_NS) != 0
        or libc.mount(b"none", b"/run", None, _SLAVE | _REC, None) != 0
        or libc.mount(b"/run/simulated/hidden", b"/run/simulated/dev", None, _BIND, None) != 0
    ):
        raise OSError(ctypes.get_errno(), "hiding the kernel log")


def main(arguments: list[str]) -> int:
    """Take the pid of the node's process 1, `hide-kernel-log` or nothing, and the program with its arguments."""
    init, option, *command = arguments
    libc = ctypes.CDLL(None, use_errno=True)
    enter(int(init))
    if option == HIDE_KERNEL_LOG:
        hide_kernel_log()
    os.chdir("/")
    alive, lives = os.pipe()
    child = os.fork()
    if child == 0:
        libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        os.close(lives)
        os.set_blocking(alive, False)
        try:
            os.read(alive, 1)
        except BlockingIOError:
            os.execv(command[0], command)  # noqa: S606 - becoming the program is this script's whole purpose
        os._exit(1)  # the parent ended before the kernel was asked to tell

    def hand_on(signum: int, _frame: FrameType | None) -> None:
        os.kill(child, signum)

    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, hand_on)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    os.environ["PATH"] = "/usr/sbin:/usr/bin:/sbin:/bin"
    os.environ["HOME"] = "/root"
    if not Path(f"/proc/{sys.argv[1]}").exists():
        sys.exit(f"the node's process {sys.argv[1]} is gone")
    sys.exit(main(sys.argv[1:]))
