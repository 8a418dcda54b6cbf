"""What nodemend-controller is told at start: `/etc/nodemend/controller.toml`, as one frozen value.

Every key is optional. An unknown key, a wrong type or a value that cannot work is an error; all of them are collected
and said at once, each naming file, key, value and what would be right. What may be done to which node is not here: that
is RemediationPolicy's.
Not this module's job: opening connections, or reading what a secret file holds beyond whether it can sign.
"""

import re
import tomllib
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from controller import repairs
from controller.sections import Section, read, show_duration, write
from controller.signature import SecretProblem, read_secrets
from kube.lease import Timing

DEFAULT_PATH = Path("/etc/nodemend/controller.toml")

_SINK_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class ConfigError(Exception):
    """The configuration cannot be used; `problems` holds one sentence each."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class KubeSection(Section, frozen=True, kw_only=True):
    """Which API server; all empty means the Pod's own ServiceAccount, then the default kubeconfig."""

    server: str = ""
    token_file: str = ""
    ca_file: str = ""
    kubeconfig: str = ""


class LeaderSection(Section, frozen=True, kw_only=True):
    """The defaults are client-go's: the leader stops writing 5 s before another one may start."""

    namespace: str = "nodemend-system"
    name: str = "nodemend-controller"
    lease_duration: timedelta = timedelta(seconds=15)
    renew_deadline: timedelta = timedelta(seconds=10)
    retry_period: timedelta = timedelta(seconds=2)


class AgentsSection(Section, frozen=True, kw_only=True):
    """Ten renewals of an agent's Lease (30 s) may be missed before its silence is believed."""

    lease_namespace: str = "nodemend-system"
    silent_after: timedelta = timedelta(minutes=5)


class JobsSection(Section, frozen=True, kw_only=True):
    """Where and as what repairs run. Without an image nothing is repaired, and that is said."""

    namespace: str = "nodemend-repairs"
    service_account: str = "nodemend-repair"
    image: str = ""
    host_pid: bool = True


class RepairSection(Section, frozen=True, kw_only=True):
    command: tuple[str, ...] = ("nodemend-agent", "reboot")


class ValidationSection(Section, frozen=True, kw_only=True):
    command: tuple[str, ...] = ("nodemend-agent", "validate")


class SinkSection(Section, frozen=True, kw_only=True):
    """One receiver of pages. `retries` are the waits before each try; the number of them bounds the tries.

    `allow_http` lets a page leave without TLS to another host than this one. `ca_file` names the authority of a private
    receiver; without it the system's are used.
    """

    url: str = ""
    secret_file: str = ""
    timeout: timedelta = timedelta(seconds=15)
    retries: tuple[timedelta, ...] = tuple(timedelta(seconds=seconds) for seconds in (0, 5, 300, 1800, 7200))
    allow_http: bool = False
    ca_file: str = ""


class Config(Section, frozen=True, kw_only=True):
    """Everything; `sinks` and `repairs` by name. `retention` counts from the closing of a Remediation."""

    cluster_name: str = ""
    listen: str = "0.0.0.0:9477"  # scraped and probed from outside the Pod
    dry_run: bool = False
    retention: timedelta = timedelta(days=30)
    kube: KubeSection = KubeSection()
    leader: LeaderSection = LeaderSection()
    agents: AgentsSection = AgentsSection()
    jobs: JobsSection = JobsSection()
    repairs: dict[str, RepairSection] = {}
    validation: ValidationSection = ValidationSection()
    sinks: dict[str, SinkSection] = {}


def load(path: Path | None) -> Config:
    """Read the file; without a path the default one, which may be absent. Raises ConfigError with every problem."""
    return parse(*read_file(path, DEFAULT_PATH))


def read_file(path: Path | None, default: Path) -> tuple[str, str]:
    """Give a file's text and name; without a path the default one's, empty where it is absent. Raises ConfigError."""
    chosen = path if path is not None else default
    if path is None and not chosen.exists():
        return "", str(chosen)
    try:
        return chosen.read_text(encoding="utf-8"), str(chosen)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            (f"{chosen}: cannot be read ({error}); give a readable UTF-8 TOML file",)
        ) from error


def read_table(text: str, source: str) -> dict[str, Any]:
    """Read TOML text; `source` names it in errors. Raises ConfigError."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError((f"{source}: not TOML: {error}",)) from error


def parse(text: str, source: str) -> Config:
    """Make a Config of TOML text; `source` names it in errors. Raises ConfigError with every problem."""
    problems: list[str] = []
    config = read(Config, read_table(text, source), problems)
    known = {repair.name: repair for repair in repairs.ladder()}
    problems += [
        f"repairs.{name}: there is no such repair; known are {', '.join(sorted(known))}"
        for name in config.repairs
        if name not in known
    ]
    defaults = {name: RepairSection(command=repair.command) for name, repair in known.items()}
    config = msgspec.structs.replace(config, repairs={**defaults, **config.repairs})
    problems += _why_not_usable(config)
    if problems:
        raise ConfigError(tuple(f"{source}: {problem}" for problem in problems))
    return config


def shown(config: Config) -> str:
    """Print the effective configuration as TOML, without what may be secret: the path of a sink's URL is left out."""
    sinks = {
        name: msgspec.structs.replace(sink, url=_without_path(sink.url))
        for name, sink in config.sinks.items()
    }
    return write(msgspec.structs.replace(config, sinks=sinks))


def _why_not_usable(config: Config) -> list[str]:
    problems = []
    problems += why_not_listen(config.listen, Config().listen)
    problems += why_not_lead(config.leader)
    problems += why_not_hear(config.agents)
    if config.retention < timedelta(hours=1):
        problems.append(
            f"retention: {show_duration(config.retention)} is too short to look back; give at least 1h"
        )
    for name, repair in config.repairs.items():
        if not all(repair.command) or not repair.command:
            problems.append(f"repairs.{name}.command: {list(repair.command)!r} names no program")
    if not all(config.validation.command) or not config.validation.command:
        problems.append(f"validation.command: {list(config.validation.command)!r} names no program")
    problems += why_not_reach(config.kube)
    for name, sink in sorted(config.sinks.items()):
        problems += [f"sinks.{name}{why}" for why in _why_not_sink(name, sink)]
    return problems


def why_not_listen(listen: str, right: str) -> list[str]:
    """Say what is wrong with an address to listen on; `right` is one that is not."""
    host, _, port = listen.rpartition(":")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        return [f"listen: {listen!r} is not HOST:PORT; {right} would be right"]
    return []


def why_not_lead(leader: LeaderSection) -> list[str]:
    """Say what is wrong with the times of an election."""
    if leader.lease_duration % timedelta(seconds=1):
        duration = show_duration(leader.lease_duration)
        return [f"leader.lease_duration: {duration} is not in whole seconds, which is all that a Lease holds"]
    try:
        Timing(
            lease_duration=leader.lease_duration // timedelta(seconds=1),
            renew_deadline=leader.renew_deadline.total_seconds(),
            retry_period=leader.retry_period.total_seconds(),
        )
    except ValueError as error:
        return [f"{error}; 15s, 10s, 2s would be right"]
    return []


def why_not_hear(agents: AgentsSection) -> list[str]:
    """Say what is wrong with when an agent counts as silent."""
    if agents.silent_after >= timedelta(minutes=1):
        return []
    shown_value = show_duration(agents.silent_after)
    return [f"agents.silent_after: {shown_value} is less than two renewals of an agent; give at least 1m"]


def why_not_reach(kube: KubeSection) -> list[str]:
    """Say what is wrong with which API server."""
    explicit = {kube.server, kube.token_file, kube.ca_file}
    if "" in explicit and explicit != {""}:
        return ["kube: server, token_file and ca_file belong together; give all three or none"]
    return []


def _why_not_sink(name: str, sink: SinkSection) -> list[str]:
    problems = []
    if not _SINK_NAME.fullmatch(name):
        problems.append(": a sink's name holds lower-case letters, digits and '-', at most 63")
    try:
        url = urlsplit(sink.url)
        host, _ = url.hostname, url.port  # both raise for what is no address
    except ValueError as error:
        return [*problems, f".url: {error}; https://HOST/PATH would be right"]
    if url.scheme not in ("http", "https") or not host or url.username is not None:
        problems.append(".url: not an http(s) address without user name; https://HOST/PATH would be right")
    elif url.scheme == "http" and host not in _LOOPBACK and not sink.allow_http:
        problems.append(f".url: plain http to {host}; use https, or set allow_http = true for this sink")
    try:
        read_secrets(Path(sink.secret_file))
    except SecretProblem as error:
        problems.append(f".secret_file: {error}")
    if not timedelta(seconds=1) <= sink.timeout <= timedelta(seconds=30):
        problems.append(f".timeout: {show_duration(sink.timeout)} is not within 1s and 30s")
    if not 1 <= len(sink.retries) <= 20:
        problems.append(f".retries: {len(sink.retries)} tries; give 1 to 20 waits")
    if sink.ca_file and not Path(sink.ca_file).is_file():
        problems.append(f".ca_file: {sink.ca_file} is no file; give a PEM file or leave it out")
    return problems


def _without_path(url: str) -> str:
    split = urlsplit(url)
    return f"{split.scheme}://{split.netloc}/..." if split.path.strip("/") or split.query else url
