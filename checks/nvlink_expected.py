"""How many NVLinks a GPU should have, how fast they should be, and whether each of them should be active. Pure.

In this order: the instance type's row of the table of platforms, the rows of that GPU model where they agree, what this GPU
itself showed earlier in this boot, what most of at least three GPUs of the same model beside it show. Else nobody says, and
it is not evaluated.

**Not every link that is inactive is down.** A PCIe card has its links whether or not a bridge is plugged on them, and a GPU
that is alone in its (virtual) machine is given none: Fabric Manager's partitions of one GPU have no NVLink (NVIDIA's Fabric
Manager guide, shared NVSwitch model). So all links are expected to be active only where the table or the name of the model
(SXM, from Ampere on) says that this GPU sits on NVSwitches or a baseboard, or where most of its peers have all of theirs
and it is no card; else those that were seen active. Half a board of Volta in a virtual machine has links to the other half,
which are inactive there; cards are bridged in pairs or not at all.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from checks.check import Context
from checks.expected import INSTANCE_TYPE_LABEL
from checks.gpu_health import NvLink, NvLinks
from checks.nvml_look import Answered
from checks.platforms import Platform, platforms

ACTIVE_STATES = {1, 2}  # active, and asleep to save power
LEAST_PEERS = 3
AMPERE = 7  # NVML_DEVICE_ARCH_AMPERE
MOST_OF_A_CARD = 4  # A40, RTX A6000 and A30 have four; boards have six and more


class NvLinkExpectation(msgspec.Struct, frozen=True, kw_only=True):
    """None = nobody says. `mbps` is MB/s as NVML counts. `active`: the numbers of the links that should be active.

    `certain` says that an instance type demands links, `were_there` that this GPU showed some earlier.
    """

    links: int | None = None
    source: str = ""
    mbps: int | None = None
    active: frozenset[int] = frozenset()
    certain: bool = False
    were_there: bool = False


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What one GPU showed in this boot: its most links, and a bit for each that was active."""

    links: int = 0
    active: int = 0


def expected_of(
    one: Answered, answered: Sequence[Answered], seen: Mapping[str, Seen], context: Context, *, alone: bool
) -> NvLinkExpectation:
    """Give what is expected of one GPU; `answered` are all of its round, itself among them.

    `alone`: this machine has no other GPU.
    """
    rows, source, certain = _rows(one.gpu.model, context)
    alone = alone and not certain
    links = None if alone else _only({row.nvlink_links_per_gpu for row in rows})
    earlier = seen.get(one.part.key(), Seen())
    peers = _peers(one, answered)
    if links is None:
        most = _of_most(Counter(peer.count for peer in peers)) or 0
        links = max(earlier.links, most) or None
        source = "what it showed earlier in this boot"
        if most > earlier.links:
            source = "most GPUs of its model on this node"
    rate = _only({row.nvlink_mbps_per_link for row in rows})
    return NvLinkExpectation(
        links=links,
        source=source if links is not None else "",
        mbps=rate // 8 if rate else _fastest(one, answered),
        active=_active(one, rows, peers, earlier, alone=alone),
        certain=certain and bool(links),
        were_there=earlier.links > 0,
    )


def inactive(links: NvLinks) -> frozenset[int]:
    """Give the links that are inactive, or active with their traffic disabled."""
    return frozenset(link.index for link in links.links if link.state in {0, 3})


def is_active(link: NvLink) -> bool:
    """Tell a link that is active or asleep."""
    return link.state in ACTIVE_STATES


def remembered(answered: Sequence[Answered], seen: Mapping[str, Seen]) -> dict[str, Seen]:
    """Give what is to be remembered after a round; a GPU that is not in it keeps what it has."""
    after = dict(seen)
    for one in answered:
        links = one.health.nvlinks
        if links is not None and not one.gpu.mig:
            before = after.get(one.part.key(), Seen())
            active = sum(1 << link.index for link in links.links if is_active(link) and 0 <= link.index < 64)
            after[one.part.key()] = Seen(links=max(before.links, links.count), active=before.active | active)
    return after


def _rows(model: str, context: Context) -> tuple[list[Platform], str, bool]:
    """Give the rows of the table that are about this GPU, who says so, and whether an instance type does."""
    instance_type = context.labels.get(INSTANCE_TYPE_LABEL, "")
    platform = platforms().by_instance_type.get(instance_type)
    if platform is not None and _is_model(model, platform.gpu_model):
        return [platform], f"instance type {instance_type}", True
    rows = [row for row in platforms().by_name.values() if _is_model(model, row.gpu_model)]
    return rows, f"all {model}", False


def _is_model(model: str, known: str) -> bool:
    """Compare names; drivers add words (`B300 SXM6 AC`), but NVL and PCIe name another kind of card."""
    rest = model.removeprefix(known)
    return model.startswith(known) and (
        not rest or (rest.startswith(" ") and not {"NVL", "PCIe"} & {*rest.split()})
    )


def _peers(one: Answered, answered: Sequence[Answered]) -> list[NvLinks]:
    return [
        other.health.nvlinks
        for other in answered
        if other is not one
        and other.gpu.model == one.gpu.model
        and other.health.nvlinks is not None
        and not other.gpu.mig
    ]


def _active(
    one: Answered, rows: Sequence[Platform], peers: Sequence[NvLinks], earlier: Seen, *, alone: bool
) -> frozenset[int]:
    links = one.health.nvlinks
    if links is None:
        return frozenset()
    everyone = frozenset(link.index for link in links.links)
    on_board = any(row.nvlink_links_per_gpu for row in rows) or _is_on_switches(one)
    linked = sum(bool(peer.links) and not inactive(peer) for peer in peers)
    by_peers = linked >= LEAST_PEERS and linked * 2 > len(peers) and not _is_by_hand(one)
    if not alone and (on_board or by_peers):
        return everyone
    return frozenset(index for index in everyone if index >= 0 and earlier.active >> index & 1)


def _is_on_switches(one: Answered) -> bool:
    """Tell by the model. Volta's boards link GPUs to each other, so that half a board has links to the other half."""
    architecture = one.health.architecture
    return "SXM" in one.gpu.model and (architecture is None or architecture >= AMPERE)


def _is_by_hand(one: Answered) -> bool:
    """Tell cards that are bridged in pairs, where somebody did: by their name, or by having a bridge's few links."""
    names = one.gpu.model.upper()
    few = one.health.nvlinks is not None and one.health.nvlinks.count <= MOST_OF_A_CARD
    return "PCIE" in names or "NVL" in names.split() or few


def _fastest(one: Answered, answered: Sequence[Answered]) -> int | None:
    """Give the best rate of any active link of this model here: the others should run as fast."""
    return max(_rates(one.gpu.model, answered), default=None)


def _rates(model: str, answered: Sequence[Answered]) -> Iterator[int]:
    for other in answered:
        if other.gpu.model == model and other.health.nvlinks is not None:
            yield from (link.mbps for link in other.health.nvlinks.links if link.state == 1 and link.mbps)


def _only(values: set[int | None]) -> int | None:
    """Give the value where all rows agree."""
    return next(iter(values)) if len(values) == 1 else None


def _of_most(counts: Counter[int]) -> int | None:
    if sum(counts.values()) < LEAST_PEERS:
        return None
    (count, times), *_ = counts.most_common(1)
    return count if times * 2 > sum(counts.values()) else None
