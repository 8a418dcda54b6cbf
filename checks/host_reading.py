"""What was found of the host itself, as raw values.

None = could not be read or is not there; `errors` by the field's name.
"""

from datetime import datetime

import msgspec

HOST = "host"
"""The `source` of these readings, and of their failure."""


class HostRead(msgspec.Struct, frozen=True, kw_only=True, tag="host"):
    """`d_state`: processes in uninterruptible sleep as (pid, name), at most 64, that were so in the look before too.

    `acs`: bridges with ACS redirection on. `services`: systemd unit or process -> whether it runs. `edac_*`: counts since
    boot. `clock_synchronised`: adjtimex without STA_UNSYNC.
    """

    seen_at: datetime
    virtual_machine: bool | None = None
    acs: tuple[str, ...] | None = None
    modules: tuple[str, ...] | None = None
    d_state: tuple[tuple[int, str], ...] | None = None
    edac_corrected: int | None = None
    edac_uncorrected: int | None = None
    machine_checks: int | None = None
    clock_synchronised: bool | None = None
    services: dict[str, bool] | None = None
    nvswitches: int | None = None
    errors: dict[str, str] = {}
