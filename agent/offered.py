"""Which GPUs kubelet offers to new pods, which ones pods hold, and which one it has taken back. Pure.

Kubelet names devices as their plugins do; here they are laid over the machine's cards. Of a card that no name fits, as long
as there are names that could be its own, nothing is known: None, never False. The same holds of all cards while kubelet
offers none at all: a restart of kubelet, an absent plugin and a cluster that allocates by claims look alike in that.

What stands is kept for three tries, as with every source, and beyond the first answer after a failure, so that a restart of
kubelet changes nothing: kubelet 1.37 was seen to answer for a second with neither devices nor pods, and then with pods alone
until its plugins had registered again. And no card is said not to be offered before a second answer says so too, since a
plugin registers one resource after the other.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase

import msgspec

from agent.host.inventory import Inventory
from agent.host.pod_resources import KubeletDevices, KubeletFailed
from agent.parts import Known, parts_of
from kube.nodehealth import NodeHealthStatus, OtherDevice, PartState

POD_RESOURCES = "pod-resources"
"""The name of this source in NodeHealth."""

TRIES_BEFORE_UNKNOWN = 3
MOST_OTHER = 64
_NAMES_LIMIT = 317  # the schema's, room for one namespace/name of the longest kind

_HEX = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_GPU = re.compile(rf"gpu-({_HEX})")  # also within mig-gpu-<uuid>/<gi>/<ci>, MIG names before driver 470
_MIG = re.compile(rf"mig-({_HEX})")
# GKE's plugin says nvidia0, nvidia0/gi1, nvidia0/vgpu2; NVIDIA's DRA driver gpu-0, gpu-0-mig-19-0-1: both by minor number.
_MINOR = re.compile(r"(?:nvidia|gpu-)(\d{1,4})(?:/.*|-mig-.*)?")
_PCI = re.compile(r"([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})(?:\.[0-7])?")


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """Which devices are GPUs: extended resources by shell pattern, drivers of dynamic resource allocation by name."""

    resources: tuple[str, ...]
    drivers: tuple[str, ...]

    def resource(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.resources)


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """What tells one GPU from another. `mig_devices` are the UUIDs of its MIG devices, as far as they could be read."""

    pci: str
    uuid: str = ""
    minor: int | None = None
    mig: bool | None = None
    mig_devices: tuple[str, ...] = ()


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What kubelet says of one card. `ever`: it was offered in this boot; `withdrawn_at`: and it no longer is since then."""

    offered: bool | None = None
    held: bool | None = None
    held_by: str = ""
    ever: bool = False
    withdrawn_at: datetime | None = None


class Offers(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known from kubelet in this boot: `cards` by PCI address, `other` what fits none.

    `tries` counts answers in a row that were none, `empty` those that offered nothing at all, both up to three. `waits`: the
    last answer was not believed yet; `doubted` are the cards that it left out. `error` is set from the third failure on.
    """

    cards: Mapping[str, Offer] = {}
    other: tuple[OtherDevice, ...] = ()
    error: str = ""
    tries: int = 0
    empty: int = 0
    waits: bool = False
    doubted: frozenset[str] = frozenset()

    @property
    def settled(self) -> bool:
        """Whether nothing waits for another answer soon."""
        return not (self.waits or self.doubted or 0 < self.tries < TRIES_BEFORE_UNKNOWN)


class _Name(msgspec.Struct, frozen=True, order=True):
    """One device as kubelet names it, and the pod that has it, as namespace/name; empty for one that is offered."""

    resource: str
    id: str
    pod: str = ""


class _Laid(msgspec.Struct, frozen=True, kw_only=True):
    """Names laid over the cards: who stands on each card, by PCI address, and what fits none."""

    pods: Mapping[str, tuple[str, ...]]
    rest: tuple[_Name, ...]

    def has(self, card: Card) -> bool | None:
        """Say whether a name stands on the card; None where one that fits no card could be its own."""
        if card.pci in self.pods:
            return True
        return None if any(_might_be(name.id, card) for name in self.rest) else False


def cards_of(inventory: Inventory, known: Known) -> tuple[Card, ...]:
    """Give the cards of this machine by all names that are known of them."""
    minors = {gpu.part.pci: gpu.minor for gpu in inventory.gpus}
    cards = []
    for part in parts_of(inventory, known):
        reading = known.gpus.get(part.pci)
        minor = minors.get(part.pci) if reading is None or reading.minor is None else reading.minor
        mig_devices = reading.mig_devices if reading is not None else ()
        cards.append(Card(pci=part.pci, uuid=part.uuid, minor=minor, mig=part.mig, mig_devices=mig_devices))
    return tuple(cards)


def take(
    before: Offers,
    reading: KubeletDevices | KubeletFailed,
    cards: Sequence[Card],
    watched: Watched,
    now: datetime,
) -> Offers:
    """Take what kubelet answered, or that it did not."""
    if isinstance(reading, KubeletFailed):
        return _failed(before, reading)
    offered, held = _lay(_offered(reading, watched), cards), _lay(_held(reading, watched), cards)
    empty = 0 if offered.pods or offered.rest else min(before.empty + 1, TRIES_BEFORE_UNKNOWN)
    if before.tries or 0 < empty < TRIES_BEFORE_UNKNOWN:
        return msgspec.structs.replace(before, error="", tries=0, empty=empty, waits=True)
    after: dict[str, Offer] = {}
    doubted: set[str] = set()
    for card in cards:
        was = before.cards.get(card.pci, Offer())
        says = None if empty else offered.has(card)
        if says is False and was.offered is not False and card.pci not in before.doubted:
            doubted.add(card.pci)
        if card.pci in doubted:
            says = was.offered
        after[card.pci] = _offer(was, says, held.has(card), held.pods.get(card.pci, ()), now)
    return Offers(cards=after, other=_other(offered.rest, held.rest), empty=empty, doubted=frozenset(doubted))


def _offer(was: Offer, offered: bool | None, held: bool | None, pods: Sequence[str], now: datetime) -> Offer:
    ever = was.ever or offered is True
    withdrawn_at = None if offered else was.withdrawn_at
    if offered is False and ever and withdrawn_at is None:
        withdrawn_at = now
    return Offer(offered=offered, held=held, held_by=_words(pods), ever=ever, withdrawn_at=withdrawn_at)


def _failed(before: Offers, failed: KubeletFailed) -> Offers:
    tries = min(before.tries + 1, TRIES_BEFORE_UNKNOWN)
    if tries < TRIES_BEFORE_UNKNOWN:
        return msgspec.structs.replace(before, tries=tries)
    unknown = {
        pci: msgspec.structs.replace(offer, offered=None, held=None, held_by="")
        for pci, offer in before.cards.items()
    }
    return Offers(cards=unknown, error=failed.error, tries=tries)


def restored(status: NodeHealthStatus, *, boot_id: str, node_uid: str) -> Offers:
    """Read back what an earlier run of the agent had published in this boot; nothing of another boot or machine."""
    if not boot_id or status.boot_id != boot_id or status.node_uid != node_uid:
        return Offers()
    cards = {
        part.pci: Offer(
            offered=part.offered,
            held=part.held,
            held_by=part.held_by,
            ever=part.offered is True or part.withdrawn_at is not None,
            withdrawn_at=part.withdrawn_at,
        )
        for part in status.parts
        if part.pci
    }
    return Offers(cards=cards, other=status.other_devices)


def over(part: PartState, offers: Offers) -> PartState:
    """Say of one part what kubelet says of it."""
    offer = offers.cards.get(part.pci)
    if offer is None:
        return part
    return msgspec.structs.replace(
        part,
        offered=offer.offered,
        held=offer.held,
        held_by=offer.held_by,
        withdrawn_at=offer.withdrawn_at,
    )


def holders_of(parts: Iterable[PartState], offers: Offers) -> dict[str, str]:
    """Give who has each part now, under its UUID and under its PCI address."""
    held: dict[str, str] = {}
    for part in parts:
        offer = offers.cards.get(part.pci)
        if offer is not None and offer.held_by:
            held |= {name: offer.held_by for name in (part.uuid, part.pci) if name}
    return held


def _offered(reading: KubeletDevices, watched: Watched) -> Iterator[_Name]:
    return (
        _Name(device.resource, device.id)
        for device in reading.allocatable
        if watched.resource(device.resource)
    )


def _held(reading: KubeletDevices, watched: Watched) -> Iterator[_Name]:
    for pod in reading.pods:
        name = f"{pod.namespace}/{pod.name}"
        for device in pod.devices:
            if watched.resource(device.resource):
                yield _Name(device.resource, device.id, name)
        for claimed in pod.claimed:
            if claimed.driver in watched.drivers:
                names = (claimed.device, *claimed.cdi)
                telling = next((one for one in names if _kind(one)[0]), claimed.device)
                yield _Name(claimed.driver, telling, name)


def _lay(names: Iterable[_Name], cards: Sequence[Card]) -> _Laid:
    pods: dict[str, set[str]] = {}
    rest: set[_Name] = set()
    for name in names:
        card = _card_of(name.id, cards)
        if card is None:
            rest.add(name)
        else:
            pods.setdefault(card.pci, set()).update({name.pod} - {""})
    return _Laid(pods={pci: tuple(sorted(who)) for pci, who in pods.items()}, rest=tuple(sorted(rest)))


def _card_of(device: str, cards: Sequence[Card]) -> Card | None:
    kind, key = _kind(device)
    match kind:
        case "gpu":
            found = [card for card in cards if _uuid(card) == key]
        case "mig":
            known = [card for card in cards if key in map(str.lower, card.mig_devices)]
            # A MIG device lives on a card with MIG switched on: where there is but one, it is that one.
            found = known or [card for card in cards if card.mig is not False]
        case "minor":
            found = [card for card in cards if card.minor == int(key)]
        case "pci":
            found = [card for card in cards if card.pci == key]
        case _:
            found = []
    return found[0] if len(found) == 1 else None


def _might_be(device: str, card: Card) -> bool:
    """Say whether a name that fits no card for sure could be this one's."""
    match _kind(device)[0]:
        case "gpu":
            return not card.uuid
        case "mig":
            return card.mig is not False
        case "minor":
            return card.minor is None
        case "pci":
            return False
        case _:
            return True


def _kind(device: str) -> tuple[str, str]:
    """Tell what a device's id says: gpu or mig with a UUID, minor with a number, pci with an address, or nothing."""
    name = device.partition("::")[0].lower()  # <uuid>::<n> is one of a card's replicas (time-slicing, MPS)
    if found := _GPU.search(name):
        return "gpu", found[1]
    if found := _MIG.search(name):
        return "mig", found[0]
    if found := _MINOR.fullmatch(name):
        return "minor", found[1]
    if found := _PCI.fullmatch(name):
        domain, _, rest = found[1].partition(":")
        return "pci", f"{int(domain, 16):04x}:{rest}"
    return "", ""


def _uuid(card: Card) -> str:
    return card.uuid.lower().removeprefix("gpu-")


def _other(offered: Sequence[_Name], held: Sequence[_Name]) -> tuple[OtherDevice, ...]:
    """Say openly what fits no card, so that nothing kubelet names is lost."""
    pods: dict[tuple[str, str], set[str]] = {(name.resource, name.id): set() for name in (*offered, *held)}
    for name in held:
        pods[name.resource, name.id].add(name.pod)
    free = {(name.resource, name.id) for name in offered}
    return tuple(
        OtherDevice(resource=key[0], id=key[1], offered=key in free, held_by=_words(sorted(who)))
        for key, who in sorted(pods.items())[:MOST_OTHER]
    )


def _words(pods: Sequence[str]) -> str:
    """Name the pods, as many as there is room for."""
    words = ", ".join(pods)
    if len(words) <= _NAMES_LIMIT:
        return words
    first = pods[0][: _NAMES_LIMIT - 16]
    return f"{first} and {len(pods) - 1} more" if len(pods) > 1 else pods[0][:_NAMES_LIMIT]
