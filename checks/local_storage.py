"""Local disks and the file systems that the node lives on: failing, gone, read-only, unusable or full.

**What it means.** Images, logs, pods' volumes and often a job's scratch lie on local NVMe disks. A disk that fails shows it
first in its SMART log, a file system that met an error is read-only from then on.

**How it is detected.** Each NVMe controller's state and identity are read from sysfs, its SMART log is asked for every
`[storage] smart_period` (admin command Get Log Page, which changes nothing). The paths of `[storage] local` are looked
at by a child process each, below the host's own root directory; several paths on one file system are one. The kernel's
own lines about disks (facility 0 alone) count as warnings for `kernel_line_seconds`. A controller that is not live, a
disk that is gone and a file system that does not answer are faults once two looks have said so.

A root file system that was read-only from the start of the boot is meant so (many node images are) and is not judged,
nor are file systems that can be nothing else (squashfs, iso9660, erofs). A disk that was handed to another driver is
not missing, nor is a cloud's network volume (told by its model) that was detached: those come and go with pods, and do
not count among `expected_nvmes`.

**What nodemend does.** Where the node cannot live on its file systems, new work is kept off, what runs may finish, and the
node is rebooted. A disk that warns is a person's: new work prefers other nodes. Warnings change nothing.

**What on-call does.** Read the reason's own text. `nvme list`, `nvme smart-log`, `dmesg`, `findmnt`.

**Unknown** (LocalStorageUnreadable) after three looks that could not be made, or in which a live disk did not answer for its
SMART log.

**Not evaluated**: the SMART log where it may not be asked for (it takes CAP_SYS_ADMIN and the device node) or nothing offers
it; how many disks there should be, unless `expected_nvmes` says so; a read-only root that never was anything else.
"""

import errno
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from checks.check import Check, Context, Judgement, NotEvaluated
from checks.condition import Healthy
from checks.disk_events import DiskEvents, Event
from checks.finding import NODE, Finding, Part, PartKind
from checks.local_storage_reasons import (
    FILESYSTEM_NEARLY_FULL,
    FILESYSTEM_READ_ONLY,
    FILESYSTEM_UNUSABLE,
    FROM_KERNEL,
    LOCAL_STORAGE_UNREADABLE,
    NVME_MISSING,
    NVME_NOT_LIVE,
    REASONS,
)
from checks.nvme_words import is_volume, nvme_part, smart_words, state_words, word
from checks.observation import KernelRecord, Observation, SourceFailed
from checks.polled import Polled, PolledMemory, Rule, Said, Word, nobody_looks, restored
from checks.storage_reading import DISKS, DisksRead, MountReading

NAME = "local_storage"
NEVER_WRITABLE = {"squashfs", "iso9660", "erofs", "cramfs", "romfs", "udf"}
BROKEN = {
    errno.EIO,
    errno.ENXIO,
    errno.ENODEV,
    errno.ESHUTDOWN,
    errno.EUCLEAN,
    errno.EREMOTEIO,
    errno.ENOTCONN,
}


class LocalStorageMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept between judgements; all of it ends with the boot.

    `disks`: the NVMe disks that were seen, by PCI address. `writable`: the file systems that were seen so. `events`: what
    the kernel wrote of late.
    """

    polled: PolledMemory | None = None
    disks: dict[str, Part] = {}
    writable: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()


def judge(observations: Sequence[Observation], memory: Any, context: Context) -> Judgement:
    """Judge the disks and file systems of the node. Never raises for any observation."""
    if nothing := nobody_looks(NAME, DISKS, memory, context):
        return nothing
    judging = _Judging(memory if isinstance(memory, LocalStorageMemory) else LocalStorageMemory(), context)
    for seen in observations:
        match seen:
            case KernelRecord():
                judging.events.take(seen)
            case DisksRead(local=()):
                judging.polled.fail("no local file system was looked at")
            case DisksRead():
                judging.take(seen)
            case SourceFailed(source=source, error=error, tries=tries) if source == DISKS:
                judging.polled.fail(error, tries)
            case _:
                pass
    return judging.polled.judgement(LOCAL_STORAGE_UNREADABLE, judging.memory(), exists=True)


def restore(findings: Sequence[Finding], memory: Any) -> LocalStorageMemory:
    """Let findings stand again that the agent read back."""
    kept = memory if isinstance(memory, LocalStorageMemory) else LocalStorageMemory()
    return msgspec.structs.replace(kept, polled=restored(findings, kept.polled, REASONS))


class _Judging:
    """One judgement under way."""

    def __init__(self, kept: LocalStorageMemory, context: Context) -> None:
        self._settings = context.settings
        self.polled = Polled(NAME, REASONS, _rules(context.settings), kept.polled, context)
        before = self.polled.before
        same = kept.polled is not None and kept.polled.boot_id in ("", before.boot_id)
        if not same:
            kept = LocalStorageMemory()
        # A person who dealt with all of it took the machine as it is now.
        anew = context.cleared_before not in (None, before.applied.before)
        self._disks = {} if anew else dict(kept.disks)
        self._writable = set() if anew else set(kept.writable)
        self.events = DiskEvents(
            kept.events, self.polled.clock_ms, context, self._settings["kernel_line_seconds"] * 1000
        )

    def memory(self) -> LocalStorageMemory:
        """Give what is to be kept."""
        return LocalStorageMemory(
            polled=self.polled.memory(),
            disks=self._disks,
            writable=tuple(sorted(self._writable)),
            events=self.events.kept(),
        )

    def take(self, read: DisksRead) -> None:
        """Take one look."""
        words: list[Word] = []
        refused: list[tuple[Part, str]] = []
        for nvme in read.nvmes:
            part = nvme_part(nvme)
            if not is_volume(nvme):  # one that is being detached is not live either
                words += state_words(nvme, part)
            words += smart_words(nvme, part, self._settings["wear_percent"], refused)
        words += self._missing(read, refused)
        for local in read.local:
            words += self._file_system(local, refused)
        words += self._kernel_words()
        self.polled.hear(
            words, [NotEvaluated(check=NAME, part=part.shown(), why=why) for part, why in refused]
        )

    def _missing(self, read: DisksRead, refused: list[tuple[Part, str]]) -> Iterator[Word]:
        here = {nvme.pci: nvme_part(nvme) for nvme in read.nvmes if nvme.pci and not is_volume(nvme)}
        self._disks |= here
        handed = {pci for pci, driver in (read.bus or {}).items() if driver not in ("", "nvme")}
        for pci, part in sorted(self._disks.items()):
            if pci in here or pci in handed:
                yield word(False, NVME_MISSING, part)
            elif read.bus is not None:
                detail = (
                    "it is on the PCI bus, and the driver gave it up"
                    if pci in read.bus
                    else "it left the PCI bus"
                )
                yield word(True, NVME_MISSING, part, detail)
        self._disks = {pci: part for pci, part in self._disks.items() if pci not in handed}
        expected, found = self._settings["expected_nvmes"], len(here | dict.fromkeys(handed))
        if expected > 0:
            detail = f"{found} of {expected} NVMe disks are there"
            yield word(found < expected, NVME_MISSING, NODE, detail)
        elif self._disks:
            refused.append((NODE, "nobody says how many NVMe disks there should be (expected_nvmes)"))

    def _file_system(self, local: MountReading, refused: list[tuple[Part, str]]) -> Iterator[Word]:
        part = Part(kind=PartKind.MOUNT, name=local.path)
        what = f"{local.fstype} {local.source}".strip() or "it"
        if local.hangs_ms is not None:
            yield word(True, FILESYSTEM_UNUSABLE, part, f"{what}: a look at it does not come back")
        elif local.errno in BROKEN:
            yield word(True, FILESYSTEM_UNUSABLE, part, f"{what}: {local.error}")
        elif local.error or local.took_ms is None or local.read_only is None:
            why = local.error or "it is not told whether it is read-only"
            yield Word(said=Said.UNREADABLE, reason=FILESYSTEM_UNUSABLE, part=part, detail=why)
        else:
            yield word(False, FILESYSTEM_UNUSABLE, part)
            yield from self._read_only(local, part, what, refused)
            if not local.read_only:  # an image that can only be read is full by its nature
                yield from self._room(local, part)

    def _read_only(
        self, local: MountReading, part: Part, what: str, refused: list[tuple[Part, str]]
    ) -> Iterator[Word]:
        if not local.read_only:
            self._writable.add(local.path)
            yield word(False, FILESYSTEM_READ_ONLY, part)
        elif local.fstype in NEVER_WRITABLE or (local.path == "/" and local.path not in self._writable):
            why = "it is read-only by design, or was already when it was first looked at in this boot"
            refused.append((part, why))
        else:
            yield word(True, FILESYSTEM_READ_ONLY, part, f"{what} is read-only", f"options {local.options}")

    def _room(self, local: MountReading, part: Part) -> Iterator[Word]:
        short = [
            f"less than {limit} % of its {what} are free"
            for what, free, limit in (
                ("blocks", local.free_percent, self._settings["free_percent"]),
                ("inodes", local.free_inodes_percent, self._settings["free_inodes_percent"]),
            )
            if free is not None and free < limit
        ]
        if local.free_percent is not None or short:
            raw = f"free {local.free_percent} %, inodes {local.free_inodes_percent} %"
            yield word(bool(short), FILESYSTEM_NEARLY_FULL, part, "; ".join(short), raw)

    def _kernel_words(self) -> Iterator[Word]:
        """Say what the kernel wrote of late, and that it wrote no more of what stands from earlier."""
        lately = {(event.reason, event.device): event for event in self.events.kept()}
        for reason in FROM_KERNEL:
            for device in sorted(name for of, name in lately if of == reason.name):
                event = lately[reason.name, device]
                part = Part(kind=PartKind.DISK, name=device)
                yield word(True, reason, part, "the kernel says so", event.text)
        for slot in self.polled.before.slots.values():
            for reason in FROM_KERNEL:
                if slot.reason == reason.name and (slot.reason, slot.part.name) not in lately:
                    yield word(False, reason, slot.part)


def _rules(settings: dict[str, Any]) -> dict[str, Rule]:
    confirm_s, clear_s = settings["confirm_seconds"], settings["clear_seconds"]
    slow = {NVME_NOT_LIVE, NVME_MISSING, FILESYSTEM_UNUSABLE}
    rules = {
        reason.name: Rule(raise_after_s=confirm_s if reason in slow else 0, clear_after_s=clear_s)
        for reason in REASONS
    }
    return rules | {reason.name: Rule(clear_after_s=0) for reason in FROM_KERNEL}


CHECK = Check(
    name=NAME,
    condition="LocalStorageFault",
    healthy=Healthy(
        reason="LocalStorageSound", message="local disks are live and local file systems can be written to"
    ),
    reasons=REASONS,
    judge=judge,
    applies=lambda _: False,
    memory_type=LocalStorageMemory,
    runbook=__doc__,
    default_settings={
        "confirm_seconds": 90,
        "clear_seconds": 120,
        "kernel_line_seconds": 3600,
        "wear_percent": 80,
        "free_percent": 10,
        "free_inodes_percent": 5,
        "expected_nvmes": 0,
    },
    why_settings={
        "confirm_seconds": "a second look (they are two minutes apart): a controller that resets is live again in seconds",
        "clear_seconds": "a second good look",
        "kernel_line_seconds": "long enough to be seen, and lines that come again keep it standing",
        "wear_percent": "leaves months to replace it; facebookresearch/gcm warns from 80 % on, too",
        "free_percent": "kubelet's own default for nodefs.available, from which on it evicts",
        "free_inodes_percent": "kubelet's own default for nodefs.inodesFree",
        "expected_nvmes": "0: nobody says; nodes of one kind have the same number, which their configuration may say",
    },
    unknown_reasons=(LOCAL_STORAGE_UNREADABLE,),
    restore=restore,
    single_look={"confirm_seconds": 0},
    part_kind=PartKind.DISK,
)
