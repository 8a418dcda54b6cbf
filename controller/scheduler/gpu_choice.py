"""Which cards of a node a pod gets: KAI's order of shared cards and whole ones, over identified devices. Pure.

Bin-pack takes the fullest shared card first and a whole one last, spread a whole one first and then the emptiest. Cards on
which a finding stands (`avoid`) come last, and the lowest index decides between equals.
"""

from controller.scheduler.amounts import WHOLE_GPU
from controller.scheduler.model import Order
from controller.scheduler.node_books import on_card
from controller.scheduler.requests import Request
from controller.scheduler.rules import Rules
from controller.scheduler.state import DeviceState, NodeState


def choose(
    request: Request, node: NodeState, later: bool, order: Order, rules: Rules
) -> tuple[DeviceState, ...] | None:
    """Give the cards for a request, None where it cannot have them; () where it needs none by name.

    `later` counts what is being released as free, and then names no card for whole GPUs: they are claimed by count.
    Otherwise nothing that is being released is given. KAI takes the best card first and then sees whether it is free now
    (`share_what_is_free` False): then None may mean that a pod has to wait although another card would do.
    """
    if request.gpus:
        if later:
            return () if node.idle_gpus + node.releasing_gpus >= request.gpus else None
        return _whole_now(node, request.gpus)
    if not request.is_shared:
        return ()
    shared = [device for device in node.devices if fits_beside(request, device)]
    count = max(0, node.idle_gpus + node.releasing_gpus)
    if not later and rules.share_what_is_free:
        shared = [device for device in shared if _free_now(request, device)]
    whole = _whole_candidates(request, node, later or not rules.share_what_is_free, later)[:count]
    chosen = _ordered(shared, whole, order)[: request.devices]
    if len(chosen) < request.devices:
        return None
    if not later and not all(_is_idle(device) or _free_now(request, device) for device in chosen):
        return None
    return tuple(chosen)


def count_shared(request: Request, node: NodeState) -> int:
    """Count the cards beside whose pods the request fits once what is being released is gone."""
    return sum(1 for device in node.devices if fits_beside(request, device))


def fits_beside(request: Request, device: DeviceState) -> bool:
    """Tell whether a request fits on a card beside what stays and what is claimed there.

    A card on which nothing stays is a whole one to come, no shared one.
    """
    if not device.open:
        return False
    milli = device.used_milli - device.releasing_milli + device.claimed_milli
    mib = device.used_mib - device.releasing_mib + device.claimed_mib
    if not milli and not mib:
        return False
    wanted_milli, wanted_mib = on_card(request, device)
    return milli + wanted_milli <= WHOLE_GPU and mib + wanted_mib <= device.mib


def fits_empty(request: Request, device: DeviceState) -> bool:
    """Tell whether a request fits on the card when nothing else is there."""
    milli, mib = on_card(request, device)
    return milli <= WHOLE_GPU and mib <= device.mib


def _free_now(request: Request, device: DeviceState) -> bool:
    """Tell whether the room beside what stays on a shared card is free now, and not only later."""
    if device.used_milli == device.releasing_milli and device.used_mib == device.releasing_mib:
        return False
    milli, mib = on_card(request, device)
    return device.used_milli + milli <= WHOLE_GPU and device.used_mib + mib <= device.mib


def _is_idle(device: DeviceState) -> bool:
    """Tell whether nothing is on a card and nothing claims it."""
    return not (device.used_milli or device.used_mib or device.claimed_milli or device.claimed_mib)


def _whole_now(node: NodeState, count: int) -> tuple[DeviceState, ...] | None:
    if node.idle_gpus < count:
        return None
    first: list[DeviceState] = []
    last: list[DeviceState] = []
    for device in node.devices:
        if device.open and not (device.used_milli or device.used_mib):
            if device.claimed_milli or device.claimed_mib or device.spec.avoid:
                last.append(device)
            else:
                first.append(device)
                if len(first) == count:
                    return tuple(first)
    last.sort(key=lambda device: device.spec.avoid != "")
    return tuple((first + last)[:count])


def _whole_candidates(
    request: Request, node: NodeState, with_releasing: bool, releasing_first: bool
) -> list[DeviceState]:
    """Give the cards that a shared request may open: idle ones, and those on which all is being released.

    A claim goes to cards that are being released first, so that idle ones stay for who can start at once.
    """
    found = [
        device
        for device in node.devices
        if device.open
        and not device.claimed_milli
        and not device.claimed_mib
        and device.used_milli == device.releasing_milli
        and device.used_mib == device.releasing_mib
        and (with_releasing or not (device.used_milli or device.used_mib))
        and fits_empty(request, device)
    ]
    found.sort(
        key=lambda device: (
            device.spec.avoid != "",
            (device.used_milli > 0) != releasing_first,
            device.index,
        )
    )
    return found


def _ordered(shared: list[DeviceState], whole: list[DeviceState], order: Order) -> list[DeviceState]:
    sign = 1 if order is Order.SPREAD else -1
    shared.sort(key=lambda device: (sign * _fullness(device), device.index))
    cards = whole + shared if order is Order.SPREAD else shared + whole
    if any(device.spec.avoid for device in cards):
        cards.sort(key=lambda device: device.spec.avoid != "")
    return cards


def _fullness(device: DeviceState) -> int:
    """Say how full a shared card is, in millionths of its memory, what is claimed there included as KAI does."""
    if device.mib:
        return (device.used_mib + device.claimed_mib) * 1_000_000 // device.mib
    return (device.used_milli + device.claimed_milli) * 1_000
