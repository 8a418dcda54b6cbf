"""How a program of the control plane lives as a process: signals, log, exit status. Shared by controller and scheduler.

Exit codes: 0 stopped when asked, 1 leadership lost or the loop died, 3 the machine lacks something (named).
"""

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Protocol

import structlog

from kube.credentials import CannotConnect

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
END_S = 28.0  # the Deployment's grace is 30 s


class Replica(Protocol):
    """One replica of a program. `run` blocks until `stop` is set or its loop died; `wake` lets it see `stop` at once."""

    def run(self, stop: threading.Event) -> None: ...
    def wake(self) -> None: ...


def run_replica(program: str, make: Callable[[Callable[[str], None]], Replica]) -> int:
    """Run a replica until a signal asks it to stop; give the exit status. `make` takes what ends the process at once."""
    # Blocked in all threads and taken by this one alone: a handler could run while a lock that it needs is held.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        replica = make(_die)
    except (CannotConnect, OSError) as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 3
    stop, ended, main_thread = threading.Event(), threading.Event(), threading.get_ident()

    def serve() -> None:
        try:
            replica.run(stop)
        finally:
            ended.set()
            signal.pthread_kill(main_thread, signal.SIGTERM)

    thread = threading.Thread(target=serve, name=program, daemon=True)
    thread.start()
    # Not sigtimedwait: stopped and continued past its time, CPython's gives a signal that nobody sent.
    signal.sigwait(STOP_SIGNALS)
    asked = not ended.is_set()
    stop.set()
    replica.wake()
    thread.join(END_S)
    return 0 if asked and not thread.is_alive() else 1


def _die(_why: str) -> None:
    """End this very moment: whatever a thread is about to do, another replica may be doing by now."""
    sys.stderr.flush()
    os._exit(1)


def log_to_stderr(level: str) -> None:
    """Log JSON lines to standard error."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
