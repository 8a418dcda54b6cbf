"""What NVML says of one GPU's health in one round, as raw values. None or empty = not told, for the reason in `errors` or
because this hardware or driver has no such thing (`absent`). Units and traps: the docstring of each struct.

`errors` holds, by the name of a group below, the first error that one of its calls gave; `absent` the groups of which this
hardware or driver shows nothing (NotSupported, FunctionNotFound, a struct, field or function that it does not know). A group
in neither and not told was not asked (a quiet GPU, a release; NVLinks while MIG is on, because they then read as down).

A group may be told in part and stand in `errors` too: what is None in it was then refused, or is not there. All ones is
NVML's word for "not available" (nvml.h, NVML_VALUE_NOT_AVAILABLE), so it is no value here.
"""

from typing import Annotated

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0)]
"""What NVML gives as an unsigned number."""
Counters = Annotated[dict[Annotated[str, msgspec.Meta(max_length=64)], Count], msgspec.Meta(max_length=64)]


class NvmlRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that is no value: C function, return code, that code's name (as `checks.observation.NvmlError`)."""

    call: str
    code: int
    name: str


class RemappedRows(msgspec.Struct, frozen=True, kw_only=True):
    """nvmlDeviceGetRemappedRows, and the histogram of banks by what spare rows they have left (Ampere and newer)."""

    correctable: Count
    uncorrectable: Count
    pending: bool
    failure: bool
    banks_max: Count | None = None
    banks_high: Count | None = None
    banks_partial: Count | None = None
    banks_low: Count | None = None
    banks_none: Count | None = None


class RetiredPages(msgspec.Struct, frozen=True, kw_only=True):
    """Pages retired before Ampere: by several single-bit errors, by one double-bit error; `pending` needs a reboot."""

    single_bit: Count
    double_bit: Count
    pending: bool


class Ecc(msgspec.Struct, frozen=True, kw_only=True):
    """Counts since the driver was loaded (volatile) and for ever (aggregate). None where not told one by one.

    `sram_threshold`: bThresholdExceeded of nvmlDeviceGetSramEccErrorStatus. `unrepairable`, `channel_repair` and
    `tpc_repair`: nvmlDeviceGetUnrepairableMemoryFlag_v1 and nvmlDeviceGetRepairStatus.
    """

    enabled: bool | None = None
    volatile_corrected: Count | None = None
    volatile_uncorrected: Count | None = None
    aggregate_corrected: Count | None = None
    aggregate_uncorrected: Count | None = None
    sram_volatile_uncorrected: Count | None = None
    sram_aggregate_uncorrected: Count | None = None
    sram_threshold: bool | None = None
    unrepairable: bool | None = None
    channel_repair: bool | None = None
    tpc_repair: bool | None = None


class NvLink(msgspec.Struct, frozen=True, kw_only=True):
    """One link. `state`: field 165 (0 inactive, 1 active, 2 sleep, 3 active with traffic disabled), else 0 or 1 of
    nvmlDeviceGetNvLinkState. `mbps`: MB/s raw, None where not told. `counters` by name; one that is not told is not there.

    Up to NVLink 4: `replay` (field 161, else 46-51 and 108-113), `recovery` (162, else 53-58, 114-119), `crc_flit` (163,
    else 32-37, 96-101), `crc_data` (39-44, 102-107), `ecc_data` (148-159); where fields tell no counter at all, those
    of nvmlDeviceGetNvLinkErrorCounter. NVLink 5: `malformed` (206), `buffer_overrun` (207), `receive` (208), `remote`
    (209), `general` (210), `link_integrity` (211), `transmit_discards` (212), `recovery_ok` (213), `recovery_failed` (214),
    `recovery_total` (215), `effective_errors` (219), `symbol_errors` (221). These all count since the driver was loaded.
    No counts but packed bit error rates of NVLink 5, raw: `effective_ber` (220), `symbol_ber` (222): exponent in bits 0-7,
    mantissa in bits 8-11, rate = mantissa x 10^-exponent; mantissa 15 with exponent 255 is the floor, i.e. zero.
    """

    index: int
    state: Count | None = None
    mbps: Count | None = None
    counters: Counters = {}


class NvLinks(msgspec.Struct, frozen=True, kw_only=True):
    """`count` is field 91, 0 of a GPU that has no NVLinks. Where the driver does not tell it, the group is absent, which
    says nothing of how many there are. `links` holds one entry for each of `count`.

    `version` is NVML's enum (4.0 = 6, 5.0 = 7).
    """

    count: Count
    version: Count | None = None
    links: tuple[NvLink, ...] = ()


class Fabric(msgspec.Struct, frozen=True, kw_only=True):
    """nvmlDeviceGetGpuFabricInfoV. `state`: 0 not supported, 1 not started, 2 in progress, 3 completed; `status` is an
    nvmlReturn that means something in state 3 alone; `mask` the health mask of two-bit fields; `summary` of v3 or None.
    """

    state: Count
    status: Count = 0
    clique: Count = 0
    mask: Count = 0
    summary: Count | None = None


class Pcie(msgspec.Struct, frozen=True, kw_only=True):
    """`generation` counts only between two readings of the performance state that are both 0 (`pstate_before/after`).

    `max_*` is the lesser of device and system, `device_max_generation` the device's own. `bus_type`: 2 = PCIe.
    `c2c_links`: field 170, None where not told. `counters` by name, where they exist: `replay` (field 94, else
    nvmlDeviceGetPcieReplayCounter), `replay_rollover` (95), `l0_to_recovery` (169), `correctable` (173), `nak_received`
    (174), `receiver` (175), `bad_tlp` (176), `nak_sent` (177), `bad_dllp` (178), `non_fatal` (179), `fatal` (180),
    `unsupported_request` (181), `lcrc` (182), `lane` (183).
    """

    generation: Count | None = None
    width: Count | None = None
    max_generation: Count | None = None
    max_width: Count | None = None
    device_max_generation: Count | None = None
    pstate_before: Count | None = None
    pstate_after: Count | None = None
    bus_type: Count | None = None
    c2c_links: Count | None = None
    counters: Counters = {}


class Clocks(msgspec.Struct, frozen=True, kw_only=True):
    """`reasons`: mask of nvmlDeviceGetCurrentClocksEventReasons. Temperatures in degrees Celsius.

    `throttled_ns` by name: nanoseconds since the driver was loaded, where told: `sw_thermal` (field 269), `hw_thermal`
    (270), `power_brake` (271), and of the perf-policy family `power_cap` (74), `thermal` (75), `sync_boost` (76),
    `board_limit` (77), `low_utilization` (78), `reliability` (79), `app_clocks` (80), `base_clocks` (81). No counter tells
    the hardware slowdown as a whole (reason bit 8). `margin_c` is how far below the slowdown the GPU is (Ada and newer),
    `slowdown_c` the threshold 1; `sm_app_mhz` the application clock that somebody set, else the default.
    """

    reasons: Count | None = None
    throttled_ns: Counters = {}
    pstate: Count | None = None
    temperature_c: int | None = None
    margin_c: int | None = None
    slowdown_c: Count | None = None
    memory_temperature_c: Count | None = None
    sm_mhz: Count | None = None
    sm_max_mhz: Count | None = None
    sm_app_mhz: Count | None = None
    utilisation_percent: Count | None = None
    persistence: bool | None = None


class GpuHealth(msgspec.Struct, frozen=True, kw_only=True):
    """All groups of one GPU. The names of the fields are the names of the groups in `errors` and `absent`."""

    remapped: RemappedRows | None = None
    retired: RetiredPages | None = None
    ecc: Ecc | None = None
    nvlinks: NvLinks | None = None
    fabric: Fabric | None = None
    pcie: Pcie | None = None
    clocks: Clocks | None = None
    architecture: Count | None = None
    errors: dict[str, NvmlRefusal] = {}
    absent: tuple[str, ...] = ()
