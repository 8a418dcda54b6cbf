"""Takes out of a capture what names people, their work or their machines, and leaves what a fault looks like. Pure.

Each name becomes a numbered one, the same wherever it stands, so that what belongs together still does. Kept as they are:
PCI addresses, models, firmware and driver versions, counters, XID texts. Of the kernel log only what drivers and file
systems say is kept, since other records may quote whatever a program chose.
"""

import ipaddress
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

KEPT_LABELS = re.compile(
    r"node\.kubernetes\.io/instance-type|kubernetes\.io/(?:arch|os)|nvidia\.com/(?:gpu|mig|cuda)[A-Za-z0-9./-]*"
)
_SPOKEN_BY_DRIVERS = re.compile(
    r"(?:NVRM|nvidia[\w-]*|The NVIDIA|NVLink|mlx[45]_\w+|efa|ena|infiniband|pcieport|AER|pci |nvme|EXT4-fs|XFS|BTRFS|"
    r"blk_update_request|Buffer I/O|I/O error|EDAC|mce|\[Hardware Error\]|md/|md:|ata\d|scsi|sd |nfs|lustre|LustreError|"
    r"GPU |installed in this system|fallen off the bus|INFO: task|watchdog|Remounting|device-mapper|"
    r"\d{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d)",
    re.IGNORECASE,
)
_PROCESS = re.compile(r"pid=(?:'<unknown>'|\d+), name=.*?(?=, |$)")
# What these lines quote of a program or a server is chosen by whoever runs it: kernel/hung_task.c, kernel/watchdog.c,
# fs/ext4/super.c, net/sunrpc and fs/nfs (the name given to mount), Lustre's targets (the file system's name).
_QUOTED = (
    (re.compile(r"\btask .{1,64}?:\d+"), "task redacted:1"),
    (re.compile(r"(stuck for \d+s! )\[.*\]"), r"\1[redacted:1]"),
    (re.compile(r"(\bcomm:? ).{1,16}(?=: |, |$)", re.IGNORECASE), r"\1redacted"),
)
_SERVERS = (
    re.compile(r"(?<=\bserver )(?!(?:\d+\.){3}\d)[^\s,]+?(?=:?(?:[\s,]|$))"),
    re.compile(r"[\w.]{1,8}(?=-(?:OST|MDT)[0-9a-f]{4})"),
    re.compile(r"\b(?:nqn|iqn)\.[^\s\",]+"),
)
_HOME = re.compile(r"(/(?:home|Users)/)[^/\s:'\"]+")
_UUID = re.compile(r"\b(?:(GPU|MIG)-)?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\b", re.IGNORECASE)
_GUID = re.compile(r"\b[0-9a-f]{4}(?::[0-9a-f]{4}){3,7}\b", re.IGNORECASE)
_MAC = re.compile(
    r"\b[0-9a-f]{2}(?::[0-9a-f]{2}){5,19}\b", re.IGNORECASE
)  # up to IP over InfiniBand's 20 bytes
# Not the four and more numbers of a version, which the driver and a VBIOS have.
_IPV4 = re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?!\.?\d)")
_IPV6 = re.compile(
    r"(?<![\w:.])[0-9a-f:]*:[0-9a-f]*:[0-9a-f:]*(?:(?:\d{1,3}\.){3}\d{1,3})?(?![\w:])", re.IGNORECASE
)
_SERIAL = re.compile(r"(serial(?: number)?(?: is)?:? )(\S+)", re.IGNORECASE)
# Fields whose whole value is a name, by what it is renamed to.
_NAMED = {
    "serial": "serial",
    "node_guid": "guid",
    "held_by": "pod",
    "holder": "pod",
    "lid": "lid",
    "sm_lid": "lid",
}
# Names that are found as values and then taken out of texts, too, such as the message that quotes a mount's server.
_IN_TEXTS = {"serial", "guid", "pod", "server"}
_LEAST = 4
"""Shorter ones would be found by chance."""
# Words of the readings themselves: a machine that is called so is no secret, and they must stay what they are.
_OUR_WORDS = frozenset(
    (
        "active",
        "compute",
        "disk",
        "disks",
        "error",
        "gpu",
        "hca",
        "host",
        "infiniband",
        "kernel",
        "live",
        "localhost",
        "mount",
        "mounts",
        "node",
        "none",
        "nvml",
        "nvme",
        "nvswitch",
        "pci",
        "port",
        "storage",
    )
)
_PLAIN_OPTIONS = re.compile(r"[a-z0-9_-]+|(?:errors|vers|proto|sec|timeo|retrans)=[\w.-]+")


class Redactor:
    """Remembers which name became which; one for each capture."""

    def __init__(self, secrets: Mapping[str, str] = MappingProxyType({})) -> None:
        """`secrets` are words to put others for wherever they stand, such as the name of the node; longest first."""
        self._secrets: dict[str, str] = {}
        self._any_secret: re.Pattern[str] | None = None
        self._names: dict[tuple[str, str], str] = {}
        for secret, instead in secrets.items():
            self._hide(secret, instead, least=3)
        self.dropped = 0

    def value(self, thing: Any, field: str = "") -> Any:
        """Give JSON-like data without names."""
        if isinstance(thing, str):
            return self._field(thing, field)
        if isinstance(thing, Mapping):
            if field == "holders":  # which pod has which GPU
                return {self.text(str(gpu)): self._name("pod", str(pod)) for gpu, pod in thing.items()}
            if "fstype" in thing:
                thing = self._mount(thing)
            return {self.text(str(key)): self.value(one, str(key)) for key, one in thing.items()}
        if field == "d_state" and isinstance(thing, list | tuple):
            return [[1, "redacted"] for _ in thing]
        if isinstance(thing, list | tuple):
            return [self.value(one, field) for one in thing]
        return thing

    def kernel_text(self, text: str) -> str | None:
        """Give a record of the kernel log without names, None where it may quote a program."""
        if not _SPOKEN_BY_DRIVERS.match(text.lstrip()):
            self.dropped += 1
            return None
        return self._raw(text)

    def _raw(self, text: str) -> str:
        """Give a line of the kernel log without what it quotes; findings hold such lines as their evidence."""
        text = _PROCESS.sub("pid=1, name=redacted", text)
        for pattern, instead in _QUOTED:
            text = pattern.sub(instead, text)
        for pattern in _SERVERS:
            text = pattern.sub(lambda found: self._name("server", found[0]), text)
        return self.text(_SERIAL.sub(lambda found: found[1] + self._name("serial", found[2]), text))

    def labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Give the labels that say what kind of machine this is."""
        return {key: self.text(value) for key, value in labels.items() if KEPT_LABELS.fullmatch(key)}

    def text(self, text: str) -> str:
        """Give text without the names that can be told by their form."""
        if self._secrets:
            if self._any_secret is None:
                words = sorted(self._secrets, key=lambda word: (-len(word), word))
                any_of = "|".join(map(re.escape, words))
                self._any_secret = re.compile(rf"(?<![A-Za-z0-9])(?:{any_of})(?![A-Za-z0-9])", re.IGNORECASE)
            text = self._any_secret.sub(lambda found: self._secrets.get(found[0].lower(), "redacted"), text)
        text = _HOME.sub(r"\1user", text)
        text = _UUID.sub(lambda found: self._uuid(found[2], found[1] or ""), text)
        text = _MAC.sub(lambda found: self._name("mac", found[0]), text)
        for pattern in (_IPV6, _IPV4):
            text = pattern.sub(lambda found: self._address(found[0]), text)
        return _GUID.sub(lambda found: self._name("guid", found[0]), text)

    def _mount(self, mount: Mapping[str, Any]) -> dict[str, Any]:
        """Give a mount without its server, pool or volume, and with the options that name nobody."""
        source, options = str(mount.get("source", "")), str(mount.get("options", ""))
        is_plain = source.startswith("/dev/") and not source.startswith("/dev/mapper/")
        if (
            source
            and not is_plain
            and source.lower() not in (mount.get("fstype"), "overlay", "tmpfs", "none")
        ):
            source = self._name("server", source)
        plain = " ".join(
            ",".join(word for word in own.split(",") if _PLAIN_OPTIONS.fullmatch(word))
            for own in options.split(" ")
        )
        if plain != options:
            self._hide(options, plain, least=_LEAST)
        return {key: {"source": source, "options": plain}.get(key, one) for key, one in mount.items()}

    def _address(self, text: str) -> str:
        try:
            ipaddress.ip_address(text)
        except ValueError:
            return text
        return self._name("address", text)

    def _hide(self, secret: str, instead: str, least: int) -> None:
        """Take this out of every text from now on."""
        if len(secret) >= least and secret.lower() not in _OUR_WORDS:
            self._secrets.setdefault(secret.lower(), instead)
            self._any_secret = None

    def _field(self, text: str, field: str) -> str:
        if field == "evidence":
            return self._raw(text)
        kind = _NAMED.get(field)
        return self._name(kind, text) if kind is not None and text else self.text(text)

    def _uuid(self, uuid: str, prefix: str) -> str:
        number = int(self._name("uuid", uuid.lower()).rpartition("-")[2])
        plain = f"00000000-0000-0000-0000-{number:012x}"
        return f"{prefix}-{plain}" if prefix else plain

    def _name(self, kind: str, real: str) -> str:
        held = self._names.get((kind, real))
        if held is None:
            number = sum(1 for known, _ in self._names if known == kind) + 1
            held = self._names[kind, real] = f"{kind}-{number}"
            if kind in _IN_TEXTS:
                self._hide(real, held, least=_LEAST)
        return held
