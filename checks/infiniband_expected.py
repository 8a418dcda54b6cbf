"""How many active compute ports a node should have and at which rate, and who says so. Pure.

In this order, for the number and for the rate by itself: the policy for the instance type (NodeHealth.spec.expected), the
built-in table of platforms by instance type, and then what this node had when it was last validated or what most of at least
three peers have. Of these last two the larger counts: a node that was slow from its first day validated itself slow, and
only its peers know better; peers that are all short themselves know less than the node's own past. Where nobody says
anything, nothing is guessed: not evaluated.

The rate is that of each port, and both are the least that is asked for: more is no fault.
"""

import msgspec

from checks.check import Context
from checks.expected import INSTANCE_TYPE_LABEL
from checks.platforms import platforms

LEAST_PEERS = 3


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """`ports` and `rate_mbps` are None where no source says anything; each has its own source."""

    ports: int | None = None
    ports_source: str = ""
    rate_mbps: int | None = None
    rate_source: str = ""


def expected_ports(context: Context) -> Expected:
    """Give what the compute fabric of this node should show."""
    ports, ports_source = _first(context, "ports")
    rate, rate_source = _first(context, "rate_mbps")
    return Expected(ports=ports, ports_source=ports_source, rate_mbps=rate, rate_source=rate_source)


def _first(context: Context, quantity: str) -> tuple[int | None, str]:
    is_ports = quantity == "ports"
    policy = context.expected_ports if is_ports else context.expected_rate_mbps
    if policy is not None:
        return policy, f"NodeHealth.spec.expected ({context.expected_ports_source or 'policy'})"
    instance_type = context.labels.get(INSTANCE_TYPE_LABEL, "")
    platform = platforms().by_instance_type.get(instance_type) if instance_type else None
    known = None if platform is None else platform.ib_ports if is_ports else platform.ib_rate_mbps
    if known is not None:
        return known, f"instance type {instance_type}"
    past = context.last_validated_ports if is_ports else context.last_validated_rate_mbps
    peers = context.peer_ports if is_ports else context.peer_rate_mbps
    if context.peers_counted < LEAST_PEERS:
        peers = None
    if past is not None and (peers is None or past >= peers):
        return past, "last validated on this node"
    # The number of peers comes and goes with nodes; a condition's message must not.
    return (peers, "most of its peers") if peers is not None else (None, "")
