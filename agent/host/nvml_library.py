"""Where the driver's user space lies under the driver root: `libnvidia-ml.so.1`, by full path.

The root is the host's own, seen through a mount, so a symbolic link in it means a path of the host and must not lead out of
the root. Where nothing lies in the root itself, it is looked for where GPU Operator's driver container puts it. The NVML
child runs this, so it does without pathlib (half a MiB).
"""

import os

LIBRARY = "libnvidia-ml.so.1"
FOLDERS = ("usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/lib/aarch64-linux-gnu", "usr/lib", "lib64")
# GPU Operator's driver container: its root file system as the host sees it.
OPERATOR_ROOT = "run/nvidia/driver"

_MOST_LINKS = 40


class LibraryMissing(Exception):
    """There is no such library; the message names every place that was looked at."""


def find_library(root: str) -> str:
    """Give the full path of the library under `root`. Raises LibraryMissing."""
    for base in (root, f"{root}/{OPERATOR_ROOT}"):
        for folder in FOLDERS:
            path = resolve(base, f"{folder}/{LIBRARY}")
            if path is not None and os.path.isfile(path):  # noqa: PTH113 - see the module's docstring
                return path
    raise LibraryMissing(
        f"{LIBRARY} is not under {root} (looked in {', '.join(FOLDERS)}, and in the same under {OPERATOR_ROOT}); "
        "nvml.driver_root must be the root of the file system that the driver is installed in"
    )


def identity(path: str) -> tuple[str, int, int]:
    """Give what tells this file from another one; its inode does not, since an overlay may change that.

    Raises LibraryMissing where it is gone.
    """
    try:
        found = os.stat(path)  # noqa: PTH116 - see the module's docstring
    except OSError as error:
        raise LibraryMissing(str(error)) from error
    return path, found.st_size, found.st_mtime_ns


def resolve(root: str, path: str) -> str | None:
    """Follow every link of `path` as the machine whose root this is would; None for one without end."""
    names = [name for name in reversed(path.split("/")) if name]
    reached: list[str] = []
    links = 0
    while names:
        name = names.pop()
        if name == ".":
            continue
        if name == "..":
            del reached[-1:]
            continue
        target = _target("/".join([root, *reached, name]))
        if target is None:
            reached.append(name)
            continue
        links += 1
        if links > _MOST_LINKS:
            return None
        if target.startswith("/"):
            reached.clear()
        names += [part for part in reversed(target.split("/")) if part]
    return "/".join([root, *reached])


def _target(path: str) -> str | None:
    try:
        return os.readlink(path)  # noqa: PTH115 - see the module's docstring
    except OSError:
        return None
