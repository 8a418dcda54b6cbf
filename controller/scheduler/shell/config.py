"""What nodemend-scheduler is told at start: `/etc/nodemend/scheduler.toml`, as one frozen value.

Every key is optional. An unknown key, a wrong type or a value that cannot work is an error; all of them are collected and
said at once, each naming file, key, value and what would be right.
"""

from datetime import timedelta
from pathlib import Path
from typing import Final

import msgspec

import controller.config
from controller.config import (
    AgentsSection,
    ConfigError,
    KubeSection,
    read_file,
    read_table,
    why_not_hear,
    why_not_lead,
    why_not_listen,
    why_not_reach,
)
from controller.scheduler.model import Order, Settings
from controller.scheduler.rules import COMPATIBLE, DEFAULT, Rules
from controller.scheduler.shell import start_failures
from controller.scheduler.unseen import Unseen
from controller.sections import Section, read, show_duration, write

DEFAULT_PATH: Final = Path("/etc/nodemend/scheduler.toml")
OUR_NAME: Final = "nodemend-scheduler"
KAI_NAME: Final = "kai-scheduler"

_MODES: Final = {"default": DEFAULT, "compatible": COMPATIBLE}
_ORDERS: Final = tuple(order.value for order in Order)
_UNSEEN: Final = tuple(word.value for word in Unseen)
_NOT_OURS: Final = ("", "default-scheduler")


class LeaderSection(controller.config.LeaderSection, frozen=True, kw_only=True):
    """As the controller's, under a Lease of its own."""

    name: str = OUR_NAME


class PlacementSection(Section, frozen=True, kw_only=True):
    """Fill nodes and cards up one by one (binpack), or spread over them."""

    gpu: str = Order.BINPACK.value
    cpu: str = Order.BINPACK.value
    gpu_sharing: str = Order.BINPACK.value
    restrict_node_scheduling: bool = False


class GracesSection(Section, frozen=True, kw_only=True):
    """How long things may take. `stale_gang`: below its minimum before its rest is evicted; `half_gang`: after a bind
    that failed, before the members that were bound are taken back; `volumes`: until a claim's volume is there;
    `start_failures`: how long a node on which starts fail is put aside the first time, which doubles each time in a row.
    """

    stale_gang: timedelta = timedelta(seconds=60)
    half_gang: timedelta = timedelta(seconds=10)
    volumes: timedelta = timedelta(minutes=2)
    start_failures: timedelta = start_failures.FIRST
    preempt_min_runtime: timedelta = timedelta(0)
    reclaim_min_runtime: timedelta = timedelta(0)


class Config(Section, frozen=True, kw_only=True):
    """Everything. `pool` is the value of `pool_label` on the nodes, queues and pod groups that this scheduler plans; "" =
    what lacks the label. `unseen`: whether GPU nodes that no agent ever reported take GPU pods; a policy may refuse besides.
    `dry_run`: plan beside whoever leads, without an election and without a write.
    """

    listen: str = "0.0.0.0:9478"  # scraped and probed from outside the Pod
    scheduler_name: str = OUR_NAME
    mode: str = "default"
    dry_run: bool = False
    enable_fractions: bool = False
    unseen: str = Unseen.ADMIT.value
    default_queue: str = "default-queue"
    queue_label: str = "kai.scheduler/queue"
    pool_label: str = "kai.scheduler/node-pool"
    pool: str = ""
    kube: KubeSection = KubeSection()
    leader: LeaderSection = LeaderSection()
    agents: AgentsSection = AgentsSection()
    placement: PlacementSection = PlacementSection()
    graces: GracesSection = GracesSection()

    @property
    def rules(self) -> Rules:
        return _MODES[self.mode]

    def settings(self) -> Settings:
        """Give what the cycle needs of it."""
        return Settings(
            gpu_order=Order(self.placement.gpu),
            cpu_order=Order(self.placement.cpu),
            gpu_sharing_order=Order(self.placement.gpu_sharing),
            restrict_node_scheduling=self.placement.restrict_node_scheduling,
            staleness_grace_s=_whole(self.graces.stale_gang),
            preempt_min_runtime_s=_whole(self.graces.preempt_min_runtime),
            reclaim_min_runtime_s=_whole(self.graces.reclaim_min_runtime),
        )


def _whole(span: timedelta) -> int:
    return span // timedelta(seconds=1)


def load(path: Path | None) -> Config:
    """Read the file; without a path the default one, which may be absent. Raises ConfigError with every problem."""
    return parse(*read_file(path, DEFAULT_PATH))


def parse(text: str, source: str) -> Config:
    """Make a Config of TOML text; `source` names it in errors. Raises ConfigError with every problem."""
    problems: list[str] = []
    config = read(Config, read_table(text, source), problems)
    problems += why_not_usable(config)
    if problems:
        raise ConfigError(tuple(f"{source}: {problem}" for problem in problems))
    return config


def shown(config: Config) -> str:
    """Print the effective configuration as TOML; it holds no secret."""
    return write(config)


def why_not_usable(config: Config) -> list[str]:
    """Say what cannot work, one sentence each."""
    problems = [
        f"{key}: {value!r} is not one of {', '.join(known)}"
        for key, value, known in (
            ("mode", config.mode, tuple(_MODES)),
            ("unseen", config.unseen, _UNSEEN),
            ("placement.gpu", config.placement.gpu, _ORDERS),
            ("placement.cpu", config.placement.cpu, _ORDERS),
            ("placement.gpu_sharing", config.placement.gpu_sharing, _ORDERS),
        )
        if value not in known
    ]
    problems += why_not_listen(config.listen, Config().listen)
    if config.scheduler_name in _NOT_OURS:
        problems.append(
            f"scheduler_name: {config.scheduler_name!r} is Kubernetes' own; {OUR_NAME} would be right"
        )
    problems += why_not_lead(config.leader)
    problems += why_not_hear(config.agents)
    problems += _why_not_graces(config.graces)
    problems += why_not_reach(config.kube)
    for key in ("default_queue", "queue_label", "pool_label"):
        if not getattr(config, key):
            problems.append(f"{key}: is empty; leave it out for the default")
    return problems


def _why_not_graces(graces: GracesSection) -> list[str]:
    problems = [
        f"graces.{field.name}: {show_duration(getattr(graces, field.name))} is negative; give 0s or more"
        for field in msgspec.structs.fields(graces)
        if getattr(graces, field.name) < timedelta(0)
    ]
    if not timedelta(seconds=1) <= graces.start_failures <= start_failures.LONGEST:
        problems.append(
            f"graces.start_failures: {show_duration(graces.start_failures)} is not between 1s and "
            f"{show_duration(start_failures.LONGEST)}; {show_duration(start_failures.FIRST)} would be right"
        )
    return problems
