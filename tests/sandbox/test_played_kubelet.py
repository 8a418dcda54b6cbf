"""Which cards a played kubelet gives to whom, and that the product's own client reads it so."""

import msgspec

from agent.host.pod_resources import KubeletDevices, read_pod_resources
from kube import paths
from kube.types import Pod
from sandbox.played_kubelet import Cards, PlayedKubelet
from tests.build import pod
from tests.fake_api import FakeApi

UUIDS = tuple(f"GPU-{number}" for number in range(4))


def names(cards: Cards) -> dict[str, tuple[str, ...]]:
    return {name: uuids for (_, name), uuids in cards.held().items()}


def test_pods_get_the_first_free_cards_and_keep_them() -> None:
    """Who came first keeps what he has; what ended gives back."""
    cards = Cards(UUIDS)
    cards.look([pod("b", gpus=2)])
    cards.look([pod("a", gpus=1), pod("b", gpus=2)])
    assert names(cards) == {"a": ("GPU-2",), "b": ("GPU-0", "GPU-1")}

    cards.look([pod("a", gpus=1), pod("b", gpus=2, phase="Failed"), pod("c", gpus=1)])
    assert names(cards) == {"a": ("GPU-2",), "c": ("GPU-0",)}


def test_a_card_that_is_withheld_goes_to_no_further_pod() -> None:
    """It stays with the pod that has it, as a device plugin takes nothing away from a container."""
    cards = Cards(UUIDS)
    cards.look([pod("holder", gpus=1)])
    cards.withhold("GPU-0")
    cards.withhold("GPU-1")
    cards.look([pod("holder", gpus=1), pod("new", gpus=2)])
    assert names(cards) == {"holder": ("GPU-0",), "new": ("GPU-2", "GPU-3")}
    assert cards.offered == ("GPU-2", "GPU-3")
    assert cards.refused == {}


def test_a_pod_for_which_there_are_too_few_cards_is_noted() -> None:
    """A kubelet would let it fail, so whoever placed it there was wrong."""
    cards = Cards(UUIDS)
    cards.withhold("GPU-3")
    cards.look([pod("wide", gpus=4)])
    assert names(cards) == {}
    assert cards.refused == {"wide": "wants 4 GPUs, 3 are free"}


def test_pods_without_gpus_hold_nothing() -> None:
    cards = Cards(UUIDS)
    cards.look([pod("exporter")])
    assert (cards.held(), cards.refused) == ({}, {})


def test_the_products_own_client_reads_what_it_says() -> None:
    """Only the node's own pods count."""
    api = FakeApi()
    for one in (pod("train", "gpu-1", gpus=1), pod("elsewhere", "gpu-2", gpus=1)):
        api.add(paths.pods("jobs"), _raw(one))
    with PlayedKubelet(api, "gpu-1", UUIDS) as kubelet:
        kubelet.withhold("GPU-3")
        answer = read_pod_resources(kubelet.socket)
        assert dict(kubelet.held()) == {("jobs", "train"): ("GPU-0",)}
    assert isinstance(answer, KubeletDevices), answer
    assert [one.id for one in answer.allocatable] == ["GPU-0", "GPU-1", "GPU-2"]
    assert [(one.namespace, one.name, [device.id for device in one.devices]) for one in answer.pods] == [
        ("jobs", "train", ["GPU-0"])
    ]


def _raw(one: Pod) -> dict[str, object]:
    raw: dict[str, object] = msgspec.to_builtins(one)
    return raw
