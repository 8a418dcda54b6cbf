"""`queues`, `why`, `gpus` and `simulate`: the command lines of what the scheduler decides. All of them only read."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from cli.failure import Exit, Failure
from cli.gpus import report_gpus
from cli.gpus_text import gpus_lines
from cli.manifest_file import read_manifest
from cli.play import play
from cli.queues import RESOURCE_WORDS, report_queues
from cli.queues_text import queues_lines
from cli.scheduling_objects import read_scheduling
from cli.scheduling_view import SCHEDULER, Look, incomplete, look_at_hardware, look_at_jobs, view_of
from cli.simulate import is_made_again, report_simulation, with_file, without_nodes
from cli.simulate_text import simulation_lines
from cli.text import cleaned
from cli.why import find_pod, is_of, story_of, story_of_stranger
from cli.why_text import why_lines
from controller.scheduler.grouper.spec import Terms
from controller.scheduler.pod_tasks import name_of
from controller.scheduler.rules import COMPATIBLE, DEFAULT
from kube.api import Api
from kube.clock import Clock

OpenApi = Callable[[argparse.Namespace], Api]
Print = Callable[[argparse.Namespace, object, Sequence[str]], None]
MODES = {"default": DEFAULT, "compatible": COMPATIBLE}


def add_commands(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    shared: Callable[[], argparse.ArgumentParser],
    show: Print,
) -> None:
    """Add the four commands. `shared`: the options of every command; `show` prints a document or its lines."""
    queues = commands.add_parser(
        "queues", parents=[shared(), _look()], help="the fair-share table, department by department"
    )
    queues.add_argument("--resource", choices=RESOURCE_WORDS, default="gpu", help="default: gpu")
    queues.add_argument("--all", action="store_true", help="a table for each resource")
    queues.set_defaults(command=_queues, show=show)

    why = commands.add_parser(
        "why", parents=[shared(), _look()], help="why a pod waits, or runs where it does"
    )
    why.add_argument("pod", metavar="POD", help="name, or namespace/name")
    why.add_argument("-n", dest="pod_namespace", default="", metavar="NAMESPACE", help="default: default")
    why.set_defaults(command=_why, show=show)

    gpus = commands.add_parser(
        "gpus", parents=[shared(), _look()], help="every GPU: health, holder, what is free"
    )
    gpus.add_argument("node", nargs="?", default="", metavar="NODE")
    gpus.add_argument("--sick", action="store_true", help="only those that are not healthy, or are fenced")
    gpus.set_defaults(command=_gpus, show=show)

    simulate = commands.add_parser(
        "simulate",
        parents=[shared(), _look()],
        help="what the next cycles would do with more objects or fewer nodes",
    )
    simulate.add_argument("file", nargs="?", type=Path, metavar="FILE", help="manifests; - is standard input")
    simulate.add_argument("--lose", default="", metavar="NODE[,NODE]", help="as if these nodes were gone")
    simulate.add_argument(
        "-n", dest="pod_namespace", default="default", metavar="NAMESPACE", help="of objects that name none"
    )
    simulate.set_defaults(command=_simulate, show=show)


def _look() -> argparse.ArgumentParser:
    """The options that say whose view it is, as in the scheduler's configuration."""
    look = argparse.ArgumentParser(add_help=False)
    look.add_argument("--scheduler", default=SCHEDULER, metavar="NAME", help=f"default: {SCHEDULER}")
    look.add_argument("--pool", metavar="NAME", help="node pool; default: what lacks the label (gpus: all)")
    look.add_argument("--mode", choices=sorted(MODES), default="default", help="whose rules: ours, or KAI's")
    look.add_argument("--pool-label", default=Terms().node_pool_label, metavar="KEY")
    look.add_argument("--queue-label", default=Terms().queue_label, metavar="KEY")
    look.add_argument("--default-queue", default=Terms().default_queue, metavar="NAME")
    return look


def _look_of(args: argparse.Namespace) -> Look:
    terms = Terms(
        queue_label=args.queue_label, node_pool_label=args.pool_label, default_queue=args.default_queue
    )
    return Look(
        namespace=args.namespace,
        scheduler_name=args.scheduler,
        pool=args.pool,
        terms=terms,
        rules=MODES[args.mode],
    )


def _queues(args: argparse.Namespace, open_api: OpenApi, clock: Clock) -> Exit:
    look, now = _look_of(args), clock.now()
    view = look_at_jobs(open_api(args), look, now)
    report = cleaned(report_queues(view, look.rules, incomplete(view), now))
    args.show(args, report, queues_lines(report, RESOURCE_WORDS if args.all else (args.resource,)))
    return Exit.DONE


def _why(args: argparse.Namespace, open_api: OpenApi, clock: Clock) -> Exit:
    look, now = _look_of(args), clock.now()
    before, slash, after = args.pod.partition("/")
    namespace, name = (before, after) if slash else (args.pod_namespace or "default", args.pod)
    if not namespace or not name or (slash and args.pod_namespace not in ("", namespace)):
        raise Failure(f"why: {args.pod!r} is no pod; NAME with -n NAMESPACE, or NAMESPACE/NAME", Exit.BAD_USE)
    api = open_api(args)
    pod = find_pod(api, namespace, name)
    if is_of(pod, look.scheduler_name):
        view = look_at_jobs(api, look, now)
        story = story_of(view, pod, look.rules, now)
    else:
        view = look_at_hardware(api, look, now)
        story = story_of_stranger(view, pod, look.rules, look.scheduler_name, now)
    story = cleaned(story)
    args.show(args, story, why_lines(story))
    return Exit.DONE


def _gpus(args: argparse.Namespace, open_api: OpenApi, clock: Clock) -> Exit:
    look, now = _look_of(args), clock.now()
    view = look_at_hardware(open_api(args), look, now)
    report = cleaned(report_gpus(view, look.rules, args.node, args.sick, incomplete(view), now))
    args.show(args, report, gpus_lines(report))
    return Exit.DONE


def _simulate(args: argparse.Namespace, open_api: OpenApi, clock: Clock) -> Exit:
    names = tuple(name.strip() for name in args.lose.split(",") if name.strip())
    if (args.file is None) == (not args.lose) or (args.lose and not names):
        raise Failure("simulate: name a FILE, or say --lose NODE", Exit.BAD_USE)
    look, now = _look_of(args), clock.now()
    manifest = None if args.file is None else read_manifest(args.file, args.pod_namespace, now)
    api = open_api(args)
    reading = read_scheduling(api, namespace=look.namespace)
    change = (
        without_nodes(reading, names, look.scheduler_name)
        if manifest is None
        else with_file(reading, manifest, look.scheduler_name)
    )
    base = view_of(api, reading, look, now)
    asked = view_of(api, change.reading, look, now, change.owners)
    again = {name_of(pod) for pod in asked.grouped.objects.pods if is_made_again(pod)}
    report = cleaned(
        report_simulation(
            change,
            asked,
            play(base.snapshot, look.rules, again),
            play(asked.snapshot, look.rules, again),
            again,
            incomplete(base),
            now,
        )
    )
    args.show(args, report, simulation_lines(report))
    return Exit.DONE
