"""What was found of the host itself, as raw values."""

from datetime import datetime

import msgspec

HOST = "host"
"""The `source` of these readings, and of their failure."""

KUBELET = "kubelet"
FABRIC_MANAGER = "nv-fabricmanager"
PERSISTENCED = "nvidia-persistenced"
RUNTIMES = ("containerd", "crio", "k3s", "cri-dockerd")


class HostRead(msgspec.Struct, frozen=True, kw_only=True, tag="host"):
    """None = could not be read, for the reason in `errors` by the field's name, or is not there.

    `acs`: PCI bridges between a GPU or HCA and its root port that redirect what goes from one device to another up to the
    processor. `modules`: the kernel modules of NVIDIA's that are loaded. `d_state`: processes in uninterruptible sleep as
    (pid, name), at most 64, that were so in the look before too; `stuck` is how many there are. `edac_*`: counts since
    boot. `clock_synchronised`: adjtimex without STA_UNSYNC. `services`: name -> whether it runs or answers; a container
    runtime or kubelet that left no socket is not named.
    """

    seen_at: datetime
    acs: tuple[str, ...] | None = None
    modules: tuple[str, ...] | None = None
    d_state: tuple[tuple[int, str], ...] | None = None
    stuck: int | None = None
    edac_corrected: int | None = None
    edac_uncorrected: int | None = None
    clock_synchronised: bool | None = None
    services: dict[str, bool] | None = None
    errors: dict[str, str] = {}
