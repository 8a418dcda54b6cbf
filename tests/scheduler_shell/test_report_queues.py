"""What queues say of themselves: numbers, children, and what is wrong with them."""

from typing import Any

import pytest

from controller.scheduler.plan import Plan, Share
from controller.scheduler.shell import queue_conditions, resource_lists
from kube import paths
from tests.scheduler import words
from tests.scheduler.kube_words import fault, health, node
from tests.scheduler_shell.report_stage import Stage


def status(stage: Stage, name: str = "research") -> dict[str, Any]:
    """Give the status of a queue as it is stored."""
    return dict(stage.api.read(f"{paths.queues()}/{name}").get("status", {}))


def test_what_a_queue_holds_and_asks_for() -> None:
    """Quantities as KAI's controller writes them: cores, bytes, GPUs."""
    stage = Stage()
    stage.queue()
    stage.group("a")
    stage.pod("a-0", "a", gpus=3, on="n1")
    stage.pod("a-1", "a", gpus=4)
    stage.settled()
    assert status(stage) == {
        "allocated": {"nvidia.com/gpu": "3", "cpu": "500m", "memory": "1073741824"},
        "allocatedNonPreemptible": {"nvidia.com/gpu": "0", "cpu": "0", "memory": "0"},
        "requested": {"nvidia.com/gpu": "7", "cpu": "1", "memory": "2147483648"},
    }
    assert [one for one in stage.settled() if "queues" in one] == []


@pytest.mark.parametrize(
    ("held", "change"),
    [
        pytest.param({"cpu": "1", "memory": "1Gi"}, {}, id="the same, as KAI writes it"),
        pytest.param({"cpu": 1, "memory": "1073741824"}, {}, id="a number"),
        pytest.param({"cpu": "1", "memory": "1Gi", "pods": "0"}, {}, id="nothing of another resource"),
        pytest.param(
            {"cpu": "1", "memory": "1Gi", "pods": "2"}, {"pods": None}, id="some of another resource"
        ),
        pytest.param({"cpu": "1500m", "memory": "1Gi"}, {"cpu": "1000m"}, id="more"),
        pytest.param(
            {"memory": "much"}, {"cpu": "1000m", "memory": "1073741824"}, id="absent, and no quantity"
        ),
    ],
)
def test_amounts_that_mean_the_same_are_not_written_over(held: Any, change: Any) -> None:
    """Two writers would take turns for ever."""
    assert resource_lists.change(held, {"cpu": "1000m", "memory": "1073741824"}) == change


def test_children_are_named_for_those_who_want_to_delete_a_queue() -> None:
    """And not any more when they are gone."""
    stage = Stage()
    for name, parent in (("top", ""), ("b", "top"), ("a", "top")):
        stage.queue(name, parent)
    stage.settled()
    assert status(stage, "top")["childQueues"] == ["a", "b"]
    stage.api.remove(f"{paths.queues()}/a")
    stage.api.remove(f"{paths.queues()}/b")
    stage.follow()
    stage.settled()
    assert "childQueues" not in status(stage, "top")


def test_a_queue_without_its_parent() -> None:
    """Orphan, KAI's own type; it goes when the parent comes, and the others have their numbers all the while."""
    stage = Stage()
    stage.queue()
    stage.queue("lost", "nowhere")
    stage.settled()
    held = stage.queue_conditions("lost")["Orphan"]
    assert (held["status"], held["reason"]) == ("True", "ParentNotFound")
    assert held["message"] == 'spec.parentQueue is "nowhere", and there is no such Queue'
    assert status(stage)["allocated"]["nvidia.com/gpu"] == "0"
    stage.queue("nowhere")
    stage.settled()
    assert stage.queue_conditions("lost")["Orphan"]["status"] == "False"


@pytest.mark.parametrize(
    ("parents", "said"),
    [
        pytest.param({"a": "a"}, {"a": "a -> a is a loop;"}, id="its own parent"),
        pytest.param(
            {"a": "b", "b": "a"},
            {"a": "a -> b -> a is a loop;", "b": "b -> a -> b is a loop;"},
            id="two queues",
        ),
        pytest.param(
            {"a": "b", "b": "a", "below": "b"},
            {"below": 'b -> a -> b is a loop, below which "below" hangs;'},
            id="and one below them",
        ),
    ],
)
def test_parents_in_a_loop_are_named(parents: dict[str, str], said: dict[str, str]) -> None:
    """The whole loop, so that one can see where to cut it. The others are served."""
    stage = Stage()
    stage.queue()
    for name, parent in parents.items():
        stage.queue(name, parent)
    stage.group("a")
    stage.pod("a-0", "a")
    assert [bind.task for bind in stage.cycle().binds] == ["team/a-0"]
    stage.settled()
    for name, message in said.items():
        held = stage.queue_conditions(name)["ParentLoop"]
        assert (held["status"], held["message"].partition(" one of them")[0]) == (
            "True",
            f"spec.parentQueue: {message}",
        )
    assert status(stage)["requested"]["nvidia.com/gpu"] == "1"


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        pytest.param(
            {"gpu": {"quota": -5}}, "spec.resources.gpu.quota is -5: must be 0 or more, or -1", id="a quota"
        ),
        pytest.param({"cpu": {"limit": -2}}, "spec.resources.cpu.limit is -2", id="a limit"),
        pytest.param({"gpu": {"overQuotaWeight": -1}}, "overQuotaWeight is -1", id="a weight"),
    ],
)
def test_a_queue_that_cannot_be_read_says_what_would_be_right(
    resources: dict[str, Any], message: str
) -> None:
    """Its children hang on nothing; all others are served as if it were not there."""
    stage = Stage()
    stage.queue()
    stage.queue("odd", **resources)
    stage.queue("child", "odd")
    stage.settled()
    held = stage.queue_conditions("odd")["Invalid"]
    assert held["status"] == "True"
    assert message in held["message"]
    assert stage.queue_conditions("child")["Orphan"]["reason"] == "ParentNotUsable"
    assert stage.queue_conditions("research") == {}
    assert "allocated" in status(stage)


def test_more_than_its_quota() -> None:
    """KAI's definition: one resource is enough. The numbers stand beside it."""
    stage = Stage()
    stage.queue(gpus=1)
    stage.group("a")
    stage.pod("a-0", "a", gpus=3, on="n1")
    stage.settled()
    held = stage.queue_conditions("research")["OverQuota"]
    assert held["message"].startswith("it holds more GPU than its quota")
    stage.remove("a-0")
    stage.settled()
    assert stage.queue_conditions("research")["OverQuota"]["status"] == "False"


def test_a_shortage_says_how_much_and_what_is_gone() -> None:
    """Two quotas of 4 on 8 cards, of which two fall ill and one node is cordoned by its health."""
    snapshot = words.cluster(
        [
            words.node("n1", 4, sick={0: "Xid79FallenOffBus", 1: "Xid48DoubleBitEcc"}),
            words.node("n2", 4, closed="quarantined", out=True),
            words.node("n3", 4),
        ],
        [words.queue("a", 6), words.queue("b", 6), words.queue("idle", 2)],
        [words.job("a-job", "a", pods=6, least=1), words.job("b-job", "b", pods=6, least=1)],
    )
    found = queue_conditions.shortages(words.decide(snapshot), snapshot)
    assert sorted(found) == ["a", "b"]
    assert found["a"].message == (
        "its share is 3 GPUs of a quota of 6 GPUs: the pool has 6 GPUs where quotas add up to 14 GPUs; out of service:"
        " node n2 (4 GPUs, quarantined), GPU-n1-0 of node n1 (Xid79FallenOffBus), GPU-n1-1 of node n1"
        " (Xid48DoubleBitEcc)"
    )


def test_a_shortage_of_a_department_is_its_teams() -> None:
    """A team is told what its department may use."""
    snapshot = words.cluster(
        [words.node("n1", 4)],
        [words.queue("top", 8), words.queue("team", 8, parent="top"), words.queue("other", 0)],
        [words.job("job", "team", pods=8, least=1)],
    )
    found = queue_conditions.shortages(words.decide(snapshot), snapshot)
    assert sorted(found) == ["team", "top"]
    assert 'queue "top" may use 4 GPUs where quotas add up to 8 GPUs' in found["team"].message


@pytest.mark.parametrize(
    ("share", "limit"),
    [
        pytest.param(
            Share(queue="a", deserved=(4000, -1, -1), fair_share=(2000, 0, 0), requested=(2000, 0, 0)),
            -1,
            id="it asks for no more",
        ),
        pytest.param(
            Share(queue="a", deserved=(4000, -1, -1), fair_share=(2000, 0, 0), requested=(4000, 0, 0)),
            2,
            id="it is allowed no more",
        ),
        pytest.param(
            Share(queue="a", deserved=(-1, -1, -1), fair_share=(2000, 0, 0), requested=(4000, 0, 0)),
            -1,
            id="it is promised nothing by number",
        ),
    ],
)
def test_what_is_no_shortage(share: Share, limit: float) -> None:
    """Only a quota that is asked for and cannot be given is one."""
    snapshot = words.cluster([], [words.queue("a", 4, limit=limit)], [])
    assert queue_conditions.shortages(Plan(shares=(share,)), snapshot) == {}


def test_an_ill_card_shows_in_its_queue_and_goes_with_it() -> None:
    """From a finding of the agent to the sentence, in the next cycle."""
    stage = Stage(node("n1", 4))
    stage.queue(gpus=4)
    stage.group("a")
    for index in range(4):
        stage.pod(f"a-{index}", "a")
    stage.healths = (health(fault("part-out", gpu=3), gpu3={"offered": False}),)
    stage.settled()
    held = stage.queue_conditions("research")["Shortage"]
    assert held["status"] == "True"
    assert held["message"].endswith("; out of service: GPU-3 of node n1 (Xid48DoubleBitEcc)")
    stage.healths = (health(),)
    stage.settled()
    assert stage.queue_conditions("research")["Shortage"]["status"] == "False"


def test_conditions_of_others_stay_as_they_are() -> None:
    """Whole, and in their places."""
    stage = Stage()
    foreign = {"type": "Frozen", "status": "True", "reason": "Audit", "lastProbeTime": "2026-01-01T00:00:00Z"}
    stage.queue("lost", "nowhere")
    raw = stage.api.read(f"{paths.queues()}/lost")
    stage.api.remove(f"{paths.queues()}/lost")
    stage.api.add(paths.queues(), {**raw, "status": {"conditions": [foreign]}})
    stage.follow()
    stage.settled()
    found = stage.queue_conditions("lost")
    assert found["Frozen"] == foreign
    assert list(found) == ["Frozen", "Orphan"]


def test_numbers_wait_and_what_is_wrong_does_not() -> None:
    """A storm of pods is no storm of writes here."""
    stage = Stage()
    stage.queue()
    stage.group("a", 1)
    stage.cycle()
    assert stage.round() == ["PATCH queues/research/status"]
    for index in range(4):
        stage.pod(f"a-{index}", "a", on="n1")
        stage.cycle()
        assert [one for one in stage.round(after_s=0.5) if "queues" in one] == []
    stage.queue("lost", "nowhere")
    stage.cycle()
    assert "PATCH queues/lost/status" in stage.round(after_s=0.5)
    assert "PATCH queues/research/status" in stage.round(after_s=3.0)


def test_amounts_of_another_controller_are_replaced_whole() -> None:
    """What it counted and we do not is taken off."""
    stage = Stage()
    stage.queue()
    raw = stage.api.read(f"{paths.queues()}/research")
    stage.api.remove(f"{paths.queues()}/research")
    allocated = {"cpu": "8", "rdma/hca": 2}
    stage.api.add(paths.queues(), {**raw, "status": {"allocated": allocated}})
    stage.follow()
    stage.settled()
    assert status(stage)["allocated"] == {"nvidia.com/gpu": "0", "cpu": "0", "memory": "0"}
