"""nodemend-controller: parses, wires and exits; no logic.

`--check-config` prints what would be in force. Exit codes: 0 stopped when asked (or checked), 1 leadership lost or the loop
died, 2 bad use or configuration, 3 the machine lacks something (named).
"""

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import structlog

from controller.config import Config, ConfigError, load, shown
from controller.runtime import PROGRAM, Controller
from kube.credentials import CannotConnect
from kube.session import user_agent

log = structlog.get_logger(__name__)

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
END_S = 28.0  # the Deployment's grace is 30 s


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; give its exit status."""
    options = _parser().parse_args(arguments)
    try:
        config = load(options.config)
    except ConfigError as error:
        for problem in error.problems:
            print(f"{PROGRAM}: {problem}", file=sys.stderr)
        return 2
    if options.check_config:
        print(shown(config), end="")
        return 0
    _log_to_stderr(options.log_level)
    return _run(config)


def _run(config: Config) -> int:
    log.info("config.loaded", config=shown(config))
    if not config.jobs.image:
        log.warning("config.incomplete", error="jobs.image is not set: no repair and no revalidation can run")
    # Blocked in all threads and taken by this one alone: a handler could run while a lock that it needs is held.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        controller = Controller(config, on_lost=_die)
    except (CannotConnect, OSError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 3
    stop, ended, main_thread = threading.Event(), threading.Event(), threading.get_ident()

    def serve() -> None:
        try:
            controller.run(stop)
        finally:
            ended.set()
            signal.pthread_kill(main_thread, signal.SIGTERM)

    thread = threading.Thread(target=serve, name="controller", daemon=True)
    thread.start()
    # Not sigtimedwait: stopped and continued past its time, CPython's gives a signal that nobody sent.
    signal.sigwait(STOP_SIGNALS)
    asked = not ended.is_set()
    stop.set()
    controller.wake()
    thread.join(END_S)
    return 0 if asked and not thread.is_alive() else 1


def _die(_why: str) -> None:
    """End this very moment: whatever a thread is about to do, another replica may be doing by now."""
    sys.stderr.flush()
    os._exit(1)


def _log_to_stderr(level: str) -> None:
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description="Decides and acts for the fleet: quarantine, drain, repair, proof, return."
    )
    parser.add_argument("--version", action="version", version=user_agent(PROGRAM).replace("/", " "))
    parser.add_argument(
        "--config", type=Path, help="default /etc/nodemend/controller.toml, which may be absent"
    )
    parser.add_argument(
        "--check-config", action="store_true", help="print the effective configuration without secrets, exit"
    )
    parser.add_argument("--log-level", choices=["debug", "info", "warning", "error"], default="info")
    return parser


if __name__ == "__main__":
    sys.exit(main())
