"""Looks at one path and says on one line what the file system there answers. A program: see `agent.host.children`.

    mount_child.py SECONDS ROOT PATH [entry] [write=NAME]

ROOT is the host's root directory (`agent.host.mountinfo.host_root`): there a path, its symbolic links and what is mounted on
it are the host's, whatever mount namespace the agent itself lives in. Entering it takes CAP_SYS_CHROOT;
without that the path is looked up below it, which is the same but for absolute symbolic links. `entry` reads one entry of
the directory, `write=NAME` makes, flushes and removes the file NAME in it. After SECONDS the program ends by itself, so
that none outlives an agent that was killed.

Output: `ok BLOCKS AVAILABLE FILES FILES_AVAILABLE READ_ONLY MILLISECONDS PATH`, PATH without symbolic links, or
`error ERRNO STAGE`.
"""

import errno
import os
import signal
import sys
import time

# The server answered: it is there, and this directory or our share of it is not ours.
ANSWERS = {errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT}


def main(arguments: list[str]) -> None:
    """Look, and say it."""
    seconds, root, path, *asked = arguments
    signal.alarm(int(seconds))
    stage = "root"
    try:
        prefix = enter(root)
        began = time.monotonic_ns()
        stage = "statvfs"
        # Below a prefix, links are the kernel's to follow: /proc/1/root resolved by its text would be our own root.
        real = prefix + path if prefix else os.path.realpath(path, strict=True)
        held = os.statvfs(real)
        read_only = bool(held.f_flag & os.ST_RDONLY)
        for word in asked:
            stage = word.partition("=")[0]
            read_only = look_further(real, word, read_only)
    except OSError as error:
        sys.stdout.write(f"error {error.errno or 0} {stage}")
        return
    took_ms = (time.monotonic_ns() - began) // 1_000_000
    numbers = (held.f_blocks, held.f_bavail, held.f_files, held.f_favail, int(read_only), took_ms)
    sys.stdout.buffer.write(f"ok {' '.join(map(str, numbers))} ".encode() + os.fsencode(real[len(prefix) :]))


def enter(root: str) -> str:
    """Make the host's root ours; give what must stand before a path where that is not allowed. Raises OSError."""
    if root == "/":
        return ""
    try:
        os.chroot(root)
    except PermissionError:
        os.stat(root)  # noqa: PTH116
        return root
    os.chdir("/")
    return ""


def look_further(path: str, word: str, read_only: bool) -> bool:
    """Read an entry or write a file; give whether the file system turned out to be read-only. Raises OSError."""
    try:
        if word == "entry":
            with os.scandir(path) as entries:
                next(entries, None)
        elif not read_only:
            write(f"{path}/{word.partition('=')[2]}")
    except OSError as error:
        if error.errno == errno.EROFS:
            return True
        if error.errno not in ANSWERS:
            raise
    return read_only


def write(name: str) -> None:
    """Make the file anew, flush it and remove it. What lies there is removed, never followed or written to."""
    if os.path.lexists(name):
        os.unlink(name)  # noqa: PTH108 - pathlib would double what this small program imports
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        os.write(file, b"nodemend\n")
        os.fsync(file)
    finally:
        os.close(file)
        os.unlink(name)  # noqa: PTH108


if __name__ == "__main__":
    main(sys.argv[1:])
