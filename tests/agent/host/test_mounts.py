"""What is read of shared mounts and local file systems: mountinfo and a child's answer, on real files."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.host.children import ChildProcess, Children, program
from agent.host.mountinfo import Mount, host_root, mount_of, parse, read_mountinfo
from agent.host.mounts import LocalFileSystems, Look, SharedMounts, look_of
from agent.wanted_mount import wanted_mount
from checks.storage_reading import MountReading
from kube.clock import SYSTEM
from tests.agent.host.host_tree import NEVER, HostTree

LINES = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/vda1 ro,errors=remount-ro
23 22 0:21 / /proc rw,nosuid shared:5 master:3 propagate_from:2 - proc proc rw
24 22 0:40 / /with\\040blank ro,relatime - squashfs /dev/loop0 ro
25 22 0:41 / /data rw - autofs systemd-1 rw,fd=53
26 25 0:42 / /data rw,relatime shared:7 - nfs4 filer:/data rw,vers=4.2
27 22 too short
28 22 0:43 / /half rw -
"""


def test_mountinfo_is_read_with_both_fields_of_options() -> None:
    """The uppermost mount of a path counts, blanks are unescaped, odd lines are left out."""
    mounts = parse(LINES)
    assert list(mounts) == ["/", "/proc", "/with blank", "/data"]
    assert [path for path, mount in mounts.items() if mount.read_only] == ["/", "/with blank"]
    assert (mounts["/data"].fstype, mounts["/data"].source) == ("nfs4", "filer:/data")


@pytest.mark.parametrize(
    ("path", "found"),
    [
        pytest.param("/data/set/1", "/data", id="below a mount"),
        pytest.param("/data", "/data", id="the mount itself"),
        pytest.param("/database", "/", id="a name that only begins alike"),
        pytest.param("/", "/", id="the root"),
    ],
)
def test_the_mount_that_a_path_lies_in(path: str, found: str) -> None:
    """By whole names."""
    mount = mount_of(path, parse(LINES))
    assert mount is not None
    assert mount.path == found


def test_a_mountinfo_that_says_nothing_is_no_reading(tmp_path: Path) -> None:
    """An empty one would make every mount a missing one."""
    with pytest.raises(OSError, match="mountinfo"):
        read_mountinfo(tmp_path)
    (tmp_path / "1").mkdir()
    (tmp_path / "1/mountinfo").write_text("")
    with pytest.raises(ValueError, match="names no mount"):
        read_mountinfo(tmp_path)


@given(st.text(max_size=300))
def test_no_mountinfo_raises(text: str) -> None:
    """Whatever a line holds."""
    assert all(isinstance(mount, Mount) for mount in parse(text + "\n" + LINES).values())


def test_the_hosts_root_is_that_of_its_first_process(tmp_path: Path) -> None:
    """A procfs that shows no first process is no reading; a user on a machine of their own sees its mounts directly."""
    host = HostTree(tmp_path)
    assert host_root(host.proc) == host.root
    assert host_root(Path("/proc")) in (Path("/"), Path("/proc/1/root"))
    with pytest.raises(OSError, match="1/root"):
        host_root(tmp_path / "none")


def shared(
    host: HostTree, *wanted: str, command: Sequence[str] = (), look: Look | None = None
) -> list[MountReading]:
    """Read the mounts once; `command` takes the place of the child's."""
    made = look_of(look or Look(entry=True), host.proc, 10)
    mounts = SharedMounts(
        host.proc,
        [wanted_mount(text) for text in wanted],
        Children(0.3 if command else 10),
        (lambda _: command) if command else made,
        SYSTEM.now,
    )
    return list(mounts.read().mounts)


def test_a_mount_that_is_there_and_answers(tmp_path: Path) -> None:
    """Its free space is the real one of the file system that the files lie on."""
    host = HostTree(tmp_path)
    host.mount("/data")
    (reading,) = shared(host, "/data")
    held = os.statvfs(tmp_path)
    assert (reading.mounted, reading.fstype, reading.source) == (True, "nfs4", "filer:/data")
    assert (reading.read_only, reading.error, reading.hangs_ms) == (False, "", None)
    assert abs((reading.free_percent or 0) - held.f_bavail * 100 // held.f_blocks) <= 1
    assert reading.took_ms is not None
    assert reading.options == "rw,relatime rw,vers=4.2"


def test_a_mount_that_is_missing_is_not_looked_at(tmp_path: Path) -> None:
    """Its directory is still there, and would answer for the disk below."""
    host = HostTree(tmp_path)
    host.mount("/data")
    host.unmount("/data")
    assert shared(host, "/data:ro", command=NEVER) == [
        MountReading(path="/data", mounted=False, may_be_read_only=True)
    ]


@pytest.mark.parametrize(
    ("options", "super_options"),
    [
        pytest.param("ro,relatime", "rw", id="by the mount's own option"),
        pytest.param("rw,relatime", "ro", id="by the file system's, as after an error"),
    ],
)
def test_a_read_only_mount(tmp_path: Path, options: str, super_options: str) -> None:
    """Either field of mountinfo says so."""
    host = HostTree(tmp_path)
    host.mount("/data", options=options, super_options=super_options)
    assert [reading.read_only for reading in shared(host, "/data")] == [True]


def test_a_mount_that_hangs_does_not_hide_the_others(tmp_path: Path) -> None:
    """Mountinfo is still read of it."""
    host = HostTree(tmp_path)
    host.mount("/data")
    (reading,) = shared(host, "/data", command=NEVER)
    assert (reading.mounted, reading.read_only, reading.took_ms) == (True, False, None)
    assert reading.hangs_ms is not None


@pytest.mark.parametrize(
    ("said", "error", "number"),
    [
        pytest.param("error 116 statvfs", "statvfs: Stale file handle", 116, id="a stale handle"),
        pytest.param("nonsense", "the look said b'nonsense'", 0, id="nonsense"),
        pytest.param("", "the look said b''", 0, id="nothing"),
        pytest.param("ok 1 2 3 x 0 1 /", "the look said b'ok 1 2 3 x 0 1 /'", 0, id="half a number"),
    ],
)
def test_what_a_child_says_otherwise(tmp_path: Path, said: str, error: str, number: int) -> None:
    """Nothing of it is taken for an answer."""
    host = HostTree(tmp_path)
    host.mount("/data")
    says = (sys.executable, "-I", "-S", "-c", f"print({said!r}, end='')")
    mounts = SharedMounts(host.proc, [wanted_mount("/data")], Children(10), lambda _: says, SYSTEM.now)
    (reading,) = mounts.read().mounts
    assert (reading.error, reading.errno, reading.took_ms, reading.free_percent) == (
        error,
        number,
        None,
        None,
    )


@pytest.mark.parametrize(
    ("autofs", "path"),
    [pytest.param("/data", "/data", id="direct"), pytest.param("/net", "/net/data", id="below a map")],
)
def test_a_mount_point_that_is_made_when_it_is_looked_at(tmp_path: Path, autofs: str, path: str) -> None:
    """autofs mounts what belongs there because the child looks: mountinfo is read again."""
    host = HostTree(tmp_path)
    host.mount(autofs, fstype="autofs", source="systemd-1")
    code = (
        f"import pathlib; p = pathlib.Path({str(host.proc / '1/mountinfo')!r}); "
        f"p.write_text(p.read_text() + '99 1 0:50 / {path} rw shared:9 - nfs4 filer:/x ro\\n'); "
        f"print('ok 100 50 0 0 1 3 {path}', end='')"
    )
    command = (sys.executable, "-I", "-S", "-c", code)
    mounts = SharedMounts(host.proc, [wanted_mount(path)], Children(10), lambda _: command, SYSTEM.now)
    (reading,) = mounts.read().mounts
    assert (reading.fstype, reading.read_only, reading.free_inodes_percent) == ("nfs4", True, None)


def test_a_mount_that_autofs_could_not_make_is_missing(tmp_path: Path) -> None:
    """Its own place holder answers, and is no mount; one that hangs while it is made hangs."""
    host = HostTree(tmp_path)
    host.mount("/data", fstype="autofs", source="systemd-1")
    host.mount("/net", fstype="autofs", source="auto.net")
    assert [reading.mounted for reading in shared(host, "/data", "/net/data")] == [False, False]
    for hangs in shared(host, "/data", "/net/data", command=NEVER):
        assert (hangs.mounted, hangs.hangs_ms is not None) == (True, True)


def test_two_looks_at_once_are_refused(tmp_path: Path) -> None:
    """A look from before a change of boot may still be under way."""
    host = HostTree(tmp_path)
    host.mount("/data")
    begun = threading.Event()

    def start(command: Sequence[str]) -> ChildProcess:
        begun.set()
        return ChildProcess(command)

    children = Children(0.3, start)
    mounts = SharedMounts(host.proc, [wanted_mount("/data")], children, lambda _: NEVER, SYSTEM.now)
    first = threading.Thread(target=mounts.read)
    first.start()
    assert begun.wait(10)
    with pytest.raises(OSError, match="a look is under way already"):
        mounts.read()
    first.join()


def local(host: HostTree, *paths: str, command: Sequence[str] = ()) -> dict[str, MountReading]:
    """Read local file systems once, by path."""
    made = look_of(Look(), host.proc, 10)
    children = Children(0.3 if command else 10)
    readings = LocalFileSystems(host.proc, paths, children, (lambda _: command) if command else made).read()
    return {reading.path: reading for reading in readings}


def test_local_paths_on_one_file_system_are_one(tmp_path: Path) -> None:
    """Under the first of their names; what is not there is left out; symbolic links are the host's own."""
    host = HostTree(tmp_path)
    host.mount("/mnt/fast", fstype="xfs", source="/dev/md0", super_options="rw,attr2")
    for path in ("var/lib/kubelet", "mnt/fast/containerd"):
        (host.root / path).mkdir(parents=True)
    (host.root / "var/lib/containerd").symlink_to("../../mnt/fast/containerd")
    readings = local(host, "/", "/var/lib/kubelet", "/var/lib/containerd", "/var/lib/docker")
    assert {path: reading.source for path, reading in readings.items()} == {
        "/": "/dev/vda1",
        "/var/lib/containerd": "/dev/md0",
    }
    assert not any(reading.shared for reading in readings.values())


def test_no_local_path_at_all_is_no_reading(tmp_path: Path) -> None:
    """Nothing read is never fine."""
    host = HostTree(tmp_path)
    with pytest.raises(ValueError, match=r"none of /a, /b is there"):
        local(host, "/a", "/b")
    shutil.rmtree(host.root)
    with pytest.raises(OSError, match="1/root"):
        local(host, "/a")


def test_a_local_file_system_that_hangs_stands_for_itself(tmp_path: Path) -> None:
    """Each path that does not come back is named, since nobody knows where it lies."""
    host = HostTree(tmp_path)
    (host.root / "var").mkdir()
    readings = local(host, "/", "/var", command=NEVER)
    assert [reading.hangs_ms is not None for reading in readings.values()] == [True, True]


def run_child(*arguments: str) -> str:
    return subprocess.run(
        program("mount_child.py", "5", *arguments), check=True, capture_output=True, text=True
    ).stdout


def test_the_child_reads_an_entry_and_writes_a_file_and_leaves_none(tmp_path: Path) -> None:
    """What lies under the file's name is removed, never followed or written to."""
    (tmp_path / "precious").write_text("kept")
    (tmp_path / ".probe").symlink_to("precious")
    said = run_child(str(tmp_path), "/", "entry", "write=.probe")
    assert said.split()[0] == "ok"
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]
    assert (tmp_path / "precious").read_text() == "kept"


def test_the_child_says_what_is_not_there(tmp_path: Path) -> None:
    """By its number and what was tried."""
    assert run_child(str(tmp_path), "/nothing") == "error 2 statvfs"
    assert run_child(str(tmp_path / "no-root"), "/") == "error 2 root"


@pytest.mark.skipif(os.geteuid() != 0, reason="entering a root directory takes CAP_SYS_CHROOT")
def test_a_path_is_the_hosts_own_with_its_links(tmp_path: Path) -> None:
    """An absolute symbolic link leads below the host's root, not to ours."""
    host = HostTree(tmp_path)
    (host.root / "real").mkdir()
    (host.root / "link").symlink_to("/real")
    assert run_child(str(host.root), "/link").split()[-1] == "/real"


@pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace of its own takes CAP_SYS_ADMIN")
def test_a_mount_of_another_namespace_is_seen_through_its_process(tmp_path: Path) -> None:
    """`/proc/PID/root` shows what is mounted for PID, which is what a pod needs to see the host's mounts."""
    target = tmp_path / "mounted"
    target.mkdir()
    script = f"mount -t tmpfs -o size=64k,ro nodemend {target} && echo there && exec cat"
    with subprocess.Popen(
        ("unshare", "--mount", "sh", "-c", script), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        if other.stdout.readline() != b"there\n":
            pytest.skip("this machine lets us make no mount namespace")
        said = run_child(f"/proc/{other.pid}/root", str(target)).split()
        ours = run_child("/", str(target)).split()
        other.stdin.close()
    assert (said[0], said[1], said[5]) == ("ok", str(65536 // os.sysconf("SC_PAGE_SIZE")), "1")
    assert ours[1] != said[1]


def test_a_node_that_may_not_be_entered_is_looked_at_below_its_root(tmp_path: Path) -> None:
    """As any user: without CAP_SYS_CHROOT only absolute symbolic links would lead elsewhere."""
    (tmp_path / "data").mkdir()
    assert run_child(str(tmp_path), "/data").split()[-1] == "/data"


def test_readings_survive_their_own_form() -> None:
    """A reading is plain data."""
    reading = MountReading(path="/data", mounted=True, took_ms=3)
    assert msgspec.json.decode(msgspec.json.encode(reading), type=MountReading) == reading
