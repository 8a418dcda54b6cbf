"""`nodemend-agent reboot --boot-id ID`: end this boot, and no other one.

The Job that runs it may start late, or on a machine that was rebooted meanwhile: then the boot that it was sent to end is
over, and it refuses. How the machine is rebooted is the configuration's word; success only says that the reboot was
asked for, its proof is the next boot id.
"""

import subprocess
from collections.abc import Callable, Sequence

import msgspec

from agent.config import Config
from agent.host.boot import BootIdUnreadable, read_boot_id

COMMAND_TIMEOUT_S = 60
Run = Callable[[Sequence[str], int], "Ran"]


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended: its exit status, or -1 where it could not be started or did not end; `said` is its output."""

    status: int
    said: str
    missing: bool = False


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    exit_code: int
    message: str


def run_command(command: Sequence[str], timeout_s: int) -> Ran:
    """Run a command, at most `timeout_s` seconds; never raises."""
    try:
        done = subprocess.run(  # the command is the configuration's, never a shell's
            list(command), capture_output=True, timeout=timeout_s, check=False
        )
    except FileNotFoundError as error:
        return Ran(status=-1, said=str(error), missing=True)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Ran(status=-1, said=str(error))
    said = (done.stdout + done.stderr).decode(errors="replace").strip()
    return Ran(status=done.returncode, said=said[-1024:])


def reboot(config: Config, boot_id: str, run: Run = run_command) -> Outcome:
    """Reboot if `boot_id` is the present boot: 0 asked for, 1 refused or failed, 2 no id given, 3 something is missing."""
    if not boot_id:
        return Outcome(exit_code=2, message="--boot-id is empty: give the boot id that is to end")
    try:
        current = read_boot_id(config.roots.proc)
    except BootIdUnreadable as error:
        return Outcome(
            exit_code=3, message=f"not rebooting, since the present boot id is unreadable: {error}"
        )
    if current != boot_id:
        return Outcome(exit_code=1, message=f"not rebooting: this is boot {current}, boot {boot_id} is over")
    command = config.reboot.command
    ran = run(command, COMMAND_TIMEOUT_S)
    if ran.missing:
        return Outcome(exit_code=3, message=f"not rebooting: {command[0]} is not there ({ran.said})")
    if ran.status != 0:
        return Outcome(exit_code=1, message=f"{' '.join(command)} failed with {ran.status}: {ran.said}")
    return Outcome(exit_code=0, message=f"reboot asked for, to end boot {boot_id}")
