"""Every reason of the condition InfinibandPortDegraded, with what it means and what on-call does about it."""

from checks.finding import Action, Effect, Reason, Urgency
from checks.reason_rows import fault, warning

_CABLE = (
    "Look at both ends: `ibstat`, `iblinkinfo`, `mlxlink -d DEVICE -c -e` (cable, optical power, errors), and the switch "
    "port. "
    "Clean or swap the cable or optic first, then the switch port, then the card."
)
_MULTI_NODE = "Jobs on one node go on; nothing that spans nodes is placed here."


def _port(name: str, summary: str, runbook: str) -> Reason:
    """Give a fault of one port of the compute fabric, which a person has to look at."""
    return fault(name, Effect.NO_MULTI_NODE, Urgency.PERSON, Action.CONTACT_SUPPORT, summary, runbook)


PORT_DOWN = _port(
    "PortDown",
    "A port of the compute fabric has no link, or its link is not active",
    f"{_MULTI_NODE} The message says whether it was disabled or has no link; the evidence holds both states. {_CABLE} A "
    "port "
    "that was disabled by hand comes back with `ibportstate` or `ip link set up`.",
)
NO_SUBNET_MANAGER = _port(
    "PortNoSubnetManager",
    "A port of the compute fabric has a link and was not configured by a subnet manager (INIT)",
    f"{_MULTI_NODE} Where many nodes say so at once, the subnet manager is down: look there first (`sminfo`). On one node "
    "alone "
    "look at its partition and at the log of the subnet manager for its GUID.",
)
COUNT_BELOW = _port(
    "PortCountBelowExpected",
    "Fewer ports of the compute fabric are active than should be, and it cannot be told which of the others",
    f"{_MULTI_NODE} More ports are down than are missing, and none of them was active in this boot, so one of them is the "
    "one. "
    "The message names the numbers and who expects them. Where fewer are right, say so in spec.expected.ports of the "
    f"NodeHealth, or name the roles in [infiniband] of agent.toml. {_CABLE}",
)
RATE_BELOW = _port(
    "RateBelowExpected",
    "A port of the compute fabric is active at a lower rate than expected",
    f"A collective runs at the pace of its slowest port. {_MULTI_NODE} The message says which rate is expected, and by "
    "whom. Where "
    "every port of the node is slow: a wrong cable set, a switch profile or the card's firmware settings (`mlxconfig -d "
    "DEVICE "
    f"query`). {_CABLE}",
)
WIDTH_REDUCED = _port(
    "WidthReduced",
    "A port of the compute fabric is active with fewer lanes than it should have",
    f"A lane that did not come up is a dirty, damaged or badly seated cable or optic nearly always. {_MULTI_NODE} {_CABLE}",
)
LAYER_CHANGED = _port(
    "LinkLayerChanged",
    "The link layer of a port is another one than earlier in this boot",
    f"{_MULTI_NODE} Somebody set the port's type anew (`mlxconfig -d DEVICE query | grep LINK_TYPE`), or the card came "
    "back from a reset with other settings. Set it back and reset the card. Where it was meant: `kubectl-nodemend repaired "
    "NODE`.",
)
FLAPPING = _port(
    "PortFlapping",
    "A port of the compute fabric went down and came back several times within hours",
    f"Every time ends the jobs that use it. {_MULTI_NODE} It ends when the window has passed without another. {_CABLE}",
)
SYMBOL_ERRORS = _port(
    "SymbolErrors",
    "A port of the compute fabric takes up more symbol errors than a sound link may",
    f"The link still works and is about to fail or to slow down. {_MULTI_NODE} {_CABLE}",
)
LINK_INTEGRITY = _port(
    "LinkIntegrityErrors",
    "A port of the compute fabric counts local link integrity errors",
    f"The physical layer had more errors at a time than the link can bear. {_MULTI_NODE} {_CABLE}",
)
BUFFER_OVERRUN = _port(
    "BufferOverrun",
    "A port of the compute fabric counts excessive buffer overruns",
    f"Flow control between the port and its switch does not work; packets are lost. {_MULTI_NODE} Reset the port, bring "
    "firmware of "
    f"card and switch to the same release. {_CABLE}",
)
BOND_LEG_DOWN = _port(
    "BondLegDown",
    "A bonded device of the compute fabric has lost a leg; the device itself stays ACTIVE",
    f"{_MULTI_NODE} The message names the leg: `cat /proc/net/bonding/BOND`. {_CABLE}",
)
HCA_MISSING = fault(
    "HcaMissing",
    Effect.NO_MULTI_NODE,
    Urgency.WHEN_IDLE,
    Action.REBOOT,
    "An RDMA device of the compute fabric that should be there is not",
    "The message says which one, or how many ports are there, how many are expected and who says so, and whether its PCI "
    "device "
    "is still there. Once the node is idle nodemend reboots it; if that does not bring it back, a person is paged: "
    "`lspci -d 15b3:`, `dmesg | grep mlx5`, the card's seat and power. Where fewer are right, say so in spec.expected.ports "
    "of the NodeHealth. An Ethernet port with the default route counts only where `[infiniband] compute` names it.",
)
HCA_PCIE = fault(
    "HcaPcieDegraded",
    Effect.PREFER_NOT,
    Urgency.PERSON,
    Action.CONTACT_SUPPORT,
    "The PCIe link of an RDMA device of the compute fabric is narrower or slower than it can be",
    "The card cannot move what its port can. `lspci -vv -s ADDRESS | grep LnkSta`; reseat the card or its riser, then "
    "replace it.",
)
STORAGE_DOWN = fault(
    "StoragePortDown",
    Effect.NODE_OUT,
    Urgency.PERSON,
    Action.CONTACT_SUPPORT,
    "A port that the configuration marks as the storage rail is not active",
    "Work on this node cannot reach its data, so nothing new is placed on it. Only ports that `[infiniband] storage` in "
    "agent.toml "
    f"names can say so. {_CABLE}",
)
SPARE_DOWN = warning(
    "SparePortDown",
    "A port that was active in this boot is down, and as many as are expected are active without it",
    "Nothing is taken from the node. If the port belongs to the compute fabric, raise the expected number of ports. "
    f"{_CABLE}",
)
MANAGEMENT_DOWN = warning(
    "ManagementPortDown",
    "A port outside the compute fabric was active in this boot and is down",
    f"Management ports never take work from a node. {_CABLE}",
)
REDUNDANCY_LOST = warning(
    "BondRedundancyLost",
    "A bonded device outside the compute fabric has lost a leg",
    f"It works on, with half of its bandwidth and without a spare. The message names the leg. {_CABLE}",
)
LINK_DOWNED = warning(
    "LinkDowned",
    "A port of the compute fabric lost its link and got it back within the last hour",
    "One outage may be a switch that was restarted; more of them are PortFlapping. It ends after an hour without another.",
)
ERROR_RECOVERY = warning(
    "LinkErrorRecovery",
    "A port of the compute fabric recovers from link errors again and again",
    f"The link retrains under load and costs bandwidth. {_CABLE}",
)
RECEIVE_ERRORS = warning(
    "ReceiveErrors",
    "A port of the compute fabric receives many broken packets",
    f"Packets are sent again. {_CABLE}",
)
DISCARDS = warning(
    "TransmitDiscards",
    "A port of the compute fabric discards many packets that it should send",
    "Congestion, or a peer that is down or does not drain: look at the switch ports and at the nodes that it talks to.",
)
ACK_TIMEOUTS = warning(
    "AckTimeouts",
    "Many packets of a port of the compute fabric are not acknowledged in time",
    "The peer or the way to it is ill, or jobs there were killed. Compare with the nodes that it talks to.",
)
RNR_RETRIES = warning(
    "RnrNakRetries",
    "Peers of a port of the compute fabric were not ready to receive until the retries ran out",
    "Mostly an application that died or posts too few receives; the job's owner looks first. No hardware is proven ill.",
)
SLOW_RESTARTS = warning(
    "RoceSlowRestarts",
    "RoCE's slow restart sets in again and again on a port of the compute fabric",
    "Packets are lost on the way: look at flow control (PFC, ECN) on the switch, and at buffer drops there.",
)
EFA_ERRORS = warning(
    "EfaTransportErrors",
    "An EFA device drops, retransmits or fails more than it should",
    "The message names the counters. Look at the peers' EFA counters and at the provider's health page; where only this "
    "node shows "
    "it, stop and start the instance.",
)
SATURATED = warning(
    "CounterSaturated",
    "Error counters of a port have reached their end and can tell nothing more",
    "The message names them. `perfquery -R LID PORT` sets them back to zero; until then their growth is not evaluated.",
)
WITHOUT_RDMA = warning(
    "HcaWithoutRdma",
    "An InfiniBand card is on the PCI bus and has no RDMA device",
    "The driver is not bound, or mlx5_ib is not loaded, or the card's firmware did not come up: `dmesg | grep mlx5`. "
    "Where RDMA "
    "devices are missed, HcaMissing stands beside it.",
)
UNREAD = warning(
    "InfinibandUnreadable",
    "The RDMA devices or one of their ports cannot be read, so nobody knows their state",
    "The message names the file. A pod needs the host's /sys (agent.toml, roots.sys). A file that gives EIO or hangs is a "
    "card "
    "whose firmware does not answer: `dmesg | grep mlx5`. The agent keeps trying.",
)

FAULTS = (
    PORT_DOWN,
    NO_SUBNET_MANAGER,
    COUNT_BELOW,
    RATE_BELOW,
    WIDTH_REDUCED,
    LAYER_CHANGED,
    FLAPPING,
    SYMBOL_ERRORS,
    LINK_INTEGRITY,
    BUFFER_OVERRUN,
    BOND_LEG_DOWN,
    HCA_MISSING,
    HCA_PCIE,
    STORAGE_DOWN,
)
WARNINGS = (
    SPARE_DOWN,
    MANAGEMENT_DOWN,
    REDUNDANCY_LOST,
    LINK_DOWNED,
    ERROR_RECOVERY,
    RECEIVE_ERRORS,
    DISCARDS,
    ACK_TIMEOUTS,
    RNR_RETRIES,
    SLOW_RESTARTS,
    EFA_ERRORS,
    SATURATED,
    WITHOUT_RDMA,
)
REASONS = (*FAULTS, *WARNINGS)
