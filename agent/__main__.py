"""nodemend-agent: keeps one node's fault conditions true to its machine. This file parses, wires and exits; no logic.

Exit codes: 0 done, 1 the asked-for state does not hold, 2 bad use or configuration, 3 the machine lacks something.
"""

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import structlog

from agent import capture, once, reboot, replay, reset_gpu, validate
from agent.config import Config, ConfigError, load
from agent.host.saved_file import CannotRead, opened
from agent.runtime import Agent, agent_version
from agent.saved_log import saved_lines
from checks.check import Check, CheckDefect, discover
from kube.clock import SYSTEM
from kube.credentials import CannotConnect
from kube.session import Session, connect, user_agent

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
ENDS_WITHIN_S = 6.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; give its exit status."""
    options = _parser().parse_args(arguments)
    _log_to_stderr(options.log_level)
    if options.command == "replay":
        # Needs no configuration: the log may be another machine's.
        return _replay(options.file, options.output)
    try:
        checks = discover()
        config = load(options.config, checks, os.environ)
    except ConfigError as error:
        for problem in error.problems:
            print(f"nodemend-agent: {problem}", file=sys.stderr)
        return 2
    except CheckDefect as error:
        print(f"nodemend-agent: {error}", file=sys.stderr)
        return 2
    if options.command == "validate":
        return _validate(options, config, checks)
    if options.command == "reboot":
        outcome = reboot.reboot(config, options.boot_id)
        print(f"nodemend-agent: {outcome.message}", file=sys.stderr if outcome.exit_code else sys.stdout)
        return outcome.exit_code
    if options.command == "reset-gpu":
        return _reset_gpu(options, config)
    if options.command == "capture":
        return _capture(options, config, checks)
    if options.once:
        seen = once.look(config, checks, SYSTEM)
        print(once.as_json(seen) if options.output == "json" else once.as_table(seen))
        return seen.exit_code
    return _run(config, checks)


def _validate(options: argparse.Namespace, config: Config, checks: Sequence[Check]) -> int:
    verdict = validate.validate(
        config, checks, SYSTEM, gpus=options.gpus, cleared_before=options.cleared_before
    )
    print(validate.as_json(verdict) if options.json else validate.as_text(verdict))
    _leave(options.termination_message_path, validate.termination_message(verdict))
    return validate.EXIT_CODES[verdict.result]


def _replay(name: str, output: str) -> int:
    try:
        with opened(name) as stream:
            if capture.is_capture(stream.peek(capture.BEGINNING)):
                kept = capture.read_capture(Path(name))
                lines = replay.capture_lines(kept, capture.replay_capture(kept, discover()), output)
            else:
                lines = replay.log_lines(saved_lines(stream), output)
            for line in lines:
                sys.stdout.buffer.write(line.encode(errors="backslashreplace") + b"\n")
        sys.stdout.buffer.flush()
    except (CannotRead, capture.CaptureUnusable, CheckDefect) as error:
        sys.stdout.buffer.flush()
        print(f"nodemend-agent: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # Whoever reads has seen enough (head). The interpreter flushes once more at its end: into nothing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _reset_gpu(options: argparse.Namespace, config: Config) -> int:
    if why := reset_gpu.why_not_uuids(options.uuid):
        print(f"nodemend-agent: {why}", file=sys.stderr)
        return 2
    # Ends in order: persistence mode is put back before the process goes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    report = reset_gpu.reset_gpus(
        config,
        options.uuid,
        options.boot_id,
        SYSTEM,
        timeout_s=options.timeout_s,
        driver_root=options.driver_root,
    )
    print(reset_gpu.as_text(report))
    _leave(options.termination_message_path, reset_gpu.termination_message(report))
    return reset_gpu.EXIT_CODES[report.result]


def _capture(options: argparse.Namespace, config: Config, checks: Sequence[Check]) -> int:
    taken = capture.take(
        config, checks, SYSTEM, version=agent_version(), looks=options.looks, interval_s=options.interval_s
    )
    try:
        capture.write(taken, options.file)
    except OSError as error:
        print(f"nodemend-agent: {options.file}: {error.strerror or error}", file=sys.stderr)
        return 3
    print(capture.as_text(taken, options.file))
    return 0


def _leave(path: Path | None, message: bytes) -> None:
    """Leave a Job's last word where kubelet reads it."""
    if path is None:
        return
    try:
        path.write_bytes(message)
    except OSError as error:
        print(f"nodemend-agent: the report could not be left: {error}", file=sys.stderr)


def _run(config: Config, checks: Sequence[Check]) -> int:
    if not config.node_name:
        print(
            "nodemend-agent: node_name is empty: set it in the configuration, or NODE_NAME in the environment "
            "(the DaemonSet does, from spec.nodeName)",
            file=sys.stderr,
        )
        return 2
    try:
        session = _session(config)
    except CannotConnect as error:
        print(f"nodemend-agent: {error}", file=sys.stderr)
        return 3
    # Blocked in all threads and taken by this one alone: a handler could run while a lock that it needs is held.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    agent = Agent(config, session, SYSTEM, checks=checks)
    stop, ended = threading.Event(), threading.Event()
    failures: list[OSError] = []
    main_thread = threading.get_ident()

    def serve() -> None:
        try:
            agent.run(stop)
        except OSError as error:
            failures.append(error)
        finally:
            ended.set()
            signal.pthread_kill(main_thread, signal.SIGTERM)

    thread = threading.Thread(target=serve, name="loop", daemon=True)
    thread.start()
    # Not sigtimedwait: stopped and continued past its time, CPython's gives a signal that nobody sent.
    signal.sigwait(STOP_SIGNALS)
    asked = not ended.is_set()
    stop.set()
    agent.wake()
    thread.join(timeout=ENDS_WITHIN_S)
    if thread.is_alive():
        agent.save()  # the loop waits for an API server that does not answer; kubelet's patience is shorter
    session.close()
    for failure in failures:
        print(f"nodemend-agent: cannot listen on {config.listen}: {failure}", file=sys.stderr)
        return 3
    return 0 if asked else 1


def _session(config: Config) -> Session:
    kube = config.kube
    return connect(
        user_agent=user_agent("nodemend-agent"),
        kubeconfig=Path(kube.kubeconfig) if kube.kubeconfig else None,
        server=kube.server or None,
        token_file=Path(kube.token_file) if kube.token_file else None,
        ca_file=Path(kube.ca_file) if kube.ca_file else None,
    )


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
        prog="nodemend-agent",
        description="Keeps one node's fault conditions true to its machine.",
        parents=[_shared(None, "info")],
    )
    parser.add_argument("--version", action="version", version=f"nodemend-agent {agent_version()}")
    parser.add_argument("--once", action="store_true", help="look once without a cluster, print, exit")
    parser.add_argument("--output", choices=["table", "json"], default="table", help="what --once prints")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    # SUPPRESS: a subcommand that is not given an option must not undo what stood before it.
    after = [_shared(argparse.SUPPRESS, argparse.SUPPRESS)]
    proof = commands.add_parser(
        "validate", parents=after, help="judge this machine now: exit 0 passed, 1 failed, 3 cannot tell"
    )
    proof.add_argument("--gpus", type=_count, help="how many GPUs the hardware should have")
    proof.add_argument("--json", action="store_true", help="print JSON")
    proof.add_argument("--termination-message-path", type=Path, help="leave the verdict here as well")
    proof.add_argument("--cleared-before", type=_instant, help="what is older was dealt with (RFC 3339)")
    kept = commands.add_parser(
        "capture", parents=after, help="write what this machine shows into a file without names, for a report"
    )
    kept.add_argument("file", type=Path, metavar="FILE", help="where to write it")
    kept.add_argument("--looks", type=_looks, default=2, help="how often to look, default 2")
    kept.add_argument("--interval-s", type=_seconds, default=15, help="seconds between, default 15")
    end = commands.add_parser("reboot", parents=after, help="reboot this machine, if it is in this boot")
    end.add_argument("--boot-id", required=True, help="the boot that is to end")
    reset = commands.add_parser(
        "reset-gpu",
        parents=after,
        help="reset single GPUs: exit 0 reset and proven, 1 refused or failed, 3 cannot",
    )
    reset.add_argument("--uuid", action="append", required=True, help="a GPU; give it once for each")
    reset.add_argument("--boot-id", required=True, help="the boot that the reset belongs to")
    reset.add_argument("--timeout-s", type=_seconds, default=600, help="when it has to end, default 600")
    reset.add_argument(
        "--driver-root", type=Path, help="where the driver's file system is mounted, else nvml.driver_root"
    )
    reset.add_argument("--termination-message-path", type=Path, help="leave the report here as well")
    play = commands.add_parser(
        "replay",
        parents=after,
        help="say what today's rules make of a saved kernel log or a capture: exit 0 when it was read",
    )
    play.add_argument("file", metavar="FILE", help="what dmesg, the journal or `capture` gave; - is stdin")
    play.add_argument(
        "--output",
        choices=["table", "json"],
        default=argparse.SUPPRESS,
        help="json: an object for each line of a log, each condition of a capture",
    )
    return parser


def _shared(config: Any, log_level: str) -> argparse.ArgumentParser:
    """Give the options that may stand before and after a subcommand, with their defaults."""
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--config", type=Path, default=config, help="default /etc/nodemend/agent.toml")
    shared.add_argument("--log-level", choices=["debug", "info", "warning", "error"], default=log_level)
    return shared


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of GPUs; 8 would be right")
    return int(text)


def _looks(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 60:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of looks within 1 and 60; 2 would be right")
    return int(text)


def _seconds(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 86_400:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no number of seconds within 1 and 86400; 600 would be right"
        )
    return int(text)


def _instant(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; 2026-01-31T08:15:00Z would be right")
    return at


if __name__ == "__main__":
    sys.exit(main())
