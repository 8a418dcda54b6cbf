"""Opens a saved kernel log to be read as a stream: a file, standard input, a compressed file, or an archive of files.

Of an archive (a capture is one) the member `kernel.log` is read. Nothing is unpacked to disk or held in memory.
"""

import gzip
import io
import sys
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

STANDARD_INPUT = "-"
KERNEL_LOG = "kernel.log"
_GZIP = b"\x1f\x8b"
_TAR_MARK, _TAR_AT = b"ustar", 257


class CannotRead(Exception):
    """The file cannot be read; its text is a sentence for the person who named it."""


@contextmanager
def opened(name: str) -> Iterator[BinaryIO]:
    """Open a saved log; `-` is standard input. Raises CannotRead, also where reading fails on the way."""
    try:
        with ExitStack() as closing:
            yield _log(name, closing)
    except BrokenPipeError:
        raise  # of whoever reads the answer, not of the file
    except (OSError, EOFError, zlib.error, tarfile.TarError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CannotRead(f"{name} cannot be read: {why}") from error


def _log(name: str, closing: ExitStack) -> BinaryIO:
    if name == STANDARD_INPUT:
        stream = cast("io.BufferedReader", sys.stdin.buffer)
    else:
        stream = closing.enter_context(Path(name).open("rb"))  # noqa: SIM115 - closed by the stack
    if stream.peek(2)[:2] == _GZIP:
        stream = closing.enter_context(io.BufferedReader(gzip.GzipFile(fileobj=stream)))
    if stream.peek(_TAR_AT + 5)[_TAR_AT : _TAR_AT + 5] != _TAR_MARK:
        return stream
    archive = closing.enter_context(tarfile.open(fileobj=stream, mode="r|"))  # noqa: SIM115
    for member in archive:
        if (
            PurePosixPath(member.name).name == KERNEL_LOG
            and (found := archive.extractfile(member)) is not None
        ):
            return cast("BinaryIO", found)
    raise CannotRead(f"{name} is an archive that holds no {KERNEL_LOG}")
