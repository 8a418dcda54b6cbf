"""Takes out of a capture what names people, their work or their machines, and leaves what a fault looks like. Pure.

Each name becomes a numbered one, the same wherever it stands, so that what belongs together still does. Kept as they are:
PCI addresses, models, firmware and driver versions, counters, XID texts. Of the kernel log only what drivers and file
systems say is kept, since other records may quote whatever a program chose.
"""

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
_TASK = re.compile(r"(INFO: task )\S+( blocked)")
_UUID = re.compile(r"\b(?:(GPU|MIG)-)?([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\b", re.IGNORECASE)
_GUID = re.compile(r"\b[0-9a-f]{4}(?::[0-9a-f]{4}){3,7}\b")
_MAC = re.compile(r"\b[0-9a-f]{2}(?::[0-9a-f]{2}){5}\b", re.IGNORECASE)
_IPV4 = re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}\b")
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


class Redactor:
    """Remembers which name became which; one for each capture."""

    def __init__(self, secrets: Mapping[str, str] = MappingProxyType({})) -> None:
        """`secrets` are words to put others for wherever they stand, such as the name of the node; longest first."""
        known = sorted(secrets.items(), key=lambda pair: (-len(pair[0]), pair))
        self._secrets = [(secret, instead) for secret, instead in known if len(secret) > 2]
        self._names: dict[tuple[str, str], str] = {}
        self.dropped = 0

    def value(self, thing: Any, field: str = "") -> Any:
        """Give JSON-like data without names."""
        if isinstance(thing, str):
            return self._field(thing, field)
        if isinstance(thing, Mapping):
            if field == "holders":  # which pod has which GPU
                return {self.text(str(gpu)): self._name("pod", str(pod)) for gpu, pod in thing.items()}
            is_mount = "fstype" in thing  # its source names a server
            return {
                self.text(str(key)): self._name("server", str(one))
                if is_mount and key == "source" and one
                else self.value(one, str(key))
                for key, one in thing.items()
            }
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
        text = _PROCESS.sub("pid=1, name=redacted", text)
        text = _TASK.sub(r"\1redacted:1\2", text)
        return self.text(_SERIAL.sub(lambda found: found[1] + self._name("serial", found[2]), text))

    def labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Give the labels that say what kind of machine this is."""
        return {key: self.text(value) for key, value in labels.items() if KEPT_LABELS.fullmatch(key)}

    def text(self, text: str) -> str:
        """Give text without the names that can be told by their form."""
        for secret, instead in self._secrets:
            text = text.replace(secret, instead)
        text = _UUID.sub(lambda found: self._uuid(found[2], found[1] or ""), text)
        text = _GUID.sub(lambda found: self._name("guid", found[0]), text)
        text = _MAC.sub(lambda found: self._name("mac", found[0]), text)
        return _IPV4.sub(lambda found: self._name("address", found[0]), text)

    def _field(self, text: str, field: str) -> str:
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
        return held
