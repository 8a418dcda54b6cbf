"""Small files of sysfs and procfs as text, at little cost: paths are plain text, since hundreds are read at every look.

A pathlib.Path for each costs several times as much as its read.
"""

import errno
import os
from typing import Protocol

MOST_NAMES = 1024
TEXT_LIMIT = 4096
"""A file of sysfs is a page at most."""
LONG_LIMIT = 1 << 20
SHOWN = 64
GONE = {errno.ENOENT, errno.ENODEV, errno.ENOTDIR}


class Files(Protocol):
    """The one way to a file's text, so that a test can refuse one as a firmware does."""

    def read(self, path: str, limit: int) -> str:
        """Give the text of at most `limit` bytes. Raises OSError."""
        ...


class Disk:
    """The real files."""

    def read(self, path: str, limit: int) -> str:
        # A file object for each would cost more than all else.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            parts = [os.read(descriptor, limit)]
            # What is a page at most comes at once.
            while limit > TEXT_LIMIT and parts[-1] and sum(map(len, parts)) < limit:
                parts.append(os.read(descriptor, limit))
        finally:
            os.close(descriptor)
        return b"".join(parts)[:limit].decode("utf-8", errors="replace")


class Texts:
    """What files say, by way of `files`."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def lines(self, path: str) -> list[str]:
        """Give a long file's lines, none where there is no such file. Raises OSError."""
        try:
            return self._files.read(path, LONG_LIMIT).splitlines()
        except FileNotFoundError:
            return []

    def text(self, path: str, errors: dict[str, str], limit: int = SHOWN) -> str:
        """Give a file's text, stripped; empty where there is none, or where it fails, which `errors` then tells."""
        try:
            return self._files.read(path, limit).strip().replace("\0", "")
        except OSError as error:
            if error.errno not in GONE:
                errors[last_name(path)] = why(error)
            return ""

    def number(self, path: str) -> int | None:
        """Give a number, decimal or with 0x; None for what is none."""
        text = self.text(path, {})
        try:
            return int(text, 16 if text.startswith("0x") else 10)
        except ValueError:
            return None


def listed(folder: str) -> list[str]:
    """Give the names in a folder, in order; none where there is no such folder. Raises OSError."""
    try:
        return sorted(names_in(folder))[:MOST_NAMES]
    except (FileNotFoundError, NotADirectoryError):
        return []


def names_in(folder: str) -> list[str]:
    """Give all names in a folder. Raises OSError."""
    return os.listdir(folder)  # noqa: PTH208 - see the module's docstring, here and below


def target(link: str) -> str:
    """Give the name of what a symbolic link leads to, empty where it is none."""
    return last_name(link_of(link))


def link_of(link: str) -> str:
    """Give what a symbolic link holds, empty where it is none."""
    try:
        return os.readlink(link)  # noqa: PTH115
    except OSError:
        return ""


def real_path(path: str) -> str:
    """Give the path without symbolic links."""
    return os.path.realpath(path)


def last_name(path: str) -> str:
    """Give the last name of a path."""
    return path.rpartition("/")[2]


def exists(path: str) -> bool:
    """Tell whether there is such a file or folder."""
    return os.path.exists(path)  # noqa: PTH110


def is_folder(path: str) -> bool:
    """Tell whether there is such a folder."""
    return os.path.isdir(path)  # noqa: PTH112


def why(error: OSError) -> str:
    """Name an error for people."""
    name = errno.errorcode.get(error.errno or 0, "")
    return f"{name} ({error.strerror})" if name else str(error)[:SHOWN]
