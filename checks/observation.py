"""Raw facts, as read from one source at one instant, without opinion."""

from datetime import datetime

import msgspec

from checks.gpu_health import GpuHealth
from checks.host_reading import HostRead
from checks.infiniband_reading import InfinibandRead
from checks.pci_reading import PciRead
from checks.storage_reading import DisksRead, MountsRead

KERNEL_LOG = "kernel-log"
"""The `source` of everything that the kernel-log reader hands over; checks of the kernel log heed no other."""

NVML = "nvml"
"""The `source` of what NVML said, and of its silence."""


class KernelRecord(msgspec.Struct, frozen=True, kw_only=True, tag="kernel"):
    """One record of the kernel log (Documentation/ABI/testing/dev-kmsg).

    `boot_id` + `sequence` identify it for ever. `facility` is 0 for the kernel itself. `monotonic_us` is the record's
    own clock (microseconds since boot), `seen_at` when we read it. `drill` marks one admitted although it did not come
    from the kernel. `happened_at` is set only for a record that was already waiting when the log was opened: its time by
    the record's own clock, so that a fault from before a repair is not taken for a new one.
    """

    boot_id: str
    sequence: int
    facility: int
    level: int
    monotonic_us: int
    seen_at: datetime
    text: str
    drill: bool = False
    happened_at: datetime | None = None


class RecordsLost(msgspec.Struct, frozen=True, kw_only=True, tag="lost"):
    """Records that we know existed and never read: ring overrun (a gap in sequence) or a malformed record."""

    source: str
    count: int
    seen_at: datetime
    why: str


class SourceFailed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """A source that should be readable and was not; `tries` counts failures in a row."""

    source: str
    error: str
    tries: int
    seen_at: datetime


class SourceRead(msgspec.Struct, frozen=True, kw_only=True, tag="read"):
    """A source was read to its present end without an error, whether or not it held anything."""

    source: str
    seen_at: datetime


class NvmlError(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of NVML that is no value: the C function, its return code (nvmlReturn_t) and that code's name.

    `name` is nvidia-ml-py's class suffix, such as GpuIsLost; a code that the binding does not know is `Code<number>`.
    """

    call: str
    code: int
    name: str


class GpuReading(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU in one round of NVML. `pci` is `dddd:bb:dd` in lower case, as in `checks.finding.Part`.

    `mig_devices` are the UUIDs of the MIG devices that the GPU is parted into. `memory_mib` is what programs may use of its
    memory: the whole less the driver's reserve.

    A field is empty (None for `mig`) where its call gave an error, which then stands in `errors`; what the hardware does
    not have at all (NotSupported) is no error. `quiet` says why no call was made to this GPU; then the identity is the
    last that was read. `index` is NVML's own and may be another one after a reboot. `recovery` is what the driver itself
    says is needed (field 230): 0 nothing, 1 GPU reset, 2 node reboot, 3 drain peers, 4 drain and reset, 5 recover the IMEX
    domain, 6 bus reset, 7 system reboot; None where it does not say. `health` is None where the GPU was not asked for it.
    """

    index: int
    pci: str = ""
    uuid: str = ""
    serial: str = ""
    model: str = ""
    minor: int | None = None
    mig: bool | None = None
    mig_devices: tuple[str, ...] = ()
    memory_mib: int | None = None
    recovery: int | None = None
    errors: tuple[NvmlError, ...] = ()
    quiet: str = ""
    health: GpuHealth | None = None


class NvmlRead(msgspec.Struct, frozen=True, kw_only=True, tag="nvml"):
    """One whole round of NVML: every GPU that the driver counts was asked. `child` numbers the process that asked."""

    seen_at: datetime
    child: int
    driver: str
    library: str
    count: int
    gpus: tuple[GpuReading, ...] = ()


class NvmlFailed(msgspec.Struct, frozen=True, kw_only=True, tag="nvml-failed"):
    """NVML as a whole could not be used. `since` is the first failure in a row.

    `fresh` is True where a child process says so that was started after `since`: only then is it not merely our own
    mapped library that is out of date (LibRmVersionMismatch after a driver upgrade).
    """

    seen_at: datetime
    child: int
    error: NvmlError
    since: datetime
    fresh: bool


class NvmlHung(msgspec.Struct, frozen=True, kw_only=True, tag="nvml-hung"):
    """A call has not come back within its deadline. `pci` is empty for a call to no GPU in particular.

    `child_gone` is False while the process that hangs could not be ended, not even by SIGKILL (uninterruptible sleep).
    """

    seen_at: datetime
    child: int
    call: str
    pci: str
    uuid: str
    since: datetime
    child_gone: bool


class NvmlReleased(msgspec.Struct, frozen=True, kw_only=True, tag="nvml-released"):
    """We hold no handle and ask nothing, because somebody needs the driver: `why` names who."""

    seen_at: datetime
    why: str


class NvmlEvent(msgspec.Struct, frozen=True, kw_only=True, tag="nvml-event"):
    """One event of NVML's event set; `kind` is its one bit, `data` the XID number for an XID (bit 8, 999 = unknown).

    `pci` is empty where the GPU could not be told from the event.
    """

    seen_at: datetime
    boot_id: str
    kind: int
    data: int
    pci: str
    uuid: str


Observation = (
    KernelRecord
    | RecordsLost
    | SourceFailed
    | SourceRead
    | NvmlRead
    | NvmlFailed
    | NvmlHung
    | NvmlReleased
    | NvmlEvent
    | PciRead
    | InfinibandRead
    | MountsRead
    | DisksRead
    | HostRead
)
