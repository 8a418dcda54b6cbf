"""nodemend-scheduler: `run` schedules on a cluster; the other commands tell what it would do, without one.

`replay SNAPSHOT` plans one cycle of a saved snapshot; `conformance DIR` runs cases of KAI's conformance suite.
Exit codes: 0 done or stopped when asked, 1 a case failed, leadership lost or the loop died, 2 bad use, a file or
configuration that cannot be used, or nowhere to write to, 3 the machine lacks something (named).
"""

import argparse
import gc
import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from controller.scheduler.conformance import FileVerdicts, run_folder
from controller.scheduler.replay import BadSnapshot, load, plan_lines, replay
from controller.scheduler.rules import COMPATIBLE, DEFAULT

PROGRAM = "nodemend-scheduler"
INTERRUPTED = 130
MODES = {"default": DEFAULT, "compatible": COMPATIBLE}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; give its exit status."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.command(options))
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(options: argparse.Namespace) -> int:
    # Imported here: the commands that need no cluster start without its client.
    from controller.config import ConfigError
    from controller.process import log_to_stderr, run_replica
    from controller.scheduler.shell.config import load as load_config
    from controller.scheduler.shell.config import shown
    from controller.scheduler.shell.runtime import Scheduler

    try:
        config = load_config(options.config)
    except ConfigError as error:
        for problem in error.problems:
            print(f"{PROGRAM}: {problem}", file=sys.stderr)
        return 2
    if options.enable_fractions:
        config = msgspec.structs.replace(config, enable_fractions=True)
    if options.check_config:
        print(shown(config), end="")
        return 0
    log_to_stderr(options.log_level)
    # A cycle makes hundreds of thousands of values that form no circles: looking for circles after each 700 of them, as
    # Python does, took a twelfth of its time (500 nodes, 1,000 pods).
    gc.set_threshold(100_000, 20, 50)
    return run_replica(PROGRAM, lambda on_lost: Scheduler(config, on_lost=on_lost))


def _replay(options: argparse.Namespace) -> int:
    try:
        snapshot = load(options.snapshot, options.case)
    except BadSnapshot as error:
        return _bad(str(error))
    plan = replay(snapshot, MODES[options.mode])
    if options.json:
        return _say([msgspec.json.format(msgspec.json.encode(plan), indent=2).decode()])
    return _say(plan_lines(plan))


def _conformance(options: argparse.Namespace) -> int:
    if not options.folder.is_dir():
        return _bad(f"{options.folder} is no folder")
    found = run_folder(options.folder, MODES[options.mode], options.only)
    if not any(name.startswith(options.only) or _ran(file) for name, file in found.items()) and options.only:
        return _bad(f"no file and no case in {options.folder} has a name that begins with {options.only!r}")
    if options.json is not None:
        report = {"files": {name: _counts(file) for name, file in found.items()}}
        try:
            options.json.write_text(json.dumps(report, indent=2) + "\n")
        except OSError as error:
            return _bad(f"{options.json} cannot be written: {error.strerror}")
    unsaid = _say([*(line for file in found.values() for line in file.lines), _summary(found)])
    return unsaid or (1 if any(file.failed for file in found.values()) else 0)


def _ran(file: FileVerdicts) -> int:
    return file.passed + len(file.failed) + len(file.differs)


def _counts(file: FileVerdicts) -> dict[str, object]:
    return {"passed": file.passed, "failed": file.failed, "differs": file.differs}


def _summary(found: dict[str, FileVerdicts]) -> str:
    files = found.values()
    passed, failed, differs = (
        sum(file.passed for file in files),
        sum(len(file.failed) for file in files),
        sum(len(file.differs) for file in files),
    )
    return f"{len(found)} files: {passed} passed, {failed} failed, {differs} differ"


def _say(lines: Iterable[str]) -> int:
    """Print lines; 2 where standard output takes nothing. Whoever closes it early has read enough: 0."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        for line in lines:
            # Names come from files, and JSON may hold halves of characters, which no stream takes.
            print(line.encode(encoding, "backslashreplace").decode(encoding))
        print(end="", flush=True)
    except OSError as error:
        # Point it elsewhere, or the interpreter complains once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            return _bad(f"standard output cannot be written: {error.strerror}")
    return 0


def _bad(message: str) -> int:
    print(f"{PROGRAM}: {message}", file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Schedules GPU pods on healthy parts; or tells what it would do, without a cluster.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    running = commands.add_parser("run", help="schedule the pods of a cluster")
    running.add_argument(
        "--config", type=Path, help="default /etc/nodemend/scheduler.toml, which may be absent"
    )
    running.add_argument(
        "--enable-fractions", action="store_true", help="place pods on parts of GPUs; off, they stay Pending"
    )
    running.add_argument(
        "--check-config", action="store_true", help="print the effective configuration, exit"
    )
    running.add_argument("--log-level", choices=["debug", "info", "warning", "error"], default="info")
    running.set_defaults(command=_run)
    conformance = commands.add_parser("conformance", help="run every case of a folder")
    conformance.add_argument("folder", type=Path, metavar="DIR", help="folder of case files (*.json)")
    conformance.add_argument("--only", default="", help="only files, or cases, whose name begins so")
    conformance.set_defaults(command=_conformance)
    replayed = commands.add_parser("replay", help="plan one cycle of a saved snapshot")
    replayed.add_argument(
        "snapshot", type=Path, metavar="SNAPSHOT", help="a snapshot, or cases of the conformance suite"
    )
    replayed.add_argument("--case", default="", help="the case, where the file holds several")
    replayed.set_defaults(command=_replay)
    for command in (conformance, replayed):
        command.add_argument(
            "--mode",
            choices=sorted(MODES),
            default="default",
            help="whose rules decide: ours, or KAI's throughout",
        )
    replayed.add_argument("--json", action="store_true", help="print the plan as JSON")
    conformance.add_argument("--json", type=Path, metavar="FILE", help="write the counts here too")
    return parser


if __name__ == "__main__":
    sys.exit(main())
