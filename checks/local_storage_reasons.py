"""Every reason of the condition LocalStorageFault, with what it means and what on-call does about it."""

from checks.finding import Action, Effect, Urgency
from checks.reason_rows import fault, warning

_REPLACE = "Save what is on it, then have it replaced; the message and NodeHealth name model, serial and PCI address."

NVME_READ_ONLY = fault(
    "NvmeReadOnly",
    Effect.NODE_OUT,
    Urgency.PERSON,
    Action.CONTACT_SUPPORT,
    "An NVMe disk has put itself into read-only mode",
    "Bit 3 of the critical warning: its spare is used up or a part of it failed, and it takes no more writes. What "
    f"lies on it can mostly still be read. {_REPLACE}",
)
NVME_CRITICAL = fault(
    "NvmeCritical",
    Effect.PREFER_NOT,
    Urgency.PERSON,
    Action.CONTACT_SUPPORT,
    "An NVMe disk warns that it is failing",
    "The message names the bits of its critical warning: spare below the maker's threshold (bit 0) or reliability "
    f"degraded by errors (bit 2). `nvme smart-log /dev/nvmeN`, `nvme error-log /dev/nvmeN`. {_REPLACE}",
)
NVME_NOT_LIVE = fault(
    "NvmeNotLive",
    Effect.PREFER_NOT,
    Urgency.WHEN_IDLE,
    Action.REBOOT,
    "An NVMe controller is dead, or has been resetting for minutes",
    "`cat /sys/class/nvme/nvmeN/state`, `dmesg | grep nvmeN`. What lay on it is out of reach: see the file systems of"
    " this condition. A reboot often brings it back; one that goes again wants another slot, then replacement.",
)
NVME_MISSING = fault(
    "NvmeMissing",
    Effect.PREFER_NOT,
    Urgency.WHEN_IDLE,
    Action.REBOOT,
    "An NVMe disk that was there in this boot is gone, or there are fewer than `expected_nvmes`",
    "Either it left the PCI bus, or the kernel gave it up and no driver holds it. `lspci -d ::0108 -k`, `dmesg | grep"
    " nvme`. A disk handed to another driver (vfio-pci) is not missing. One taken out on purpose: `kubectl-nodemend "
    "repaired NODE`.",
)
FILESYSTEM_READ_ONLY = fault(
    "FilesystemReadOnly",
    Effect.NODE_OUT,
    Urgency.WHEN_IDLE,
    Action.REBOOT,
    "A local file system that the node lives on has become read-only",
    "The kernel turns a file system read-only after an error on its disk (`dmesg | grep -i 'read-only\\|shut down'`):"
    " no pod starts or logs any more. A reboot checks the file system; if it comes again, replace the disk. A root "
    "that is read-only by design is not judged.",
)
FILESYSTEM_UNUSABLE = fault(
    "FilesystemUnusable",
    Effect.NODE_OUT,
    Urgency.WHEN_IDLE,
    Action.REBOOT,
    "A local file system answers with an error, or not at all",
    "Its disk is gone or hangs, or it was shut down after an error (XFS). `dmesg`, `cat /sys/class/nvme/*/state`, "
    "processes in state D. A reboot frees what hangs.",
)
NVME_WARNING = warning(
    "NvmeWarning",
    "An NVMe disk warns of something that takes no work away",
    "The message names it: temperature (bit 1: look at the airflow; the disk slows itself down), its buffer's backup "
    "(bit 4) or its persistent memory region (bit 5).",
)
NVME_WEAR = warning(
    "NvmeWear",
    "An NVMe disk has used up most of the writes that its maker vouches for",
    "By the specification 100 % is no failure, and a disk may work for years beyond it; NvmeCritical says when it "
    "fails. Plan its replacement; scratch that is written at full speed wears a disk out in months.",
)
FILESYSTEM_NEARLY_FULL = warning(
    "FilesystemNearlyFull",
    "A local file system is short of space or of inodes",
    "Kubelet evicts pods for it by thresholds of its own (DiskPressure). `df -h`, `df -i`, `du -x --inodes`: images, "
    "logs, or the scratch of a job.",
)
DISK_ERRORS = warning(
    "DiskErrors",
    "The kernel wrote that a disk could not be read or written",
    "The evidence holds the newest line. One line may be a job's own mistake or a volume that was detached too early;"
    " lines that come again, on a disk of this node, are a disk that fails: `nvme smart-log`, `smartctl -x`.",
)
NVME_TIMEOUTS = warning(
    "NvmeTimeouts",
    "The kernel wrote that an NVMe controller did not answer in time or was reset",
    "A reset that works costs seconds; one that does not is NvmeNotLive. Look at firmware, power saving "
    "(nvme_core.default_ps_max_latency_us=0) and the PCIe link.",
)
FILESYSTEM_ERRORS = warning(
    "FilesystemErrors",
    "The kernel wrote that a file system met an error, was made read-only or was shut down",
    "The evidence holds the newest line, which names the device. Where the node itself lives on it, "
    "FilesystemReadOnly or FilesystemUnusable stands beside this; else it is a volume of a pod.",
)
LOCAL_STORAGE_UNREADABLE = warning(
    "LocalStorageUnreadable",
    "Nobody can say how the local disks and file systems are",
    "The message says why: sysfs or mountinfo of process 1 cannot be read (a pod needs the host's /sys and /proc and "
    "privilege), or a disk does not answer for its SMART log. The agent keeps trying.",
)
FROM_KERNEL = (DISK_ERRORS, NVME_TIMEOUTS, FILESYSTEM_ERRORS)
REASONS = (
    NVME_READ_ONLY,
    NVME_CRITICAL,
    NVME_NOT_LIVE,
    NVME_MISSING,
    FILESYSTEM_READ_ONLY,
    FILESYSTEM_UNUSABLE,
    NVME_WARNING,
    NVME_WEAR,
    FILESYSTEM_NEARLY_FULL,
    *FROM_KERNEL,
)
