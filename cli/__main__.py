"""kubectl-nodemend: what people type. Found by kubectl as a plugin when it is on PATH: `kubectl nodemend status`.

Exit codes: 0 done, 1 the asked-for state does not hold, 2 bad use, 3 no kubeconfig, no cluster, or not allowed.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from checks.check import documented
from cli import intent
from cli.asking import Console, confirmed, on_terminal
from cli.cluster import read_fleet, read_story
from cli.drill import begin, drill_lines, end, write
from cli.explain import explain_node
from cli.explain_text import explain_lines
from cli.failure import Exit, Failure
from cli.judgement import judge_fleet, judge_node
from cli.release import ReleaseOptions, release
from cli.runbook import all_reasons, choose_reasons, list_lines, runbook_lines
from cli.scheduling_commands import add_commands
from cli.status import report_status
from cli.status_text import status_lines
from cli.text import cleaned, say, warn
from cli.uninstall import UninstallOptions, uninstall
from controller.config import JobsSection
from controller.terms import parse_duration
from kube.api import Api
from kube.clock import SYSTEM, Clock
from kube.credentials import CannotConnect
from kube.remediation import CANCEL, REPAIRED
from kube.session import connect, user_agent

PROGRAM = "kubectl nodemend"

OpenApi = Callable[[argparse.Namespace], Api]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code."""
    return run(sys.argv[1:] if argv is None else list(argv), open_api=_connect, clock=SYSTEM)


def run(argv: Sequence[str], *, open_api: OpenApi, clock: Clock) -> int:
    """Run one command against the cluster that `open_api` reaches; every failure is one line on standard error."""
    args = _parser().parse_args(argv)
    try:
        code: Exit = args.command(args, open_api, clock)
    except Failure as failure:
        warn(f"{PROGRAM}: {failure}")
        return failure.code
    except BrokenPipeError:
        # `| head` closed the pipe; point stdout elsewhere, or the interpreter complains once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.DONE
    except KeyboardInterrupt:
        return 130
    return code


def _connect(args: argparse.Namespace) -> Api:
    try:
        return connect(
            kubeconfig=args.kubeconfig, context=args.context, user_agent=user_agent("kubectl-nodemend")
        )
    except CannotConnect as error:
        raise Failure(str(error), Exit.MISSING) from error


def _status(args: argparse.Namespace, open_api: OpenApi, clock: Clock) -> Exit:
    reading = read_fleet(open_api(args), namespace=args.namespace)
    now = clock.now()
    report = cleaned(report_status(reading, judge_fleet(reading, now), now))
    _print(args, report, status_lines(report))
    return Exit.DONE


def _explain(args: argparse.Namespace, open_api: OpenApi, clock: Clock) -> Exit:
    reading = read_story(
        open_api(args), args.node, namespace=args.namespace, jobs_namespace=JobsSection().namespace
    )
    now = clock.now()
    story = cleaned(explain_node(reading, args.node, judge_node(reading, args.node, now), now))
    _print(args, story, explain_lines(story))
    return Exit.DONE


def _repaired(args: argparse.Namespace, open_api: OpenApi, clock: Clock) -> Exit:
    return _give_word(args, REPAIRED, open_api, clock)


def _cancel(args: argparse.Namespace, open_api: OpenApi, clock: Clock) -> Exit:
    return _give_word(args, CANCEL, open_api, clock)


def _give_word(args: argparse.Namespace, annotation: str, open_api: OpenApi, clock: Clock) -> Exit:
    api = open_api(args)
    remediation, word = intent.prepare(
        api, annotation=annotation, node=args.node, incident=args.incident, now=clock.now()
    )
    word = cleaned(word)
    if not (word.already_given or args.yes or args.output == "json") and on_terminal():
        say(intent.word_lines(word, written=False))
        if not confirmed():
            warn("nothing was written")
            return Exit.NOT_SO
    intent.give(api, remediation, word)
    _print(args, word, intent.word_lines(word, written=True))
    return Exit.DONE


def _drill(args: argparse.Namespace, open_api: OpenApi, clock: Clock) -> Exit:
    if bool(args.fault) == args.end:
        raise Failure("drill: name a FAULT, or say --end", Exit.BAD_USE)
    try:
        lasting = parse_duration(args.lasting)
    except ValueError as error:
        raise Failure(f"--for {args.lasting!r} {error}", Exit.BAD_USE) from None
    api, now = open_api(args), clock.now()
    if args.end:
        ended = cleaned(end(api, args.node))
        _print(args, ended, drill_lines(ended, written=True))
        return Exit.DONE
    health, drill, report = begin(api, args.node, args.fault, args.part, lasting, now)
    report = cleaned(report)
    if not (args.yes or args.output == "json") and on_terminal():
        say(drill_lines(report, written=False))
        if not confirmed():
            warn("nothing was written")
            return Exit.NOT_SO
    write(api, health, drill, now)
    _print(args, report, drill_lines(report, written=True))
    return Exit.DONE


def _release(args: argparse.Namespace, open_api: OpenApi, clock: Clock) -> Exit:
    if bool(args.node) == args.all:
        raise Failure("release: name one NODE, or say --all", Exit.BAD_USE)
    options = ReleaseOptions(
        namespace=args.namespace,
        node=args.node,
        force=args.force,
        by_name=args.conditions_by_name,
        dry_run=args.dry_run,
    )
    code, report = release(open_api(args), clock, options, _console(args))
    _document(args, report)
    return code


def _uninstall(args: argparse.Namespace, open_api: OpenApi, clock: Clock) -> Exit:
    try:
        wait_s = parse_duration(args.wait).total_seconds()
    except ValueError as error:
        raise Failure(f"--wait {args.wait!r} {error}", Exit.BAD_USE) from None
    options = UninstallOptions(
        namespace=args.namespace,
        wait=args.wait,
        wait_s=wait_s,
        cancel=args.cancel,
        keep_crds=args.keep_crds,
        by_name=args.conditions_by_name,
        dry_run=args.dry_run,
    )
    code, report = uninstall(open_api(args), clock, options, _console(args))
    _document(args, report)
    return code


def _console(args: argparse.Namespace) -> Console:
    return Console(json=args.output == "json", yes=args.yes)


def _runbook(args: argparse.Namespace, open_api: OpenApi, clock: Clock) -> Exit:
    del open_api, clock  # the run-book is part of the program
    checks = documented()
    if args.reason is None:
        rows = all_reasons(checks)
        _print(args, rows, list_lines(rows))
    else:
        rows = choose_reasons(checks, args.reason)
        _print(args, rows, runbook_lines(checks, rows, args.reason))
    return Exit.DONE


def _print(args: argparse.Namespace, document: object, lines: Sequence[str]) -> None:
    if args.output != "json":
        say(lines)
    _document(args, document)


def _document(args: argparse.Namespace, document: object) -> None:
    """Print the document of `-o json`; elsewhere its lines were told already."""
    if args.output == "json":
        say([msgspec.json.format(msgspec.json.encode(cleaned(document)), indent=2).decode()])


def _shared() -> argparse.ArgumentParser:
    """Options that may stand before or after the command: one new set each time, since defaults are kept in them."""
    shared = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    shared.add_argument("--kubeconfig", type=Path, metavar="FILE", help="default: KUBECONFIG, ~/.kube/config")
    shared.add_argument(
        "--context", metavar="NAME", help="context of the kubeconfig; default: its current one"
    )
    shared.add_argument("--namespace", metavar="NAME", help="where nodemend runs; default: nodemend-system")
    shared.add_argument("-o", "--output", choices=("table", "json"), help="default: table")
    shared.add_argument(
        "--json", dest="output", action="store_const", const="json", help="the same as -o json"
    )
    return shared


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        parents=[_shared()],
        description="See and steer what nodemend does to the nodes of this cluster.",
        epilog="Exit codes: 0 done, 1 the asked-for state does not hold, 2 bad use, 3 no cluster or not allowed.",
    )
    parser.add_argument("--version", action="version", version=user_agent("kubectl-nodemend"))
    parser.set_defaults(kubeconfig=None, context="", namespace="nodemend-system", output="table")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    status = commands.add_parser("status", parents=[_shared()], help="the fleet on one screen")
    status.set_defaults(command=_status)

    explain = commands.add_parser(
        "explain", parents=[_shared()], help="one node: what is wrong, done, and next"
    )
    explain.add_argument("node", metavar="NODE")
    explain.set_defaults(command=_explain)

    for name, command, words in (
        ("repaired", _repaired, "say that an Escalated node was mended: test it, then give it back"),
        ("cancel", _cancel, "stop the node's incident and put the node back as it was found"),
    ):
        sub = commands.add_parser(name, parents=[_shared()], help=words)
        sub.add_argument("node", metavar="NODE")
        sub.add_argument("--incident", default="", metavar="NAME", help="where a node has several open")
        sub.add_argument(
            "-y", "--yes", action="store_true", help="do not ask (without a terminal nothing asks)"
        )
        sub.set_defaults(command=command)

    drilled = commands.add_parser(
        "drill",
        parents=[_shared()],
        help="let a fault be found on a node, harmlessly and marked, to rehearse",
    )
    drilled.add_argument("node", metavar="NODE")
    drilled.add_argument(
        "fault", nargs="?", default="", metavar="FAULT", help="a reason, as `runbook` lists them"
    )
    drilled.add_argument("--part", default="", metavar="PART", help="GPU index, UUID, PCI address or a name")
    drilled.add_argument(
        "--for", dest="lasting", default="10m", metavar="TIME", help="at most 1h; default: 10m"
    )
    drilled.add_argument("--end", action="store_true", help="end all drills of the node")
    drilled.add_argument(
        "-y", "--yes", action="store_true", help="do not ask (without a terminal nothing asks)"
    )
    drilled.set_defaults(command=_drill)

    freed = commands.add_parser(
        "release", parents=[_shared()], help="put nodes back whose controller is gone, from their annotation"
    )
    freed.add_argument("node", nargs="?", default="", metavar="NODE")
    freed.add_argument("--all", action="store_true", help="every node of the cluster")
    freed.add_argument(
        "--force", action="store_true", help="although a controller leads, or another automation has the node"
    )
    freed.set_defaults(command=_release)

    removed = commands.add_parser(
        "uninstall", parents=[_shared()], help="take nodemend off the cluster, every node put back as found"
    )
    removed.add_argument(
        "--wait",
        default="10m",
        metavar="TIME",
        help="how long repairs that run may take to end; default: 10m",
    )
    removed.add_argument("--cancel", action="store_true", help="wait for none of them")
    removed.add_argument("--keep-crds", action="store_true", help="keep our CRDs and all objects in them")
    removed.set_defaults(command=_uninstall)

    for sub in (freed, removed):
        sub.add_argument("-y", "--yes", action="store_true", help="do not ask; needed without a terminal")
        sub.add_argument("--dry-run", action="store_true", help="say what would be done and write nothing")
        sub.add_argument(
            "--conditions-by-name",
            action="store_true",
            help="also remove conditions with a name of ours whose writer nothing records",
        )

    add_commands(commands, _shared, _print)

    runbook = commands.add_parser("runbook", parents=[_shared()], help="what a reason means and what to do")
    runbook.add_argument(
        "reason", nargs="?", metavar="REASON", help="a reason, a condition, or a part of one"
    )
    runbook.set_defaults(command=_runbook)
    return parser


if __name__ == "__main__":
    sys.exit(main())
