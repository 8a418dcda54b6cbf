"""Runs as a script: makes the namespaces and the root of a kubelet's node, and is its process 1 until it is killed.

The node is a machine of its own to everything in it: processes, mounts, network, host name, `/proc`, `/sys`, `/dev`, `/run`
and the usual paths (`/var/lib/kubelet`, `/run/containerd`), while `/usr` is this machine's, read-only. So DaemonSets with
hostPaths work unchanged, several nodes stand side by side, and nothing in a node (hostPID, privileged) sees this machine's
processes, mounts or interfaces. Killing this script is the power cut: the kernel then ends every process of the node, and
with them go its mounts, its bridge and its cable. What stays is its folder and its cgroup.

Two processes: the outer one stays in this machine's namespaces, lays the cable and waits; the inner one is process 1. Stands
alone on the standard library: it is run by path, isolated (`python -I -S`).
"""

import ctypes
import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

_LIBC = ctypes.CDLL(None, use_errno=True)
_NEW_PID, _NEW_NS, _NEW_NET, _NEW_UTS, _NEW_IPC = 0x20000000, 0x00020000, 0x40000000, 0x04000000, 0x08000000
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT, _BIND, _REC = 1, 2, 4, 8, 32, 4096, 16384
_PRIVATE, _SHARED = 1 << 18, 1 << 20
_DETACH = 2
_PR_SET_PDEATHSIG = 1
# kubelet sets these of the whole kernel (pkg/kubelet/cm, kernel tunables): it finds them set, and this machine's stay.
_TUNABLES = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
_DEVICES = {"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9, "kmsg": 11}  # of the major number 1


def main(arguments: list[str]) -> int:
    """Take the path of a JSON file: see `sandbox.node_machine`, which writes it."""
    told = json.loads(Path(arguments[0]).read_text())
    ask_read, ask_write = os.pipe()
    answer_read, answer_write = os.pipe()
    mine = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    _check(_LIBC.unshare(_NEW_PID), "unshare(CLONE_NEWPID)")
    inner = os.fork()
    if inner == 0:
        _check(_LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")
        _check(_LIBC.unshare(_NEW_NS | _NEW_NET | _NEW_UTS | _NEW_IPC), "unshare")
        os.write(ask_write, b".")
        os.close(answer_write)
        if not os.read(answer_read, 1):
            return 1  # the outer one ended, and said why
        return _live(told)
    _check(_LIBC.setns(mine, _NEW_PID), "setns")  # what else this process starts is none of the node's
    os.close(ask_write)
    if os.read(ask_read, 1):
        _lay_cable(told["network"], inner)
        Path(told["pid_file"]).write_text(str(inner))
        os.write(answer_write, b".")
    return os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1])


def _live(told: dict[str, Any]) -> int:
    _plug_in(told["network"])
    _check(_LIBC.mount(b"none", b"/", None, _PRIVATE | _REC, None), "mount --make-rprivate /")
    root = Path(told["root"])
    _build_root(root, told)
    old = root / "old-root"
    old.mkdir(exist_ok=True)
    _check(_LIBC.pivot_root(os.fsencode(root), os.fsencode(old)), "pivot_root")
    os.chdir("/")
    _check(_LIBC.umount2(b"/old-root", _DETACH), "umount old root")
    _check(
        _LIBC.mount(b"none", b"/", None, _SHARED | _REC, None), "mount --make-rshared /"
    )  # kubelet's demand
    _check(_LIBC.sethostname(told["name"].encode(), len(told["name"])), "sethostname")
    Path("/run/booted").touch()
    while True:  # process 1 of a machine: everything that lost its parent ends here
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            signal.sigtimedwait({signal.SIGCHLD}, 1.0)


def _build_root(root: Path, told: dict[str, Any]) -> None:
    machine = Path(told["machine"])
    _bind(root, root)
    _bind_system(root)
    _mount_run(root, machine)
    for source, target in told["binds"].items():
        _bind(Path(source), root / target.lstrip("/"))
    _mount_proc(root, machine)
    _mount_sys(root, machine)
    _mount_dev(root, real_kernel_log=told["real_kernel_log"])


def _bind_system(root: Path) -> None:
    """Show this machine's programs and libraries, read-only."""
    _bind(Path("/usr"), root / "usr", read_only=True)
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        here, there = Path("/", name), root / name
        if here.is_symlink():
            if not there.is_symlink():
                there.symlink_to(here.readlink())
        elif here.is_dir():
            _bind(here, there, read_only=True)
    for name in ("etc/alternatives", "etc/ld.so.cache"):
        if Path("/", name).exists():
            _bind(Path("/", name), root / name, read_only=True)


def _mount_run(root: Path, machine: Path) -> None:
    _mount("tmpfs", root / "run", _NOSUID, "mode=755")
    _bind(machine / "driver", root / "run/nvidia/driver")
    # A folder, since the simulated kernel log replaces its pipe (`sandbox.kernel_log`): a bound file would stay the old one.
    _bind(machine / "dev", root / "run/simulated/dev")
    # What kubelet sees in its place (`node_enter`): it reads /dev/kmsg for OOM kills, and would take records off the pipe.
    hidden = root / "run/simulated/hidden"
    hidden.mkdir(parents=True)
    os.mknod(hidden / "kmsg", 0o600 | stat.S_IFCHR, os.makedev(1, _DEVICES["null"]))


def _mount_proc(root: Path, machine: Path) -> None:
    proc = root / "proc"
    _mount("proc", proc, _NOSUID | _NODEV | _NOEXEC)
    _bind(machine / "proc/sys/kernel/random/boot_id", proc / "sys/kernel/random/boot_id")
    _bind(machine / "proc/driver", proc / "driver")
    for path, value in _TUNABLES.items():
        if (proc / "sys" / path).exists():
            stand_in = root / "run/tunables" / path
            stand_in.parent.mkdir(parents=True, exist_ok=True)
            stand_in.write_text(f"{value}\n")
            _bind(stand_in, proc / "sys" / path)
    if (proc / "sysrq-trigger").exists():  # a write to the real one would hit this machine
        sysrq = root / "run/tunables/sysrq-trigger"
        sysrq.touch()
        _bind(sysrq, proc / "sysrq-trigger")


def _mount_sys(root: Path, machine: Path) -> None:
    sys_folder = root / "sys"
    _mount("sysfs", sys_folder, _NOSUID | _NODEV | _NOEXEC)
    _bind(Path("/sys/fs/cgroup"), sys_folder / "fs/cgroup", recursive=True)
    net = machine / "sys/class/net"
    net.mkdir(parents=True, exist_ok=True)
    _bind(sys_folder / "class/net", net)
    _bind(machine / "sys/class", sys_folder / "class", recursive=True)
    _bind(machine / "sys/bus", sys_folder / "bus")


def _mount_dev(root: Path, *, real_kernel_log: bool) -> None:
    dev = root / "dev"
    _mount("tmpfs", dev, _NOSUID, "mode=755")
    for name, minor in _DEVICES.items():
        if name != "kmsg" or real_kernel_log:
            os.mknod(dev / name, stat.S_IFCHR | 0o666, os.makedev(1, minor))
            (dev / name).chmod(0o600 if name == "kmsg" else 0o666)
    os.mknod(dev / "tty", stat.S_IFCHR | 0o666, os.makedev(5, 0))
    if not real_kernel_log:
        (dev / "kmsg").symlink_to("/run/simulated/dev/kmsg")
    _mount("devpts", dev / "pts", _NOSUID | _NOEXEC, "newinstance,ptmxmode=0666,mode=0620")
    _mount("tmpfs", dev / "shm", _NOSUID | _NODEV)
    _mount("mqueue", dev / "mqueue", _NOSUID | _NODEV | _NOEXEC)
    (dev / "ptmx").symlink_to("pts/ptmx")
    for name, target in (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        (dev / name).symlink_to(f"/proc/self/{target}")


def _lay_cable(network: dict[str, str], inner: int) -> None:
    """Connect this machine and the node by a pair of interfaces, which go when the node's namespace goes."""
    here = network["interface"]
    _ip("link", "add", here, "type", "veth", "peer", "name", "eth0", "netns", str(inner))
    _ip("address", "add", f"{network['host']}/30", "dev", here)
    _ip("link", "set", here, "up")
    _ip("route", "add", network["pods"], "via", network["node"])


def _plug_in(network: dict[str, str]) -> None:
    _ip("link", "set", "lo", "up")
    _ip(
        "address", "add", f"{network['service']}/32", "dev", "lo"
    )  # what kube-proxy would lead to the API server
    _ip("address", "add", f"{network['node']}/30", "dev", "eth0")
    _ip("link", "set", "eth0", "up")
    _ip("route", "add", "default", "via", network["host"])
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1\n")  # of the node's own network namespace


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, timeout=30)


def _bind(source: Path, target: Path, *, read_only: bool = False, recursive: bool = False) -> None:
    if not target.exists():
        if source.is_dir():
            target.mkdir(parents=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()
    flags = _BIND | (_REC if recursive else 0)
    paths = os.fsencode(source), os.fsencode(target)
    _check(_LIBC.mount(*paths, None, flags, None), f"mount --bind {source} {target}")
    if read_only:
        remount = _LIBC.mount(None, paths[1], None, _BIND | _REMOUNT | _RDONLY, None)
        _check(remount, f"mount -o remount,ro,bind {target}")


def _mount(kind: str, target: Path, flags: int, options: str = "") -> None:
    target.mkdir(parents=True, exist_ok=True)
    name = kind.encode()
    done = _LIBC.mount(name, os.fsencode(target), name, flags, options.encode() or None)
    _check(done, f"mount -t {kind} {target}")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
