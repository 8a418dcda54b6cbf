"""Where what is built once is kept, `$XDG_CACHE_HOME/nodemend`, and how only one process builds at a time."""

import fcntl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from sandbox.go_modules import MissingProgramError
from sandbox.long_command import Progress

_LOCK_WITHIN_S = 2 * 3600.0


def cache_folder(env: Mapping[str, str]) -> Path:
    """Return the folder; it may not exist yet."""
    return Path(env.get("XDG_CACHE_HOME") or Path(env.get("HOME") or Path.home()) / ".cache") / "nodemend"


@contextmanager
def build_lock(cache: Path, progress: Progress, *, name: str, what: str) -> Iterator[None]:
    """Let one process build `what` at a time; the others wait, and say so. Raises MissingProgramError."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        lock = (cache / name).open("w")
    except OSError as error:
        raise MissingProgramError(
            f"cache folder {cache}: {error.strerror}; XDG_CACHE_HOME names another"
        ) from error
    with lock:
        began = told = time.monotonic()
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                waited = time.monotonic() - began
                if waited > _LOCK_WITHIN_S:
                    raise MissingProgramError(f"another process holds {cache / name} for too long") from None
                if time.monotonic() - told >= 10:
                    told = time.monotonic()
                    progress(f"another process builds {what}; waiting for {waited:.0f} s so far")
                time.sleep(0.2)
        yield
