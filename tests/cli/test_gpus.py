"""`gpus`: one row a GPU, what is ill, who holds it, and what is left."""

from typing import Any

import pytest

from kube import paths
from tests.cli.objects import PUT_ASIDE, pods_fail
from tests.cli.scheduling_words import Pool, fault, health, lab, node, pod, queue, running

FENCED = {"offered": False}
ONE_POD = "3 pods of 2 workloads failed to start (StartError); it takes one pod at a time until one starts"
FOUR_PODS = ONE_POD.replace("one pod", "4 pods")
HELD = {"held": True, "heldBy": "team/one"}

ROWS = [
    pytest.param(
        health("n1"),
        "n1 0 GPU-n1-0 NVIDIA-H200 143000 MiB Healthy offered yes - -",
        id="a healthy GPU is free",
    ),
    pytest.param(
        health("n1", fault(0), gpu0=FENCED),
        "n1 0 GPU-n1-0 NVIDIA-H200 143000 MiB Sick (Xid48DoubleBitEcc) fenced no - -",
        id="a sick GPU that kubelet gives to nobody",
    ),
    pytest.param(
        health("n1", fault(1)),
        "n1 0 GPU-n1-0 NVIDIA-H200 143000 MiB Healthy offered no - no-new-gpu",
        id="a sick GPU that kubelet still offers shuts its neighbours",
    ),
    pytest.param(
        health("n1", fault(1, "no-multi-gpu", "NvLinkDown")),
        "n1 0 GPU-n1-0 NVIDIA-H200 143000 MiB Healthy offered yes - no-multi-gpu",
        id="an effect of the node leaves single GPUs usable",
    ),
    pytest.param(
        health("n1", fault(0, "prefer-not", "Xid63RowRemapPending")),
        "n1 0 GPU-n1-0 NVIDIA-H200 143000 MiB Healthy, taken last (Xid63RowRemapPending) offered yes - -",
        id="a GPU that is taken last",
    ),
    pytest.param(
        None, "n1 0 n1/0 NVIDIA-H200 143771 MiB Healthy? offered yes - -", id="a node that nobody reported"
    ),
]


@pytest.mark.parametrize(("reported", "row"), ROWS)
def test_rows(reported: dict[str, Any] | None, row: str) -> None:
    """What is known of a GPU stands in its row."""
    answer = Pool().put(nodes=[node("n1")], healths=[reported] if reported else []).typed("gpus")
    assert (answer.code, answer.err) == (0, "")
    assert answer.row("n1     0 ") == row


def test_holders_are_marked_where_their_card_is_a_guess() -> None:
    """Kubelet's word names the card of one pod; the other is counted on a free one."""
    one, its = running("one", "alpha", 1)
    two, theirs = running("two", "alpha", 1)
    answer = lab(one, two, groups=[its, theirs], healths=[health("n1", gpu2=HELD), health("n2")]).typed(
        "gpus", "n1"
    )
    held = {line.split()[1]: line.split()[-2] for line in answer.out.splitlines()[1:5]}
    assert held == {"0": "~team/two", "1": "-", "2": "team/one", "3": "-"}
    assert answer.row("4 GPUs") == "4 GPUs: 4 usable, 0 sick, 0 unknown; 2 free"
    assert "~ = " in answer.out


def test_a_shared_gpu_shows_what_is_left() -> None:
    """Half of a card is free for others."""
    half = pod("half", 0, on="n1", annotations={"gpu-fraction": "0.5"}, labels={"runai-gpu-group": "g"})
    answer = lab(half).typed("gpus", "n1")
    assert answer.row("n1     0 ").endswith("offered 500m ~team/half (500m) -")
    assert (
        answer.row("4 GPUs")
        == "4 GPUs: 4 usable, 0 sick, 0 unknown; 3 free, and 500 milli-GPU of shared ones"
    )


def test_totals_count_all_and_sick_filters() -> None:
    """--sick shows fewer rows, and the same totals."""
    pool = lab(healths=[health("n1", fault(3), gpu3=FENCED), health("n2")])
    answer = pool.typed("gpus", "--sick")
    assert [line.split()[:2] for line in answer.out.splitlines() if line.startswith("n")] == [["n1", "3"]]
    assert answer.row("8 GPUs") == "8 GPUs: 7 usable, 1 sick, 0 unknown; 7 free"
    assert pool.typed("gpus", "n2", "--sick").out.startswith("No GPU is like that here.")


def test_a_silent_agent_leaves_its_gpus_unknown() -> None:
    """They stay in the total and nobody gets them."""
    pool = lab()
    pool.api.remove(f"{paths.leases('nodemend-system')}/n1")
    answer = pool.typed("gpus", "n1")
    assert answer.row("4 GPUs") == "4 GPUs: 0 usable, 0 sick, 4 unknown; 0 free"
    assert "Unknown (GpuXidError: AgentSilent)" in answer.row("n1     0 ")


def test_why_a_node_takes_less_is_told_once() -> None:
    """The effect stands in the rows, the reason beneath them."""
    pool = lab(nodes=[node("n1", spec={"unschedulable": True}), node("n2")])
    answer = pool.typed("gpus")
    assert answer.row("n1     node-out") == "n1 node-out cordoned"
    assert answer.row("8 GPUs") == "8 GPUs: 4 usable, 0 sick, 0 unknown; 4 free"


@pytest.mark.parametrize(
    ("message", "status", "effect", "free"),
    [
        (PUT_ASIDE, "True", "n1 closed node(s) were put aside since starts failed there again and again", 4),
        (ONE_POD, "True", "n1 few-pods-at-a-time node(s) took few pods at a time since starts failed", 8),
        (FOUR_PODS, "True", "n1 few-pods-at-a-time node(s) took few pods at a time since starts failed", 8),
        ("pods start on this node, or were not tried for long", "False", "", 8),
    ],
    ids=["put aside", "on probation", "on probation for long", "as any other again"],
)
def test_a_node_on_which_pods_fail_to_start(message: str, status: str, effect: str, free: int) -> None:
    """The scheduler says so on the Node, so its GPUs are not shown as free for anybody."""
    pool = lab(nodes=[pods_fail(node("n1"), message, status), node("n2")])
    answer = pool.typed("gpus")
    said = " ".join(answer.out.split())
    assert (effect in said, "starts failed" in said) == (True, bool(effect))
    assert answer.row("8 GPUs") == f"8 GPUs: {free} usable, 0 sick, 0 unknown; {free} free"


def test_it_needs_neither_queues_nor_an_agent() -> None:
    """GPUs are shown on a cluster where nothing of ours is installed."""
    pool = (
        Pool()
        .put(nodes=[node("n1", 2)])
        .without("queues", "podgroups", "nodehealths", "leases", "resourceslices")
    )
    answer = pool.typed("gpus")
    assert answer.code == 0
    assert answer.row("2 GPUs") == "2 GPUs: 2 usable, 0 sick, 0 unknown; 2 free"
    assert "NOT INSTALLED: nodehealths.nodemend.dev" in answer.out


def test_gpus_that_only_claims_are_given() -> None:
    """A DRA driver's devices are rows too, held by whom their claim is reserved for."""
    pool = Pool().put(nodes=[node("n1", 0)])
    pool.api.add(
        paths.collection("resource.k8s.io", "v1", "deviceclasses"),
        {
            "metadata": {"name": "gpu.nvidia.com"},
            "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}]},
        },
    )
    pool.api.add(
        paths.collection("resource.k8s.io", "v1", "resourceslices"),
        {
            "metadata": {"name": "s1"},
            "spec": {
                "driver": "gpu.nvidia.com",
                "nodeName": "n1",
                "pool": {"name": "n1", "generation": 1},
                "devices": [{"name": "gpu-0", "attributes": {"uuid": {"string": "GPU-abc"}}}],
            },
        },
    )
    answer = pool.typed("gpus", "--json").json()
    assert [(row["node"], row["uuid"], row["free_milli"]) for row in answer["gpus"]] == [
        ("n1", "GPU-abc", 1000)
    ]


def test_nodes_of_every_pool_are_shown_unless_one_is_named() -> None:
    """A GPU is a GPU, whoever plans it."""
    pool = lab(nodes=[node("n1"), node("n2", labels={"kai.scheduler/node-pool": "west"})])
    assert pool.typed("gpus").row("8 GPUs").startswith("8 GPUs: 8 usable")
    assert pool.typed("gpus", "--pool", "west").row("4 GPUs").startswith("4 GPUs: 4 usable")


def test_an_unknown_node() -> None:
    """The nearest name is offered, exit code 2."""
    answer = lab(queues=(queue("q"),)).typed("gpus", "n11")
    assert (answer.code, answer.out) == (2, "")
    assert "no node is named n11 (is it n1" in answer.err
