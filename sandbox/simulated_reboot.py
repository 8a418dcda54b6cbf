"""The sandbox's reboot command: `python -m sandbox.simulated_reboot --boot-id ID`, run as a repair's container.

Like `nodemend-agent reboot` it refuses unless the machine still runs in the boot it was told to end, and like
`systemctl reboot` it only asks: the answer is there before the machine goes down. What then happens to the machine is
`sandbox.power`. It reaches nothing but the folder of its simulated machine, so it can hurt no real one.
"""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

NODE_DIR = "NODEMEND_SANDBOX_NODE_DIR"
_IN_A_POD = "/dev/simulated"  # where a kubelet's node shows it to the pods of repairs (`sandbox.node_files`)
_REQUEST = "reboot-requested"


def main(arguments: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Ask for the reboot: 0 asked, 1 refused since the machine is in another boot, 2 bad use, 3 no simulated machine."""
    parser = argparse.ArgumentParser(prog="simulated_reboot", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--boot-id", required=True, help="the boot that is to end")
    wanted = parser.parse_args(arguments).boot_id
    root = environ.get(NODE_DIR, _IN_A_POD)
    boot_id_file = Path(root, "proc/sys/kernel/random/boot_id")
    if not root or not boot_id_file.is_file():
        print(f"{root!r} ({NODE_DIR}) is not the folder of a simulated machine", file=sys.stderr)
        return 3
    current = boot_id_file.read_text().strip()
    if current != wanted:
        print(f"boot {wanted} has ended already, this is {current}: not rebooting", file=sys.stderr)
        return 1
    pending = Path(root, f".{_REQUEST}")
    pending.write_text(current)
    pending.rename(Path(root, _REQUEST))
    print(f"simulated reboot of {Path(root).name} asked for, ending boot {current}")
    return 0


def take_request(root: Path) -> str | None:
    """Take the request that lies in a machine's folder, if there is one: the boot id that is to end."""
    request = root / _REQUEST
    try:
        boot_id = request.read_text()
        request.unlink()
    except FileNotFoundError:
        return None
    return boot_id


if __name__ == "__main__":
    sys.exit(main())
