"""Every reason of the condition GpuMissing, with what it means and what on-call does about it."""

from checks.finding import Action, Effect, Urgency
from checks.reason_rows import fault, warning

_LADDER = "nodemend takes the node out, drains it and reboots it; if that does not bring it back, a person is paged."

COUNT_BELOW = fault(
    "GpuCountBelowExpected",
    Effect.NODE_OUT,
    Urgency.NOW,
    Action.REBOOT,
    "Fewer GPUs are there than should be",
    f"The message names the number, its source and the addresses known from last time. {_LADDER} Compare "
    "`lspci -d 10de:` with the machine's papers; reseat or replace the card. Where fewer are right, say so in "
    "spec.expected of the NodeHealth.",
)
GPU_LOST = fault(
    "GpuLost",
    Effect.NODE_OUT,
    Urgency.NOW,
    Action.REBOOT,
    "A GPU cannot be reached: NVML says that it is lost, it left the PCI bus, or only the bus still shows it",
    f"Often XID 79 stands beside it. {_LADDER} A GPU that is lost again after a reboot wants its power, riser and "
    "seat looked at, then replacement. Where the driver is meant to leave a GPU alone, say in spec.expected of the "
    "NodeHealth how many it should have.",
)
BUS_UNREAD = warning(
    "PciBusUnread",
    "The PCI bus cannot be read, so nobody knows which GPUs are there",
    "The message names the file. A pod needs the host's /sys (agent.toml, roots.sys). The agent keeps trying.",
)
NOT_ASKED = warning(
    "GpusNotAsked",
    "As many GPUs as should be are on the PCI bus, but not every one of them could be asked",
    "The message says why: the driver cannot be used or was released (see GpuDriverFault), or a GPU is left alone "
    "after an XID that makes calls to it dangerous (see GpuXidError). Passes with its cause.",
)
