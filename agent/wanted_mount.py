"""How the configuration names a shared mount: `/data`, or `/home:ro` where it may be read-only."""

import posixpath
from collections.abc import Sequence

import msgspec

READ_ONLY = ":ro"
MOST = 32


class WantedMount(msgspec.Struct, frozen=True):
    """A path at which something must be mounted, and whether it may be read-only."""

    path: str
    may_be_read_only: bool = False


def wanted_mount(text: str) -> WantedMount:
    """Read one. Raises ValueError with what would be right."""
    path = text.removesuffix(READ_ONLY)
    if why := why_no_path(path):
        raise ValueError(f"{text!r} {why}; /data would be right, or /data:ro where it may be read-only")
    return WantedMount(path, text.endswith(READ_ONLY))


def why_no_path(path: str) -> str:
    """Say why this is no path as mountinfo writes one; empty where it is."""
    if not path.startswith("/") or "\0" in path or "\n" in path:
        return "is no absolute path"
    if posixpath.normpath(path) != path or path.startswith("//"):
        return f"is not in its shortest form {posixpath.normpath(path)!r}"
    return ""


def why_not_mounts(shared: Sequence[str], local: Sequence[str]) -> list[str]:
    """Say what cannot work of the paths that the configuration names, one sentence each."""
    problems = [f"storage.local: {path!r} {why}" for path in local if (why := why_no_path(path))]
    paths = []
    for text in shared:
        try:
            paths.append(wanted_mount(text).path)
        except ValueError as error:
            problems.append(f"storage.mounts: {error}")
    twice = sorted({path for path in paths if paths.count(path) > 1})
    problems += [f"storage.mounts: {path!r} is there twice; name each mount once" for path in twice]
    for name, given in (("mounts", shared), ("local", local)):
        if len(given) > MOST:
            problems.append(
                f"storage.{name}: {len(given)} paths; at most {MOST}, since each is a process a look"
            )
    return problems
