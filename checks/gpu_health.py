"""What NVML says of one GPU's health in one round, as raw values. None or empty = not told, for the reason in `errors` or
because this hardware or driver has no such thing (`absent`). Units and traps: the docstring of each struct.

`errors` holds, by the name of a group below, the error that its call gave; `absent` the groups that NVML answered with
NotSupported or FunctionNotFound. A group in neither and not told was not asked (a quiet GPU, a release).
"""

import msgspec


class NvmlRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that is no value: C function, return code, that code's name (as `checks.observation.NvmlError`)."""

    call: str
    code: int
    name: str


class RemappedRows(msgspec.Struct, frozen=True, kw_only=True):
    """nvmlDeviceGetRemappedRows, and the histogram of banks by what spare rows they have left (Ampere and newer)."""

    correctable: int
    uncorrectable: int
    pending: bool
    failure: bool
    banks_max: int | None = None
    banks_high: int | None = None
    banks_partial: int | None = None
    banks_low: int | None = None
    banks_none: int | None = None


class RetiredPages(msgspec.Struct, frozen=True, kw_only=True):
    """Pages retired before Ampere: by several single-bit errors, by one double-bit error; `pending` needs a reboot."""

    single_bit: int
    double_bit: int
    pending: bool


class Ecc(msgspec.Struct, frozen=True, kw_only=True):
    """Counts since the driver was loaded (volatile) and for ever (aggregate). None where not told one by one.

    `sram_threshold`: bThresholdExceeded of nvmlDeviceGetSramEccErrorStatus. `unrepairable`, `channel_repair` and
    `tpc_repair`: nvmlDeviceGetUnrepairableMemoryFlag_v1 and nvmlDeviceGetRepairStatus.
    """

    enabled: bool | None = None
    volatile_corrected: int | None = None
    volatile_uncorrected: int | None = None
    aggregate_corrected: int | None = None
    aggregate_uncorrected: int | None = None
    sram_volatile_uncorrected: int | None = None
    sram_aggregate_uncorrected: int | None = None
    sram_threshold: bool | None = None
    unrepairable: bool | None = None
    channel_repair: bool | None = None
    tpc_repair: bool | None = None


class NvLink(msgspec.Struct, frozen=True, kw_only=True):
    """One link. `state`: field 165 (0 inactive, 1 active, 2 sleep, 3 active with traffic disabled), else 0 or 1 of
    nvmlDeviceGetNvLinkState. `mbps`: MB/s raw, None where not told. `counters` by name, see `agent.host.nvml_links`.
    """

    index: int
    state: int | None = None
    mbps: int | None = None
    counters: dict[str, int] = {}


class NvLinks(msgspec.Struct, frozen=True, kw_only=True):
    """`count` is field 91. `version` is NVML's enum (4.0 = 6, 5.0 = 7). `links` holds one entry for each of `count`."""

    count: int
    version: int | None = None
    links: tuple[NvLink, ...] = ()


class Fabric(msgspec.Struct, frozen=True, kw_only=True):
    """nvmlDeviceGetGpuFabricInfoV. `state`: 0 not supported, 1 not started, 2 in progress, 3 completed; `status` is an
    nvmlReturn that means something in state 3 alone; `mask` the health mask of two-bit fields; `summary` of v3 or None.
    """

    state: int
    status: int = 0
    clique: int = 0
    mask: int = 0
    summary: int | None = None


class Pcie(msgspec.Struct, frozen=True, kw_only=True):
    """`generation` counts only between two readings of the performance state that are both 0 (`pstate_before/after`).

    `max_*` is the lesser of device and system, `device_max_generation` the device's own. `bus_type`: 2 = PCIe.
    `c2c_links`: field 170, None where not told. `counters` by name: replay, and the fields 173-183 where they exist.
    """

    generation: int | None = None
    width: int | None = None
    max_generation: int | None = None
    max_width: int | None = None
    device_max_generation: int | None = None
    pstate_before: int | None = None
    pstate_after: int | None = None
    bus_type: int | None = None
    c2c_links: int | None = None
    counters: dict[str, int] = {}


class Clocks(msgspec.Struct, frozen=True, kw_only=True):
    """`reasons`: mask of nvmlDeviceGetCurrentClocksEventReasons. `throttled_ns` by name (sw_thermal, hw_thermal,
    power_brake, hw_slowdown ...): nanoseconds since the driver was loaded, where told. Temperatures in degrees Celsius.
    """

    reasons: int | None = None
    throttled_ns: dict[str, int] = {}
    pstate: int | None = None
    temperature_c: int | None = None
    margin_c: int | None = None
    slowdown_c: int | None = None
    memory_temperature_c: int | None = None
    sm_mhz: int | None = None
    sm_max_mhz: int | None = None
    sm_app_mhz: int | None = None
    utilisation_percent: int | None = None
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
    architecture: int | None = None
    errors: dict[str, NvmlRefusal] = {}
    absent: tuple[str, ...] = ()
