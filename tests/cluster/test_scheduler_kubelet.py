"""The scheduler on a real kubelet, which chooses the cards: none starts on a sick one, and refused pods are no endless loop.

Agent, kubelet, containerd, the pods and the scheduler are real; the machine, its driver and NVIDIA's device plugin are
played.
"""

import secrets
import time
from collections.abc import Iterator

import pytest

from sandbox.cluster import Sandbox
from sandbox.install import install_scheduler
from sandbox.kubelet_node import KubeletNode
from tests.cluster.kubelet_stage import KubeletStage, pause, standing

GPUS = 8
TEAM = 4
FENCED = "1 node(s) had a sick GPU: Xid95UncontainedEcc"
FIRST_S = 20
SLACK_S = (
    5.0  # the pause counts from the failure that condemned the node, the last pods may be bound after it
)
STAYS_S = 6.0  # more than one look of the agent at kubelet, and several cycles
SLOW_S = 90.0  # who holds what is told once a minute


@pytest.fixture(scope="module", autouse=True)
def installed(kubelet_sandbox: Sandbox) -> None:
    install_scheduler(kubelet_sandbox)


@pytest.fixture
def stage(kubelet_sandbox: Sandbox, kubelet_node: KubeletNode) -> Iterator[KubeletStage]:
    namespace = f"test-{secrets.token_hex(4)}"
    kubelet_sandbox.create_namespace(namespace)
    with standing(kubelet_sandbox, namespace, kubelet_node) as made:
        yield made
    kubelet_sandbox.kubectl("delete", "namespace", namespace, "--wait=false")


def test_eight_pods_have_eight_gpus_and_others_follow_as_they_end(stage: KubeletStage) -> None:
    """By deletion or by themselves: kubelet refuses nobody, though what is free for us must be free for it."""
    queue = stage.queue("team", quota=GPUS)
    stage.start()
    stage.create_pods("first", queue, GPUS + 2)
    stage.until(lambda: len(stage.started("first")) == GPUS, "eight pods to start", SLOW_S)
    cards = stage.cards()
    assert sorted(cards.values()) == sorted(gpu.uuid for gpu in stage.node.gpus)
    stage.until(lambda: stage.held() == cards, "the agent to know who has which", SLOW_S)
    waiting = stage.waiting("first")
    stage.until(lambda: all("Insufficient nvidia.com/gpu" in stage.why(name) for name in waiting), "words")
    assert len(waiting) == 2

    ended = list(cards)[:3]
    stage.end(*ended)
    stage.until(lambda: len(stage.started("first")) == GPUS - 1, "those that waited to follow", SLOW_S)
    (late,) = stage.create_pods("late", queue, 1)
    stage.until(lambda: stage.started("late") == [late], "a new pod to follow")
    before, cards = cards, stage.cards()
    assert len(set(cards.values())) == len(cards) == GPUS
    assert {cards[name] for name in (*waiting, late)} == {before[name] for name in ended}

    stage.end(*cards)
    stage.create_short_job("short", queue, 2 * GPUS, seconds=3)
    job = ("get", "job", "short", "-n", stage.namespace, "-o", "jsonpath={.status.succeeded}")
    stage.until(
        lambda: stage.sandbox.kubectl(*job) == str(2 * GPUS), "sixteen short pods to end well", SLOW_S
    )
    assert stage.refused == {}


def test_no_pod_starts_on_a_sick_gpu(stage: KubeletStage) -> None:
    """While kubelet still offers it nobody comes and nobody goes; once it does not, the seven others are used again."""
    queue = stage.queue("team", quota=GPUS)
    stage.start()
    first, holder = stage.create_pods("held", queue, 2)
    stage.until(lambda: len(stage.started("held")) == 2, "two pods to start", SLOW_S)
    before = stage.cards()
    stage.until(lambda: stage.held() == before, "the agent to know who has which", SLOW_S)

    sick = before[holder]
    stage.make_ill(sick)
    stage.until(lambda: bool(stage.health().status.findings), "the agent to find it")
    late = stage.create_pods("late", queue, GPUS - 2)
    (plain,) = stage.create_pods("plain", queue, 1, gpus=0)
    stage.until(lambda: stage.started("plain") == [plain], "a pod without a GPU to start all the same")
    stage.until(
        lambda: all("sick GPU that kubelet still offers" in stage.why(name) for name in late), "words"
    )
    time.sleep(STAYS_S)
    assert stage.allocatable() == str(GPUS)
    assert stage.parts()[sick].offered is True
    assert (stage.started("late"), stage.started("held")) == ([], [first, holder])

    stage.fence(sick)
    stage.node.wait_allocatable("nvidia.com/gpu", GPUS - 1)
    stage.until(lambda: len(stage.started("late")) == GPUS - 2, "the other seven to be used", SLOW_S)
    (last,) = stage.create_pods("last", queue, 1)
    stage.until(
        lambda: FENCED in stage.why(last), "one more to find too few, and what would have been enough"
    )
    cards = stage.cards()
    assert len(set(cards.values())) == len(cards) == GPUS
    assert [name for name, uuid in cards.items() if uuid == sick] == [holder]

    # The agent says for a while yet that a pod of the holder's name has the sick one: its successor has another.
    stage.end(last, holder, late[0])
    stage.create_pod(holder, queue, containers=[pause(1)])
    stage.until(lambda: holder in stage.started("held"), "the successor to start on a healthy one", SLOW_S)
    stage.create_pod(last, queue, containers=[pause(1)])
    stage.until(lambda: stage.parts()[sick].held is False, "the sick one to be held by nobody", SLOW_S)
    time.sleep(STAYS_S)
    assert stage.waiting("last") == [last]
    assert FENCED in stage.why(last)
    stage.end(late[1])
    stage.until(lambda: stage.started("last") == [last], "the last one to follow on a healthy one", SLOW_S)
    cards = stage.cards()
    assert len(set(cards.values())) == len(cards) == GPUS - 1
    assert sick not in cards.values()
    stage.until(lambda: stage.held() == cards, "kubelet to say the same", SLOW_S)
    assert stage.parts()[sick].offered is False
    assert {name for name, uuid in stage.given if uuid == sick} == {holder}
    assert (stage.refused, stage.disrupted) == ({}, {})


def test_pods_that_kubelet_refuses_end_in_a_pause_and_not_in_a_loop(stage: KubeletStage) -> None:
    """ReplicaSets replace each at once, and the node offers eight GPUs: one pod for each, then one after each pause.

    It can be a second one for each: the workload whose refusals are known first pauses for a second only, and the other's
    may come in later than that on a slow machine.
    """
    queue = stage.queue("team", quota=GPUS)
    stage.break_starts()
    stage.start(graces={"start_failures": f"{FIRST_S}s"})
    for name in ("a", "b"):
        stage.create_replicas(name, queue, TEAM)
    stage.until(lambda: _says(stage, "True", "it takes no new pod until"), "the node to be put aside", SLOW_S)
    time.sleep(STAYS_S)
    first = dict(stage.refused)
    print(f"{len(first)} pods were refused before the node was put aside")
    assert set(first.values()) == {"UnexpectedAdmissionError"}
    assert len(first) <= 2 * GPUS
    waiting = [*stage.waiting("a"), *stage.waiting("b")]
    assert len(waiting) == 2 * TEAM
    stage.until(lambda: all("starts failed there" in stage.why(name) for name in waiting), "words")

    stage.until(lambda: _says(stage, "True", "2. time in a row"), "the probe to be refused, too", SLOW_S)
    time.sleep(STAYS_S)
    (probe,) = stage.refused.keys() - first.keys()
    paused_s = stage.bound_at[probe] - max(stage.bound_at[uid] for uid in first)
    print(f"the probe was bound {paused_s:.1f} s after the others")
    assert paused_s > FIRST_S - SLACK_S

    stage.mend_starts()
    stage.until(lambda: bool(stage.started("")), "a probe to start", 4 * FIRST_S)
    stage.until(lambda: len(stage.started("")) == 2 * TEAM, "all to start", SLOW_S)
    stage.until(lambda: _says(stage, "False", ""), "the node to be as any other")
    cards = stage.cards()
    assert len(set(cards.values())) == len(cards) == GPUS
    assert stage.refused.keys() == {*first, probe}
    assert stage.allocatable() == str(GPUS)


def _says(stage: KubeletStage, status: str, words: str) -> bool:
    found = stage.condition()
    return found is not None and found.status == status and words in found.message
