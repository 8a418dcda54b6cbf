"""Which GPU kubelet offers, which is held, which was taken back: names of every kind laid over cards, tables and laws."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.host.inventory import Gpu, Inventory
from agent.host.pod_resources import KubeletDevices, KubeletFailed
from agent.host.pod_resources_wire import ClaimedDevice, Device, PodDevices
from agent.host.unary_call import Cause
from agent.offered import (
    MOST_OTHER,
    Card,
    Offer,
    Offers,
    Watched,
    cards_of,
    holders_of,
    over,
    restored,
    take,
)
from agent.parts import Known
from checks.finding import Part, PartKind
from checks.observation import GpuReading
from kube.nodehealth import NodeHealthStatus, OtherDevice, PartState

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WATCHED = Watched(resources=("nvidia.com/gpu", "nvidia.com/mig-*"), drivers=("gpu.nvidia.com",))
GPU = "nvidia.com/gpu"
FAILED = KubeletFailed(cause=Cause.REFUSED, error="kubelet.sock: nobody listens")
MIG = "MIG-aaaaaaaa-2222-3333-4444-555555555555"


def uuid(number: int) -> str:
    return f"GPU-{number:08d}-2222-3333-4444-555555555555"


def cards(count: int = 3, **fields: object) -> list[Card]:
    """Build cards 0 to `count` - 1; `fields` are those of the last one."""
    built = [
        Card(pci=f"0000:{number:02x}:00", uuid=uuid(number), minor=number, mig=False)
        for number in range(count)
    ]
    return [*built[:-1], msgspec.structs.replace(built[-1], **fields)]


def offers(*devices: str, resource: str = GPU) -> KubeletDevices:
    return KubeletDevices(allocatable=tuple(Device(resource, one) for one in devices))


def after(answers: Sequence[KubeletDevices | KubeletFailed], machine: Sequence[Card]) -> Offers:
    """Take the answers one after the other, ten seconds apart."""
    known = Offers()
    for number, answer in enumerate(answers):
        known = take(known, answer, machine, WATCHED, NOW + timedelta(seconds=10 * number))
    return known


def offered(known: Offers) -> list[bool | None]:
    return [offer.offered for offer in known.cards.values()]


def held(known: Offers) -> list[bool | None]:
    return [offer.held for offer in known.cards.values()]


ALL = offers(uuid(0), uuid(1), uuid(2))
TWO = offers(uuid(0), uuid(1))
NONE = offers()


@pytest.mark.parametrize(
    ("answer", "machine", "says"),
    [
        pytest.param(ALL, cards(), [True, True, True], id="every-card-is-named"),
        pytest.param(TWO, cards(), [True, True, False], id="one-card-is-left-out"),
        pytest.param(NONE, cards(), [None, None, None], id="none-at-all-says-nothing-of-one"),
        pytest.param(offers("x", resource="rdma/hca"), cards(), [None, None, None], id="other-hardware-is-not-ours"),
        pytest.param(
            offers(f"{uuid(0)}::0", f"{uuid(0)}::1", f"{uuid(1)}::7"), cards(), [True, True, False], id="replicas"
        ),
        pytest.param(offers(uuid(0).upper(), uuid(1)), cards(), [True, True, False], id="case-does-not-matter"),
        pytest.param(offers("nvidia0", "nvidia2"), cards(), [True, False, True], id="gkes-plugin-by-minor-number"),
        pytest.param(
            offers("nvidia0/gi1", "nvidia1/vgpu3", "nvidia1/gi2/vgpu0"), cards(), [True, True, False],
            id="gkes-plugin-parts-and-shares",
        ),
        pytest.param(
            offers("nvidia0", "nvidia9"), cards(minor=None), [True, False, None],
            id="a-number-that-could-be-the-card-without-one",
        ),
        pytest.param(
            offers("00000000:00:00.0", "0000:01:00.0"), cards(), [True, True, False], id="names-that-are-pci-addresses"
        ),
        pytest.param(
            offers(uuid(0), MIG), cards(mig=True), [True, False, True], id="a-mig-device-is-the-one-mig-cards"
        ),
        pytest.param(
            offers(uuid(0), MIG), cards(mig=None), [True, False, True],
            id="a-mig-device-is-the-one-card-that-could-have-mig",
        ),
        pytest.param(
            offers(MIG), [Card(pci="0000:00:00", mig=True), Card(pci="0000:01:00", mig=None)], [None, None],
            id="a-mig-device-that-two-cards-could-have",
        ),
        pytest.param(
            offers(MIG),
            [Card(pci="0000:00:00", mig=True), Card(pci="0000:01:00", mig=True, mig_devices=(MIG,))],
            [False, True],
            id="a-mig-device-whose-card-is-known",
        ),
        pytest.param(
            offers(f"MIG-{uuid(1)}/5/0", uuid(0)), cards(), [True, True, False], id="the-mig-names-of-old-drivers"
        ),
        pytest.param(offers(uuid(0), uuid(7)), cards(), [True, False, False], id="a-uuid-that-no-card-has"),
        pytest.param(
            offers(uuid(0), uuid(7)), cards(uuid=""), [True, False, None], id="a-uuid-and-a-card-without-one"
        ),
        pytest.param(TWO, cards(uuid=""), [True, True, False], id="all-names-are-placed-and-one-card-is-left"),
        pytest.param(
            offers("what-is-this", uuid(1)), cards(), [None, True, None], id="a-name-that-says-nothing-could-be-any"
        ),
    ],
)  # fmt: skip
def test_what_a_second_answer_confirms(
    answer: KubeletDevices, machine: Sequence[Card], says: list[bool | None]
) -> None:
    """Names of every plugin that we know are laid on their cards; where that is not sure, nothing is said."""
    assert offered(after([answer] * 4, machine)) == says


@pytest.mark.parametrize(
    ("answers", "says", "settled"),
    [
        pytest.param([ALL], [True, True, True], True, id="offered-is-believed-at-once"),
        pytest.param([TWO], [True, True, None], False, id="not-offered-is-not-said-at-first-sight"),
        pytest.param([TWO, TWO], [True, True, False], True, id="two-answers-are-enough"),
        pytest.param([ALL, TWO], [True, True, True], False, id="a-card-left-out-once-stays"),
        pytest.param([ALL, TWO, ALL], [True, True, True], True, id="a-plugin-that-was-registering"),
        pytest.param([ALL, TWO, TWO], [True, True, False], True, id="a-card-taken-back"),
        pytest.param([ALL, TWO, TWO, ALL], [True, True, True], True, id="and-offered-again"),
        pytest.param([ALL, NONE], [True, True, True], False, id="kubelet-has-just-restarted"),
        pytest.param([ALL, NONE, NONE], [True, True, True], False, id="its-plugin-takes-its-time"),
        pytest.param([ALL, NONE, NONE, ALL], [True, True, True], True, id="and-is-there-again"),
        pytest.param([ALL, NONE, NONE, NONE], [None, None, None], True, id="the-plugin-is-gone"),
        pytest.param([ALL, FAILED], [True, True, True], False, id="one-failure"),
        pytest.param([ALL, FAILED, FAILED], [True, True, True], False, id="two-failures"),
        pytest.param([ALL, FAILED, FAILED, FAILED], [None, None, None], True, id="three-failures"),
        pytest.param(
            [ALL, FAILED, NONE, FAILED, NONE], [True, True, True], False, id="failures-not-in-a-row"
        ),
        pytest.param(
            [ALL, FAILED, FAILED, FAILED, ALL], [None, None, None], False, id="one-answer-after-silence"
        ),
        pytest.param([ALL, FAILED, FAILED, FAILED, ALL, ALL], [True, True, True], True, id="back-again"),
        pytest.param([TWO, TWO, NONE, NONE, NONE, TWO], [True, True, None], False, id="doubt-after-silence"),
    ],
)
def test_what_stands_after_several_answers(
    answers: list[KubeletDevices | KubeletFailed], says: list[bool | None], settled: bool
) -> None:
    """A restart changes nothing, one odd answer changes nothing; silence is Unknown in the end, never False."""
    known = after(answers, cards())
    assert (offered(known) or [None] * 3) == says
    assert known.settled is settled


def test_a_card_that_was_taken_back_says_since_when() -> None:
    """It was offered in this boot and is not now: since the answer that confirmed it, until it is offered again."""
    known = after([ALL, TWO, TWO, TWO], cards())
    assert known.cards["0000:02:00"].withdrawn_at == NOW + timedelta(seconds=20)
    assert known.cards["0000:01:00"].withdrawn_at is None
    silent = after([ALL, TWO, TWO, FAILED, FAILED, FAILED], cards())
    assert silent.cards["0000:02:00"].withdrawn_at == NOW + timedelta(seconds=20)
    assert after([ALL, TWO, TWO, ALL], cards()).cards["0000:02:00"].withdrawn_at is None


def test_a_card_that_never_was_offered_was_not_taken_back() -> None:
    """A card that an operator keeps from kubelet is not lost."""
    assert after([TWO, TWO], cards()).cards["0000:02:00"].withdrawn_at is None


def pod(name: str, *devices: str, resource: str = GPU) -> PodDevices:
    return PodDevices(
        namespace="team-a", name=name, devices=tuple(Device(resource, device) for device in devices)
    )


def claim(name: str, device: str, *cdi: str, driver: str = "gpu.nvidia.com") -> PodDevices:
    claimed = ClaimedDevice(driver=driver, pool="gpu-1", device=device, cdi=cdi)
    return PodDevices(namespace="team-b", name=name, claimed=(claimed,))


@pytest.mark.parametrize(
    ("pods", "machine", "says", "by"),
    [
        pytest.param((), cards(), [False, False, False], "", id="nobody-holds-anything"),
        pytest.param((pod("a", uuid(2)),), cards(), [False, False, True], "team-a/a", id="a-whole-card"),
        pytest.param(
            (pod("b", f"{uuid(2)}::1"), pod("a", f"{uuid(2)}::0")), cards(), [False, False, True],
            "team-a/a, team-a/b", id="replicas-of-two-pods",
        ),
        pytest.param(
            (pod("a", MIG, resource="nvidia.com/mig-1g.10gb"),), cards(mig=True), [False, False, True], "team-a/a",
            id="a-mig-device",
        ),
        pytest.param((claim("c", "gpu-2"),), cards(), [False, False, True], "team-b/c", id="a-claim-by-minor-number"),
        pytest.param(
            (claim("c", "gpu-2-mig-19-0-1"),), cards(mig=True), [False, False, True], "team-b/c",
            id="a-claim-of-a-mig-device",
        ),
        pytest.param(
            (claim("c", "card", f"vendor.com/gpu={uuid(2)}"),), cards(), [False, False, True], "team-b/c",
            id="a-claim-told-by-its-cdi-name",
        ),
        pytest.param((claim("c", "nic-0", driver="dra.net"),), cards(), [False] * 3, "", id="a-claim-of-a-network-card"),
        pytest.param((pod("a", "0", resource="rdma/hca"),), cards(), [False] * 3, "", id="a-device-of-another-kind"),
        pytest.param((pod("a", "odd"),), cards(), [None, None, None], "", id="a-name-that-could-be-any"),
        pytest.param((pod("a", uuid(9)),), cards(uuid=""), [False, False, None], "", id="a-uuid-and-a-card-without"),
    ],
)  # fmt: skip
def test_who_holds_what(
    pods: tuple[PodDevices, ...], machine: Sequence[Card], says: list[bool | None], by: str
) -> None:
    """Whole cards, replicas, MIG devices and claims are all held by the pods that List names."""
    known = after([KubeletDevices(allocatable=ALL.allocatable, pods=pods)], machine)
    assert held(known) == says
    assert known.cards["0000:02:00"].held_by == by


def test_what_a_kubelet_says_right_after_its_restart_is_not_believed() -> None:
    """Neither devices nor pods, then pods alone, then all as before: nothing is published of that."""
    pods = (pod("a", uuid(2)),)
    before = KubeletDevices(allocatable=ALL.allocatable, pods=pods)
    restart: list[KubeletDevices | KubeletFailed] = [FAILED, NONE, KubeletDevices(pods=pods), before]
    known = after([before], cards())
    for answer in restart:
        known = take(known, answer, cards(), WATCHED, NOW)
        assert offered(known) == [True, True, True]
        assert held(known) == [False, False, True]
    assert known.settled


def test_a_kubelet_that_knows_only_claims_is_believed_after_a_while() -> None:
    """It never offers a device, and still says who holds one."""
    answer = KubeletDevices(pods=(claim("c", "gpu-2"),))
    assert held(after([answer, answer], cards())) == []
    assert held(after([answer] * 3, cards())) == [False, False, True]


def test_a_lost_card_that_a_pod_still_has() -> None:
    """Not offered and held at once: kubelet takes nothing away from a running pod."""
    answer = KubeletDevices(allocatable=TWO.allocatable, pods=(pod("a", uuid(2)),))
    card = after([ALL, answer, answer], cards()).cards["0000:02:00"]
    assert (card.offered, card.held, card.held_by) == (False, True, "team-a/a")


def test_what_fits_no_card_is_said_openly() -> None:
    """Nothing that kubelet names is lost: which device, whether it is offered, and who has it."""
    answer = KubeletDevices(
        allocatable=(Device(GPU, uuid(9)), Device("rdma/hca", "0")),
        pods=(pod("a", uuid(9)), pod("b", uuid(8))),
    )
    assert after([answer], cards()).other == (
        OtherDevice(resource=GPU, id=uuid(8), offered=False, held_by="team-a/b"),
        OtherDevice(resource=GPU, id=uuid(9), offered=True, held_by="team-a/a"),
    )


def test_many_strange_devices_and_many_pods_stay_bounded() -> None:
    """NodeHealth has an end."""
    many = KubeletDevices(
        allocatable=tuple(Device(GPU, f"odd-{number}") for number in range(500)),
        pods=tuple(pod(f"pod-{number:03}", f"{uuid(2)}::{number}") for number in range(200)),
    )
    known = after([many], cards())
    assert len(known.other) == MOST_OTHER
    assert known.cards["0000:02:00"].held_by == "team-a/pod-000 and 199 more"


def test_what_was_published_in_this_boot_is_read_back() -> None:
    """A restart of the agent forgets nothing; another boot, another Node object and an unknown boot give nothing."""
    known = after([ALL, TWO, TWO], cards())
    parts = tuple(over(PartState(kind="gpu", pci=pci), known) for pci in known.cards)
    status = NodeHealthStatus(node_uid="uid-1", boot_id="boot-1", parts=parts)
    assert restored(status, boot_id="boot-1", node_uid="uid-1").cards == known.cards
    for boot_id, node_uid in (("boot-2", "uid-1"), ("boot-1", "uid-2"), ("", "uid-1")):
        assert restored(status, boot_id=boot_id, node_uid=node_uid) == Offers()


def test_a_part_of_which_kubelet_said_nothing_is_left_as_it_is() -> None:
    """A port or a mount is no device of kubelet's."""
    part = PartState(kind="port", name="mlx5_0")
    assert over(part, after([ALL], cards())) is part


def test_cards_are_known_by_all_names_that_inventory_and_nvml_give() -> None:
    """NVML's word counts before procfs', and what only one of them knows is taken."""
    inventory = Inventory(
        gpus=(
            Gpu(part=Part(kind=PartKind.GPU, pci="0000:01:00", uuid=uuid(1)), minor=1),
            Gpu(part=Part(kind=PartKind.GPU, pci="0000:02:00"), minor=2),
        )
    )
    known = Known(gpus={"0000:02:00": GpuReading(index=0, pci="0000:02:00", uuid=uuid(2), minor=5, mig=True)})
    assert cards_of(inventory, known) == (
        Card(pci="0000:01:00", uuid=uuid(1), minor=1),
        Card(pci="0000:02:00", uuid=uuid(2), minor=5, mig=True),
    )


names = st.sampled_from([uuid(0), uuid(1), uuid(2), uuid(9), f"{uuid(1)}::1", MIG, "nvidia1", "odd"])
answers = st.one_of(
    st.just(FAILED),
    st.builds(
        lambda free, taken: KubeletDevices(
            allocatable=tuple(Device(GPU, one) for one in free),
            pods=tuple(pod(f"p{number}", one) for number, one in enumerate(taken)),
        ),
        st.lists(names, max_size=4),
        st.lists(names, max_size=3),
    ),
)
machines = st.builds(
    lambda missing, mig: [
        Card(pci=f"0000:{n:02x}:00", uuid="" if n in missing else uuid(n), minor=n, mig=mig) for n in range(3)
    ],
    st.sets(st.integers(0, 2)),
    st.sampled_from([True, False, None]),
)


@given(st.lists(answers, max_size=8), machines)
def test_laws_that_no_answers_break(said: list[KubeletDevices | KubeletFailed], machine: list[Card]) -> None:
    """A card named is offered; one taken back says since when; what is known never rests on fewer than one answer."""
    known = after(said, machine)
    for card in machine:
        offer = known.cards.get(card.pci, Offer())
        last = said[-1] if said else FAILED
        if (
            not known.waits
            and isinstance(last, KubeletDevices)
            and any(d.id == card.uuid for d in last.allocatable)
        ):
            assert offer.offered is True
        assert (offer.withdrawn_at is not None) <= offer.ever
        assert not (offer.offered is True and offer.withdrawn_at)
        assert offer.held_by == "" or offer.held
    if len(said) >= 3 and all(answer == FAILED for answer in said[-3:]):
        assert {*offered(known), *held(known)} <= {None}
        assert known.error


def test_checks_are_told_who_holds_each_card() -> None:
    """Under the card's UUID and under its address; a card that no pod has is not named."""
    parts = tuple(PartState(kind="gpu", pci=card.pci, uuid=card.uuid) for card in cards())
    answer = KubeletDevices(allocatable=ALL.allocatable, pods=(pod("a", uuid(2)),))
    holders = holders_of(parts, after([answer], cards()))
    assert holders == {cards()[2].uuid: "team-a/a", "0000:02:00": "team-a/a"}
    assert holders_of(parts, Offers()) == {}
