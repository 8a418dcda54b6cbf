"""What nodemend-agent is told at start: `/etc/nodemend/agent.toml`, as one frozen value.

Every key is optional. An unknown key, a wrong type or a value that cannot work is an error; all of them are collected and
said at once, each naming file, key, value and what would be right. Whether a source can be read is not judged here.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from agent.wanted_mount import why_not_mounts
from checks.check import Check

DEFAULT_PATH = Path("/etc/nodemend/agent.toml")

_DURATION = re.compile(r"(?:[0-9]{1,9}(?:ms|h|m|s))+")
_DURATION_PART = re.compile(r"([0-9]+)(ms|h|m|s)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}


class ConfigError(Exception):
    """The configuration cannot be used; `problems` holds one sentence each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all sections: the fields are the keys, their types decide what is read."""


class KubeSection(Section, frozen=True, kw_only=True):
    """Which API server; all empty means the Pod's own ServiceAccount, then the default kubeconfig."""

    server: str = ""
    token_file: str = ""
    ca_file: str = ""
    kubeconfig: str = ""


class RootsSection(Section, frozen=True, kw_only=True):
    """Where the host's own trees are mounted; the boot id is `<proc>/sys/kernel/random/boot_id`."""

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")


class KernelLogSection(Section, frozen=True, kw_only=True):
    """`admit_foreign` lets records count that did not come from the kernel, as drills, and only after `after_sequence`."""

    path: Path = Path("/dev/kmsg")
    admit_foreign: bool = False
    after_sequence: int = 0


class NvmlSection(Section, frozen=True, kw_only=True):
    """What is asked of the driver. `driver_root` is the root of the file system that holds its user space.

    A call that has not come back after `call_deadline` is a hung one (nvmlInit, which brings up every GPU, has a minute at
    least); a round of calls takes place every `period`.
    """

    enabled: bool = True
    driver_root: Path = Path("/")
    period: timedelta = timedelta(seconds=30)
    call_deadline: timedelta = timedelta(seconds=15)


class PciSection(Section, frozen=True, kw_only=True):
    """The PCI devices in sysfs, looked at every `period`; a look that takes longer than `deadline` is one that failed."""

    enabled: bool = True
    period: timedelta = timedelta(seconds=30)
    deadline: timedelta = timedelta(seconds=15)


class StorageSection(Section, frozen=True, kw_only=True):
    """Shared mounts by path (`/data`, or `/home:ro` where one may be read-only), and paths on local file systems.

    A local path that is not there is left out. A look that takes longer than `deadline` hangs. `read_entry` reads one entry
    of a shared mount's directory, `write_probe` writes, flushes and removes a file in it, named as the node.
    """

    enabled: bool = True
    mounts: tuple[str, ...] = ()
    mounts_period: timedelta = timedelta(minutes=1)
    local: tuple[str, ...] = (
        "/",
        "/var/lib/kubelet",
        "/var/lib/containerd",
        "/var/lib/containers",
        "/var/lib/docker",
    )
    disks_period: timedelta = timedelta(minutes=2)
    smart_period: timedelta = timedelta(minutes=10)
    deadline: timedelta = timedelta(seconds=10)
    read_entry: bool = True
    write_probe: bool = False


class HostSection(Section, frozen=True, kw_only=True):
    """What is looked at of the host itself, for warnings alone; a look that takes longer than `deadline` failed."""

    enabled: bool = True
    period: timedelta = timedelta(minutes=2)
    deadline: timedelta = timedelta(seconds=30)


class InfinibandSection(Section, frozen=True, kw_only=True):
    """The RDMA devices in sysfs, looked at every `period`; a look that takes longer than `deadline` is one that failed.

    All patterns are shell patterns of device names (mlx5_*) or PCI addresses. `devices` are looked at, `exclude` are not,
    virtual functions only where `virtual_functions` says so. `compute`, `storage` and `management` say what a device is for
    where that cannot be told; a port of `storage` that is down takes the node out.
    """

    enabled: bool = True
    period: timedelta = timedelta(seconds=10)
    deadline: timedelta = timedelta(seconds=15)
    devices: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    virtual_functions: bool = False
    compute: tuple[str, ...] = ()
    storage: tuple[str, ...] = ()
    management: tuple[str, ...] = ()


class PublishSection(Section, frozen=True, kw_only=True):
    """`burst` writes at once, then one per `refill`; everything is written anew after `reassert` even if unchanged.

    10 minutes, for conditions and NodeHealth alike, stays within 12 writes per node and hour when nothing happens.
    """

    burst: int = 6
    refill: timedelta = timedelta(seconds=10)
    reassert: timedelta = timedelta(minutes=10)


class LeaseSection(Section, frozen=True, kw_only=True):
    """The proof of life, which the controller believes for 5 minutes; an empty namespace switches it off."""

    namespace: str = "nodemend-system"
    interval: timedelta = timedelta(seconds=30)


class KubeletSection(Section, frozen=True, kw_only=True):
    """Kubelet's account of the devices, asked only where there is a GPU.

    `resources` are shell patterns of the extended resources that are GPUs, `drivers` the names of dynamic resource
    allocation's drivers whose devices are.
    """

    enabled: bool = True
    pod_resources: Path = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
    interval: timedelta = timedelta(seconds=30)
    resources: tuple[str, ...] = ("nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-*")
    drivers: tuple[str, ...] = ("gpu.nvidia.com",)


class RebootSection(Section, frozen=True, kw_only=True):
    """How `nodemend-agent reboot` ends this boot: by the host's own init, so that units stop in order."""

    command: tuple[str, ...] = ("nsenter", "--target", "1", "--mount", "--", "systemctl", "reboot")


class CheckSection(Section, frozen=True, kw_only=True):
    """One check's kill switch, and its own settings."""

    enabled: bool = True
    settings: dict[str, Any] = {}


class Config(Section, frozen=True, kw_only=True):
    """Everything. `node_name` is the environment's NODE_NAME unless given; an empty `listen` serves nothing."""

    node_name: str = ""
    listen: str = "0.0.0.0:9476"  # scraped and probed from outside the Pod
    state_dir: Path = Path("/var/lib/nodemend")
    kube: KubeSection = KubeSection()
    roots: RootsSection = RootsSection()
    kernel_log: KernelLogSection = KernelLogSection()
    nvml: NvmlSection = NvmlSection()
    pci: PciSection = PciSection()
    storage: StorageSection = StorageSection()
    host: HostSection = HostSection()
    infiniband: InfinibandSection = InfinibandSection()
    publish: PublishSection = PublishSection()
    lease: LeaseSection = LeaseSection()
    kubelet: KubeletSection = KubeletSection()
    reboot: RebootSection = RebootSection()
    checks: dict[str, CheckSection] = {}

    def check(self, name: str) -> CheckSection:
        """Give a check's section, or the default one where the file says nothing about it."""
        return self.checks.get(name, CheckSection())


S = TypeVar("S", bound=Section)
V = TypeVar("V")


def load(path: Path | None, checks: Sequence[Check], environment: Mapping[str, str]) -> Config:
    """Read the file; without a path the default one, which may be absent. Raises ConfigError with every problem."""
    chosen = path if path is not None else DEFAULT_PATH
    if path is None and not chosen.exists():
        return parse("", str(chosen), checks, environment)
    try:
        text = chosen.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError([f"{chosen}: cannot be read ({error}); give a readable UTF-8 TOML file"]) from error
    return parse(text, str(chosen), checks, environment)


def parse(text: str, source: str, checks: Sequence[Check], environment: Mapping[str, str]) -> Config:
    """Make a Config of TOML text; `source` names it in errors. Raises ConfigError with every problem."""
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError([f"{source}: not TOML: {error}"]) from error
    problems: list[str] = []
    sections = table.pop("checks", {})
    config = _read(Config, table, "", problems)
    config = msgspec.structs.replace(
        config,
        node_name=config.node_name or environment.get("NODE_NAME", ""),
        checks=_read_checks(sections, checks, problems),
    )
    problems += _why_not_usable(config)
    if problems:
        raise ConfigError([f"{source}: {problem}" for problem in problems])
    return config


def parse_duration(text: str) -> timedelta:
    """Read `90s`, `1h30m`, `250ms`. Raises ValueError for anything else."""
    if not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r} is no duration; write it like 30s, 5m or 1h30m")
    parts = _DURATION_PART.findall(text)
    return timedelta(milliseconds=sum(int(number) * _UNIT_MS[unit] for number, unit in parts))


def _read(kind: type[S], table: Mapping[str, Any], where: str, problems: list[str]) -> S:
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    for key, value in table.items():
        if key not in fields:
            known = ", ".join(sorted(fields))
            problems.append(f"{where}{key} = {value!r}: unknown key; known here are {known}")
    values = {}
    for name, field in fields.items():
        if name in table:
            try:
                values[name] = _value(field.type, table[name], f"{where}{name}", problems)
            except (TypeError, ValueError) as error:
                problems.append(f"{where}{name}: {error}")
    return kind(**values)


def _value(kind: Any, value: Any, where: str, problems: list[str]) -> Any:
    if kind is timedelta:
        return parse_duration(_typed(str, value))
    if kind is Path:
        return _path(_typed(str, value))
    if kind == tuple[str, ...]:
        return tuple(_typed(str, item) for item in _typed(list, value))
    if isinstance(kind, type) and issubclass(kind, Section):
        return _read(kind, _typed(dict, value), f"{where}.", problems)
    return _typed(kind, value)


def _path(text: str) -> Path:
    if not text or "\0" in text:
        raise ValueError(f"{text!r} is no path; an absolute one such as /var/lib/nodemend would be right")
    return Path(text)


_TYPE_NAMES = {
    str: "a string",
    bool: "true or false",
    int: "a whole number",
    list: "a list of strings",
    dict: "a table",
}


def _typed(kind: type[V], value: Any) -> V:
    if type(value) is not kind:
        raise TypeError(f"{value!r} is not {_TYPE_NAMES.get(kind, kind.__name__)}")
    return value


def _read_checks(sections: Any, checks: Sequence[Check], problems: list[str]) -> dict[str, CheckSection]:
    """Read `[checks.NAME]`: `enabled`, and beside it only the settings that the check itself names."""
    if not isinstance(sections, dict):
        problems.append(
            f"checks = {sections!r}: is not a table; [checks.NAME] with enabled = true would be right"
        )
        return {}
    known = {check.name: check for check in checks}
    read = {}
    for name, table in sections.items():
        if name not in known:
            problems.append(f"checks.{name}: there is no such check; known are {', '.join(sorted(known))}")
        elif not isinstance(table, dict):
            problems.append(f"checks.{name} = {table!r}: is not a table; enabled = true in it would be right")
        else:
            read[name] = _read_check(name, table, known[name].default_settings, problems)
    return read


def _read_check(
    name: str, table: Mapping[str, Any], defaults: Mapping[str, Any], problems: list[str]
) -> CheckSection:
    enabled = True
    settings: dict[str, Any] = {}
    for key, value in table.items():
        where = f"checks.{name}.{key}"
        if key != "enabled" and key not in defaults:
            known = ", ".join(["enabled", *sorted(defaults)])
            problems.append(f"{where} = {value!r}: unknown key; known here are {known}")
            continue
        wanted = bool if key == "enabled" else type(defaults[key])
        if type(value) is not wanted:
            problems.append(f"{where}: {value!r} is not {_TYPE_NAMES.get(wanted, wanted.__name__)}")
        elif key == "enabled":
            enabled = value
        else:
            settings[key] = value
    return CheckSection(enabled=enabled, settings=settings)


def _why_not_usable(config: Config) -> list[str]:
    problems = []
    if config.listen and (why := _why_not_listen(config.listen)):
        problems.append(f"listen: {why}")
    explicit = {config.kube.server, config.kube.token_file, config.kube.ca_file}
    if "" in explicit and explicit != {""}:
        problems.append("kube: server, token_file and ca_file belong together; give all three or none")
    if config.kernel_log.after_sequence < 0:
        problems.append(
            f"kernel_log.after_sequence: {config.kernel_log.after_sequence} is negative; 0 or more is right"
        )
    if not 1 <= config.publish.burst <= 100:
        problems.append(f"publish.burst: {config.publish.burst} is not within 1 and 100; 6 would be right")
    if not config.reboot.command or not all(config.reboot.command):
        problems.append(f"reboot.command: {list(config.reboot.command)!r} names no program")
    problems += why_not_mounts(config.storage.mounts, config.storage.local)
    problems += [
        f"kubelet.resources: {resource!r} is no extended resource; nvidia.com/gpu would be one"
        for resource in config.kubelet.resources
        if "/" not in resource
    ]
    bounds = (
        ("publish.refill", config.publish.refill, "1s", "10m"),
        ("publish.reassert", config.publish.reassert, "1m", "24h"),
        ("lease.interval", config.lease.interval, "5s", "2m"),
        ("nvml.period", config.nvml.period, "5s", "2m"),
        ("nvml.call_deadline", config.nvml.call_deadline, "1s", "2m"),
        ("pci.period", config.pci.period, "5s", "2m"),
        ("pci.deadline", config.pci.deadline, "1s", "2m"),
        ("storage.mounts_period", config.storage.mounts_period, "10s", "2m"),
        ("storage.disks_period", config.storage.disks_period, "10s", "2m"),
        ("storage.smart_period", config.storage.smart_period, "1m", "24h"),
        ("storage.deadline", config.storage.deadline, "1s", "1m"),
        ("host.period", config.host.period, "10s", "2m"),
        ("host.deadline", config.host.deadline, "1s", "2m"),
        ("infiniband.period", config.infiniband.period, "1s", "2m"),
        ("infiniband.deadline", config.infiniband.deadline, "1s", "2m"),
        ("kubelet.interval", config.kubelet.interval, "5s", "10m"),
    )
    for name, value, least, most in bounds:
        if not parse_duration(least) <= value <= parse_duration(most):
            problems.append(f"{name}: {value.total_seconds():g}s is not within {least} and {most}")
    return problems


def _why_not_listen(listen: str) -> str | None:
    host, _, port = listen.rpartition(":")
    if not host or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535:
        return (
            f"{listen!r} is not HOST:PORT; 0.0.0.0:9476 would be right, or an empty string to serve nothing"
        )
    return None
