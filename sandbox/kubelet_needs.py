"""What a machine needs for a kubelet's node: root, namespaces, cgroups, a few Debian packages. Nothing is installed here."""

import os
import shutil
import subprocess
from pathlib import Path

from sandbox import cgroups, image

CNI_PLUGINS = Path("/usr/lib/cni")
# Program to Debian package; kubelet itself is built (`sandbox.programs`).
PROGRAMS = {
    "containerd": "containerd",
    "containerd-shim-runc-v2": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "ip": "iproute2",
}
_PATH = "/usr/sbin:/usr/bin"  # what of this machine is seen in a node


def why_not_here() -> str | None:
    """Say everything that keeps a kubelet's node from running on this machine, with the apt line; None where it can."""
    if os.geteuid() != 0:
        return "a real kubelet and containerd need root; everything else of the sandbox does not"
    checks = (_missing_packages(), image.why_not_build(), _no_namespaces(), cgroups.why_not_usable())
    reasons = [reason for reason in checks if reason]
    return "; ".join(reasons) or None


def _missing_packages() -> str | None:
    missing = {package for name, package in PROGRAMS.items() if not shutil.which(name, path=_PATH)}
    if not all((CNI_PLUGINS / name).exists() for name in ("bridge", "host-local", "loopback")):
        missing.add("containernetworking-plugins")
    if not missing:
        return None
    names = " ".join(sorted(missing))
    return f"{names.replace(' ', ', ')} missing (apt-get install --no-install-recommends {names})"


def _no_namespaces() -> str | None:
    if not shutil.which("unshare"):
        return "unshare is missing (apt-get install util-linux)"
    command = ["unshare", "--pid", "--fork", "--mount", "--net", "--uts", "--ipc", "--mount-proc", "true"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return None if done.returncode == 0 else f"no new namespaces can be made here ({done.stderr.strip()})"
