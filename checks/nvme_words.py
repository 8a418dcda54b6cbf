"""What one look says of one NVMe disk: its controller's state and its SMART log, as words for `checks.polled`. Pure."""

from collections.abc import Iterator

from checks.finding import Part, PartKind, Reason
from checks.local_storage_reasons import NVME_CRITICAL, NVME_NOT_LIVE, NVME_READ_ONLY, NVME_WARNING, NVME_WEAR
from checks.polled import Said, Word
from checks.storage_reading import NvmeReading

# Bits of the critical warning: NVM Express base specification, SMART / Health Information log.
SPARE, TEMPERATURE, RELIABILITY, READ_ONLY, BACKUP, MEMORY_REGION = (1 << bit for bit in range(6))
BITS = {
    SPARE: "spare below its threshold",
    TEMPERATURE: "temperature beyond its threshold",
    RELIABILITY: "reliability degraded by errors",
    READ_ONLY: "media in read-only mode",
    BACKUP: "backup of its volatile memory failed",
    MEMORY_REGION: "persistent memory region unreliable",
}
BY_BITS = (
    (NVME_READ_ONLY, READ_ONLY),
    (NVME_CRITICAL, SPARE | RELIABILITY),
    (NVME_WARNING, TEMPERATURE | BACKUP | MEMORY_REGION),
)

# Network volumes that clouds show as NVMe disks (the models that their own udev rules tell them by: amazon-ec2-utils,
# google-compute-engine guest-configs, azure-vm-utils). They come and go with the pods that use them.
VOLUMES = (
    "Amazon Elastic Block Store",
    "nvme_card-pd",
    "MSFT NVMe Accelerator",
    "Alibaba Cloud Elastic Block Storage",
)


def is_volume(nvme: NvmeReading) -> bool:
    """Tell a network volume, which may be detached at any time, from a disk of the machine."""
    return nvme.model.startswith(VOLUMES)


def nvme_part(nvme: NvmeReading) -> Part:
    """Name a disk; its PCI address stays while the machine runs."""
    return Part(kind=PartKind.DISK, name=nvme.name, pci=nvme.pci, serial=nvme.serial)


def state_words(nvme: NvmeReading, part: Part) -> Iterator[Word]:
    """Say whether its controller is live."""
    if nvme.error or not nvme.state:
        why = nvme.error or "its state is empty"
        yield Word(said=Said.UNREADABLE, reason=NVME_NOT_LIVE, part=part, detail=why)
        return
    detail = f"its controller is {'dead' if nvme.state == 'dead' else 'not live'}"
    yield word(nvme.state != "live", NVME_NOT_LIVE, part, detail, f"state {nvme.state}")


def smart_words(
    nvme: NvmeReading, part: Part, wear_percent: int, refused: list[tuple[Part, str]]
) -> Iterator[Word]:
    """Say what the SMART log says; one that may not be asked for goes to `refused`."""
    warned, used = nvme.critical_warning, nvme.used_percent
    if warned is None or used is None:
        if nvme.smart_denied:
            why = f"its SMART log cannot be asked for ({nvme.smart_error})"
            refused.append((part, why))
        elif nvme.state == "live":
            why = f"SMART log: {nvme.smart_error or 'nothing was told'}"
            yield Word(said=Said.UNREADABLE, reason=NVME_CRITICAL, part=part, detail=why)
        return
    spare = f"spare {nvme.spare_percent} %, its threshold {nvme.spare_threshold_percent} %"
    raw = f"critical_warning {warned:#04x}, used {used} %, {spare}"
    for reason, bits in BY_BITS:
        named = ", ".join(text for bit, text in BITS.items() if warned & bits & bit)
        yield word(bool(named), reason, part, f"{nvme.model or 'it'}: {named}", raw)
    detail = f"{nvme.model or 'it'} has used up {wear_percent} % or more of its rated writes"
    yield word(used >= wear_percent, NVME_WEAR, part, detail, raw)


def word(is_bad: bool, reason: Reason, part: Part, detail: str = "", evidence: str = "") -> Word:
    """Give a bad word with all that is known, or a good one."""
    if not is_bad:
        return Word(said=Said.GOOD, reason=reason, part=part)
    return Word(
        said=Said.BAD, reason=reason, part=part, detail=detail, evidence=(evidence,) if evidence else ()
    )
