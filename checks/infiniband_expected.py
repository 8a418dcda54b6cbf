"""How many active compute ports a node should have and at which rate, and who says so. Pure.

In this order, for the number and for the rate by itself: the policy for the instance type (NodeHealth.spec.expected), the
built-in table of platforms by instance type, and then what this node had when it was last validated or what most of at least
three peers have. Of these last two the larger counts: a node that was slow from its first day validated itself slow, and
only its peers know better; peers that are all short themselves know less than the node's own past. Where nobody says
anything, nothing is guessed: not evaluated.

Whoever rents from AWS or Google chooses at the launch whether a machine has RDMA interfaces at all. So the table's number
for their instance types counts only on a machine that shows some RDMA device, on the bus at least, or showed one in this
boot: `optional`.

The rate is that of each port, and both are the least that is asked for: more is no fault.
"""

import msgspec

from checks.check import Context
from checks.expected import INSTANCE_TYPE_LABEL
from checks.platforms import Platform, platforms

LEAST_PEERS = 3
CHOSEN_AT_LAUNCH = ("AWS ", "GCP ")
"""How the names of platforms begin whose RDMA interfaces are chosen for each machine."""


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """`ports` and `rate_mbps` are None where no source says anything; each has its own source.

    `optional`: the machine may as well have been started without any port.
    """

    ports: int | None = None
    ports_source: str = ""
    rate_mbps: int | None = None
    rate_source: str = ""
    optional: bool = False


def expected_ports(context: Context) -> Expected:
    """Give what the compute fabric of this node should show."""
    ports, ports_source = _first(context, "ports")
    rate, rate_source = _first(context, "rate_mbps")
    platform = _platform(context)
    is_chosen = platform is not None and platform.name.startswith(CHOSEN_AT_LAUNCH)
    shown_once = (context.last_validated_ports, context.peer_ports)
    optional = is_chosen and context.expected_ports is None and not any(shown_once)
    return Expected(
        ports=ports, ports_source=ports_source, rate_mbps=rate, rate_source=rate_source, optional=optional
    )


def _platform(context: Context) -> Platform | None:
    instance_type = context.labels.get(INSTANCE_TYPE_LABEL, "")
    return platforms().by_instance_type.get(instance_type) if instance_type else None


def _first(context: Context, quantity: str) -> tuple[int | None, str]:
    is_ports = quantity == "ports"
    policy = context.expected_ports if is_ports else context.expected_rate_mbps
    if policy is not None:
        return policy, f"NodeHealth.spec.expected ({context.expected_ports_source or 'policy'})"
    platform = _platform(context)
    known = None if platform is None else platform.ib_ports if is_ports else platform.ib_rate_mbps
    if known is not None:
        return known, f"instance type {context.labels.get(INSTANCE_TYPE_LABEL, '')}"
    past = context.last_validated_ports if is_ports else context.last_validated_rate_mbps
    peers = context.peer_ports if is_ports else context.peer_rate_mbps
    if context.peers_counted < LEAST_PEERS:
        peers = None
    if past is not None and (peers is None or past >= peers):
        return past, "last validated on this node"
    # The number of peers comes and goes with nodes; a condition's message must not.
    return (peers, "most of its peers") if peers is not None else (None, "")
