"""What the infiniband check's memory says to the rest of the agent: ports shown now, and ports validated. Pure."""

from collections.abc import Mapping
from datetime import datetime
from typing import TypedDict

import msgspec

from agent.asked import recalled as read_back
from agent.judge import CheckState
from checks.infiniband import shown, validated
from checks.infiniband_look import NAME
from checks.infiniband_memory import InfinibandMemory
from checks.last_validated import Validated, with_fabric
from kube.nodehealth import FabricPorts, LastValidated


class Counted(TypedDict):
    """The fields of MachineFacts that the last validated count fills."""

    last_validated: int | None
    last_validated_pci: tuple[str, ...]
    last_validated_ports: int | None
    last_validated_rate_mbps: int | None


def counted(held: Validated | None) -> Counted:
    """Give what was last validated, as checks are told it."""
    return Counted(
        last_validated=held.gpus if held is not None else None,
        last_validated_pci=held.pci if held is not None else (),
        last_validated_ports=held.ports if held is not None else None,
        last_validated_rate_mbps=held.rate_mbps if held is not None else None,
    )


def recalled(held: Validated | None, published: LastValidated | None) -> Validated | None:
    """Give what is validated once NodeHealth's account is read, where it knows more than the state file did."""
    if published is None:
        return held
    told = read_back(published)
    if held is None or told.gpus > held.gpus:
        return told
    if held.ports is None and held.ports_accepted is None:
        return msgspec.structs.replace(
            held, ports=told.ports, rate_mbps=told.rate_mbps, ports_at=told.ports_at
        )
    return held


def learned(
    held: Validated | None, states: Mapping[str, CheckState], accepted: datetime | None
) -> Validated | None:
    """Give what is validated after the checks were run; nothing of the fabric where no GPU was ever counted.

    `accepted`: when a person last cleared the node.
    """
    if held is None:
        return None
    told = validated(_memory(states))
    if told is None:
        return with_fabric(held, 0, 0, None, accepted)
    return with_fabric(held, told.active, told.rate_mbps, told.at, accepted)


def fabric_ports(states: Mapping[str, CheckState]) -> FabricPorts | None:
    """Give what the node shows now, as NodeHealth.status holds it; None where it has no compute fabric."""
    now = shown(_memory(states))
    return FabricPorts(active=now.active, rate_mbps=now.rate_mbps, at=now.at) if now is not None else None


def _memory(states: Mapping[str, CheckState]) -> InfinibandMemory | None:
    memory = states[NAME].memory if NAME in states else None
    return memory if isinstance(memory, InfinibandMemory) else None
