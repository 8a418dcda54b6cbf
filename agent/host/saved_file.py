"""Opens a saved file to be read as a stream: a file, standard input, or either compressed. Nothing is held in memory."""

import gzip
import io
import sys
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import cast

STANDARD_INPUT = "-"
_GZIP = b"\x1f\x8b"


class CannotRead(Exception):
    """The file cannot be read; its text is a sentence for the person who named it."""


@contextmanager
def opened(name: str) -> Iterator[io.BufferedReader]:
    """Open a file; `-` is standard input. Raises CannotRead, also where reading fails on the way."""
    try:
        with ExitStack() as closing:
            if name == STANDARD_INPUT:
                stream = cast("io.BufferedReader", sys.stdin.buffer)
            else:
                stream = closing.enter_context(Path(name).open("rb"))
            if stream.peek(2)[:2] == _GZIP:
                stream = closing.enter_context(io.BufferedReader(gzip.GzipFile(fileobj=stream)))
            yield stream
    except BrokenPipeError:
        raise  # of whoever reads the answer, not of the file
    except (OSError, EOFError, zlib.error, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CannotRead(f"{name} cannot be read: {why}") from error
