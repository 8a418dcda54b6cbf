"""Local disks and file systems as they are judged: every reason in, out, unknown or not evaluated."""

import errno
from collections.abc import Callable

import msgspec
import pytest

from checks.check import Clearing
from checks.local_storage import CHECK, restore
from checks.observation import KernelRecord, Observation
from checks.storage_reading import DisksRead
from tests.checks.disks import KUBELET, NVME, ROOT, UNUSABLE, failed, gone, looks, replace, watched
from tests.checks.kernel import NEXT_BOOT, at, record
from tests.checks.nvml import Watched

SOUND = "False LocalStorageSound"
UNREAD = "Unknown LocalStorageUnreadable"


@pytest.mark.parametrize(
    ("look", "reason", "is_fault"),
    [
        pytest.param(looks(replace(NVME, critical_warning=0x08)), "NvmeReadOnly", True, id="read-only media"),
        pytest.param(looks(replace(NVME, critical_warning=0x01)), "NvmeCritical", True, id="spare used up"),
        pytest.param(looks(replace(NVME, critical_warning=0x04)), "NvmeCritical", True, id="reliability"),
        pytest.param(looks(replace(NVME, critical_warning=0x02)), "NvmeWarning", False, id="temperature"),
        pytest.param(
            looks(replace(NVME, critical_warning=0x30)), "NvmeWarning", False, id="backup and region"
        ),
        pytest.param(looks(replace(NVME, used_percent=80)), "NvmeWear", False, id="worn"),
        pytest.param(
            looks(replace(NVME, used_percent=255)), "NvmeWear", False, id="worn beyond what is rated"
        ),
        pytest.param(looks(replace(NVME, state="dead")), "NvmeNotLive", True, id="a dead controller"),
        pytest.param(
            looks(replace(NVME, state="resetting")), "NvmeNotLive", True, id="one that resets for ever"
        ),
        pytest.param(
            looks(replace(KUBELET, read_only=True)), "FilesystemReadOnly", True, id="kubelet's, read-only"
        ),
        pytest.param(looks(replace(UNUSABLE, hangs_ms=9000)), "FilesystemUnusable", True, id="hangs"),
        pytest.param(
            looks(replace(UNUSABLE, error="statvfs: Input/output error", errno=errno.EIO)),
            "FilesystemUnusable",
            True,
            id="shut down",
        ),
        pytest.param(looks(replace(ROOT, free_percent=9)), "FilesystemNearlyFull", False, id="space"),
        pytest.param(looks(replace(ROOT, free_inodes_percent=4)), "FilesystemNearlyFull", False, id="inodes"),
    ],
)
def test_every_reason_comes_and_goes(look: DisksRead, reason: str, is_fault: bool) -> None:
    """It ends when two looks were good, not with the first."""
    one = watched().waits(120, look)
    assert one.reasons == [reason]
    assert one.shown == (f"True {reason}" if is_fault else SOUND)
    good = looks(NVME, KUBELET if look.local[0].path == KUBELET.path else ROOT)
    assert one.waits(60, good).reasons == [reason]
    assert one.waits(120, good).reasons == []
    assert one.shown == SOUND


@pytest.mark.parametrize(
    ("look", "rows"),
    [
        pytest.param(
            looks(
                replace(
                    NVME,
                    critical_warning=None,
                    used_percent=None,
                    smart_error="open: denied",
                    smart_denied=True,
                )
            ),
            ["its SMART log cannot be asked for (open: denied)"],
            id="a SMART log that may not be asked for",
        ),
        pytest.param(
            looks(replace(ROOT, read_only=True)),
            ["it is read-only by design, or was already when it was first looked at in this boot"],
            id="a root that was read-only from the start",
        ),
        pytest.param(
            looks(replace(KUBELET, read_only=True, fstype="squashfs")),
            ["it is read-only by design, or was already when it was first looked at in this boot"],
            id="a file system that can be nothing else",
        ),
    ],
)
def test_what_is_not_evaluated(look: DisksRead, rows: list[str]) -> None:
    """Listed, never Unknown; beside it stands that nobody says how many disks there should be."""
    one = watched().waits(300, look)
    assert one.shown == SOUND
    assert rows == [row for row in one.rows if "expected_nvmes" not in row]
    assert any("expected_nvmes" in row for row in one.rows)


@pytest.mark.parametrize(
    "look",
    [
        pytest.param(
            looks(
                replace(
                    NVME,
                    critical_warning=None,
                    used_percent=None,
                    smart_error="the command has not come back",
                )
            ),
            id="a live disk that does not answer",
        ),
        pytest.param(looks(replace(NVME, state="", error="nvme0/state: I/O error")), id="no state"),
        pytest.param(
            looks(replace(UNUSABLE, error="statvfs: Permission denied", errno=13)), id="not permitted"
        ),
        pytest.param(looks(replace(ROOT, read_only=None)), id="no mountinfo of it"),
        pytest.param(looks(UNUSABLE), id="a look that says nothing"),
        pytest.param(DisksRead(seen_at=at(0), nvmes=(NVME,), bus={}, local=()), id="no file system at all"),
        pytest.param(failed(), id="a reading that fails"),
    ],
)
def test_three_looks_that_say_nothing_are_unknown(look: Observation) -> None:
    """Before, what stood stands."""
    one = watched().waits(30, looks())
    assert one.waits(60, look).shown == SOUND
    assert one.waits(30, look).shown == UNREAD
    assert one.waits(30, looks()).shown == SOUND


def test_a_root_that_turns_read_only_is_a_fault() -> None:
    """It was writable in this boot; and it stays one over a restart, and until it is writable again."""
    one = (
        watched().waits(30, looks()).waits(30, looks(replace(ROOT, read_only=True, options="rw,relatime ro")))
    )
    assert one.shown == "True FilesystemReadOnly"
    assert one.judgement.findings[0].evidence == ("options rw,relatime ro",)
    assert one.is_cleared().waits(60, looks(replace(ROOT, read_only=True))).reasons == [], "accepted as it is"


@pytest.mark.parametrize(
    ("bus", "detail"),
    [
        pytest.param({}, "it left the PCI bus", id="off the bus"),
        pytest.param({"0000:01:00": ""}, "it is on the PCI bus, and the driver gave it up", id="given up"),
    ],
)
def test_a_disk_that_goes_is_missing_until_it_is_back(bus: dict[str, str], detail: str) -> None:
    """Two looks have to say so."""
    one = watched().waits(30, looks())
    assert one.waits(30, gone(bus)).shown == SOUND
    assert one.waits(120, gone(bus)).shown == "True NvmeMissing"
    assert one.message == f"disk nvme0 at 0000:01:00: NvmeMissing ({detail})"
    assert one.waits(300, looks()).shown == SOUND


def test_a_disk_that_was_handed_over_is_not_missing() -> None:
    """A virtual machine or a user-space driver has it."""
    one = watched().waits(30, looks()).waits(300, gone({"0000:01:00": "vfio-pci"}))
    assert (one.shown, one.reasons) == (SOUND, [])
    assert one.waits(300, gone({})).reasons == [], "it is theirs now"


@pytest.mark.parametrize(
    "model",
    [
        pytest.param("Amazon Elastic Block Store", id="AWS"),
        pytest.param("nvme_card-pd", id="Google"),
        pytest.param("MSFT NVMe Accelerator v1.0", id="Azure"),
    ],
)
def test_a_network_volume_that_was_detached_is_not_missing(model: str) -> None:
    """It goes with the pod that used it: a node is never rebooted for that, nor does one stand for a disk that is gone."""
    volume = replace(NVME, model=model, name="nvme1", pci="0000:09:00", serial="vol1")
    both = {NVME.pci: "nvme", volume.pci: "nvme"}
    one = watched(expected_nvmes=1).waits(30, looks(NVME, volume, bus=both))
    one.waits(300, looks(NVME, replace(volume, state="deleting"), bus=both))
    assert one.waits(300, looks(NVME, bus={NVME.pci: "nvme"})).reasons == []
    assert one.shown == SOUND
    short = watched(expected_nvmes=2).waits(120, looks(NVME, volume, bus=both))
    assert short.reasons == ["NvmeMissing"]


@pytest.mark.parametrize("fstype", ["squashfs", "erofs", "ext4"])
def test_an_image_that_can_only_be_read_is_not_short_of_space(fstype: str) -> None:
    """It is full by its nature, and nobody writes there."""
    root = replace(ROOT, read_only=True, fstype=fstype, free_percent=0, free_inodes_percent=0)
    one = watched().waits(300, looks(root))
    assert (one.reasons, one.shown) == ([], SOUND)


def test_a_disk_on_a_machine_whose_bus_is_not_shown() -> None:
    """Nobody can say whether it is gone; what stood stands."""
    one = watched().waits(30, looks()).waits(300, gone(None))
    assert (one.shown, one.reasons) == (SOUND, [])


def test_fewer_disks_than_expected() -> None:
    """Where the configuration says how many there should be; those of other drivers count."""
    one = watched(expected_nvmes=3).waits(150, looks(bus={"0000:01:00": "nvme", "0000:02:00": "vfio-pci"}))
    assert one.message == "node: NvmeMissing (2 of 3 NVMe disks are there)"
    assert watched(expected_nvmes=1).waits(150, looks()).shown == SOUND


def test_a_person_accepts_what_is_there() -> None:
    """A disk that was taken out on purpose is remembered no more."""
    one = watched().waits(30, looks()).waits(150, gone({}))
    assert one.is_cleared().waits(300, gone({})).reasons == []


def test_one_disk_may_be_cleared_alone() -> None:
    """By its PCI address, as a repair of one part does."""
    sick = looks(
        replace(NVME, critical_warning=4), replace(NVME, name="nvme1", pci="0000:02:00", critical_warning=4)
    )
    one = watched().waits(30, sick)
    one.set(clearings=(Clearing(pci="0000:02:00", before=at(one.seconds)),)).waits(30)
    assert [finding.part.name for finding in one.judgement.findings] == ["nvme0"]


LINE = "I/O error, dev nvme0n1, sector 95243456 op 0x0:(READ) flags 0x80700"


@pytest.mark.parametrize(
    ("text", "reason", "device"),
    [
        pytest.param(LINE, "DiskErrors", "nvme0n1", id="a disk"),
        pytest.param(
            "nvme nvme0: I/O 2 QID 1 timeout, reset controller", "NvmeTimeouts", "nvme0", id="a controller"
        ),
        pytest.param(
            "EXT4-fs (dm-1): Remounting filesystem read-only", "FilesystemErrors", "dm-1", id="a file system"
        ),
    ],
)
def test_a_line_of_the_kernel_is_a_warning_for_an_hour(text: str, reason: str, device: str) -> None:
    """With the line itself as its proof."""
    one = watched().waits(30, looks()).hears(record(1, text)).waits(60, looks())
    assert (one.shown, one.reasons) == (SOUND, [reason])
    (finding,) = one.judgement.findings
    assert (finding.part.name, finding.evidence) == (device, (text,))
    assert one.waits(3400, looks()).reasons == [reason]
    assert one.waits(300, looks()).reasons == []


def foreign(one: KernelRecord) -> KernelRecord:
    return replace(one, facility=3)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(foreign, id="written by a process"),
        pytest.param(lambda one: replace(one, drill=True), id="admitted as a drill"),
        pytest.param(lambda one: replace(one, boot_id=NEXT_BOOT), id="of another boot"),
        pytest.param(lambda one: replace(one, happened_at=at(-4000)), id="older than an hour"),
    ],
)
def test_a_line_that_proves_nothing(change: Callable[[KernelRecord], KernelRecord]) -> None:
    """Any process may write it, or it is long past."""
    one = watched().waits(30, looks()).hears(change(record(1, LINE))).waits(60, looks())
    assert one.reasons == []


def test_lines_end_with_a_clearing_and_with_the_boot() -> None:
    """A newer line stands."""
    one = (
        watched().waits(30, looks()).hears(record(1, LINE)).waits(30, looks()).is_cleared().waits(60, looks())
    )
    assert one.reasons == []
    assert one.hears(record(500, LINE, seen_at=at(one.seconds))).waits(30, looks()).reasons == ["DiskErrors"]
    assert one.set(boot_id=NEXT_BOOT).waits(30, looks()).reasons == []


def test_a_storm_of_lines_keeps_a_bounded_memory() -> None:
    """However many devices are named."""
    one = watched().waits(30, looks())
    one.hears(*(record(n, f"I/O error, dev sd{n}, sector 1 op 0x0") for n in range(200))).waits(60, looks())
    assert len(one.judgement.findings) == 32
    assert len(msgspec.json.encode(one.judgement.memory)) < 64 * 1024
    one.waits(3700, looks())
    assert one.reasons == []


def test_a_fault_outlives_silence() -> None:
    """A disk that is not read any more is not well again."""
    for sick in (replace(NVME, critical_warning=4), replace(NVME, state="dead")):
        one = watched().waits(120, looks(sick))
        before = one.condition
        mute = replace(sick, critical_warning=None, used_percent=None, smart_error="x", smart_denied=True)
        assert one.waits(600, looks(mute), failed(3)).condition == before


def test_a_switched_off_source_is_no_class() -> None:
    """Listed with its cause."""
    one = Watched(CHECK, bus=0).waits(60, looks())
    assert (one.shown, one.judgement.exists) == ("", False)
    assert one.rows == ["the source 'disks' is switched off in the agent's configuration"]


def test_findings_are_read_back() -> None:
    """A restarted agent whose state is lost goes on with what NodeHealth held, and judges it anew."""
    findings = watched().waits(120, looks(replace(NVME, critical_warning=4))).judgement.findings
    one = watched()
    one.judgement = replace(one.judgement, memory=restore(findings, None))
    assert one.waits(30, looks(replace(NVME, critical_warning=4))).shown == "True NvmeCritical"
    assert one.judgement.findings[0].first_seen == findings[0].first_seen
    assert one.waits(300, looks()).shown == SOUND


def test_a_single_look_waits_for_nothing() -> None:
    """`--once` and `validate` come back no second time."""
    assert watched(**CHECK.single_look).hears(looks(replace(NVME, state="dead"))).shown == "True NvmeNotLive"


def test_every_setting_says_why() -> None:
    """Its default has a reason."""
    assert CHECK.why_settings.keys() == CHECK.default_settings.keys()
