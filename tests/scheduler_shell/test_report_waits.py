"""What is told of jobs that wait: on their pods, their group, in Events; and that it is told once."""

from typing import Any

import pytest

from controller.scheduler.plan import Plan, Wait
from controller.scheduler.shell.steady_words import SteadyWords, signature_of
from kube import paths
from tests.scheduler_shell.report_stage import NAMESPACE, Stage, said


def full(pods: int = 1, least: int = 1) -> Stage:
    """Give a cluster whose four cards are taken, with a job that waits."""
    stage = Stage()
    stage.queue()
    stage.group("old")
    stage.pod("old-0", "old", gpus=4, on="n1")
    stage.group("new", least)
    for index in range(pods):
        stage.pod(f"new-{index}", "new")
    return stage


def test_a_pod_that_finds_no_room_says_so_as_kube_scheduler_would() -> None:
    """Reason Unschedulable is what cluster-autoscaler looks for."""
    stage = full()
    stage.settled()
    held = stage.pod_condition("new-0")
    assert (held["status"], held["reason"]) == ("False", "Unschedulable")
    assert held["message"] == "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    assert held["lastTransitionTime"].endswith("Z")


def test_a_job_whose_queue_cannot_be_read_says_what_is_wrong_with_it() -> None:
    """It is not left to search for a queue that is there."""
    stage = Stage()
    stage.queue("minus", gpus=-5)
    stage.group("new", queue="minus")
    stage.pod("new-0", "new")
    stage.settled()
    words = (
        'queue "minus" cannot be read: spec.resources.gpu.quota is -5: must be 0 or more, or -1 for no bound'
    )
    assert stage.pod_condition("new-0")["message"] == words
    assert stage.condition("new")["reasons"][0]["message"] == f"1 {words}"


def test_a_group_says_so_in_kais_shape() -> None:
    """One condition for its node pool, with the counted reasons and the number of the transition."""
    stage = full()
    stage.settled()
    held = stage.condition("new")
    assert {name: held[name] for name in ("type", "nodePool", "status", "reason", "transitionID")} == {
        "type": "UnschedulableOnNodePool",
        "nodePool": "default",
        "status": "True",
        "reason": "Unschedulable",
        "transitionID": "1",
    }
    assert held["reasons"] == [{"reason": "PodSchedulingErrors", "message": "1 Insufficient nvidia.com/gpu"}]


def test_all_pods_of_a_gang_share_one_text() -> None:
    """And the job is told of by two Events: one about its group, one about one of its pods."""
    stage = full(pods=3, least=3)
    stage.settled()
    assert len({stage.pod_condition(f"new-{index}")["message"] for index in range(3)}) == 1
    assert sorted(map(said, stage.events())) == [
        "Pod new-0: Warning FailedScheduling",
        "PodGroup new: Warning FailedScheduling",
    ]


def test_a_single_pod_is_told_of_by_one_event() -> None:
    """Its group is bookkeeping."""
    stage = full()
    stage.settled()
    assert list(map(said, stage.events())) == ["Pod new-0: Warning FailedScheduling"]


def test_what_stands_there_already_is_not_written_again() -> None:
    """Not in the same cycle, not in later ones; and the next leader's Events are those that are there."""
    stage = full(pods=3, least=3)
    assert len(stage.settled()) > 5
    assert stage.settled() == []
    stage.restart()
    assert set(stage.settled()) == {"CREATE events"}
    assert len(stage.events()) == 2


def test_within_a_burst_nobody_is_told() -> None:
    """While binds are under way a job is given ten seconds, and one in peace: most find their place before."""
    stage = full()
    stage.calm = False
    stage.cycle()
    stage.round()
    stage.round(after_s=5.0)
    assert stage.pod_condition("new-0") == {}
    stage.calm = True
    stage.round()
    assert stage.pod_condition("new-0") != {}


def test_a_group_that_was_placed_says_nothing_any_more() -> None:
    """All its conditions go, as in KAI."""
    stage = full()
    stage.settled()
    stage.remove("old-0")
    stage.bind("new-0", "n1")
    assert stage.settled() != []
    assert "schedulingConditions" not in stage.group_raw("new")["status"]


def test_while_its_bind_is_under_way_a_group_goes_on_saying_why_it_waited() -> None:
    """A bind may fail."""
    stage = full()
    stage.settled()
    stage.remove("old-0")
    stage.settled()
    assert stage.condition("new")["status"] == "True"


def test_conditions_of_other_node_pools_stay() -> None:
    """As another scheduler wrote them, in KAI's order: the newest stands last."""
    stage = full()
    foreign = {
        "type": "UnschedulableOnNodePool",
        "nodePool": "h100",
        "status": "True",
        "transitionID": "4",
        "reasons": [{"reason": "OverLimit", "details": {"queueDetails": {"name": "research"}}}],
    }
    stage.api.remove(paths.pod_group(NAMESPACE, "new"))
    stage.api.add(
        paths.pod_groups(NAMESPACE),
        {
            "metadata": {"name": "new"},
            "spec": {"queue": "research", "minMember": 1},
            "status": {"schedulingConditions": [foreign]},
        },
    )
    stage.follow()
    stage.settled()
    first, last = stage.group_raw("new")["status"]["schedulingConditions"]
    assert first == foreign
    assert (last["nodePool"], last["transitionID"]) == ("default", "5")


@pytest.mark.parametrize(
    ("pods", "tells"),
    [
        pytest.param(1, False, id="not that its pods are not all there, which would make it give up"),
        pytest.param(2, True, id="that a try was in vain"),
    ],
)
def test_what_a_group_of_one_try_is_told(pods: int, tells: bool) -> None:
    """With schedulingBackoff 1 the condition ends all tries."""
    stage = full(pods=0)
    stage.group("once", least=2, schedulingBackoff=1)
    for index in range(pods):
        stage.pod(f"once-{index}", "once")
    stage.settled()
    assert ("schedulingConditions" in stage.group_raw("once").get("status", {})) is tells
    before = stage.group_raw("once").get("status")
    stage.settled()
    assert stage.group_raw("once").get("status") == before


def test_a_group_may_ask_that_its_pods_are_not_marked() -> None:
    """spec.markUnschedulable, as in KAI."""
    stage = full(pods=0)
    stage.group("quiet", markUnschedulable=False)
    stage.pod("quiet-0", "quiet")
    stage.settled()
    assert stage.pod_condition("quiet-0") == {}
    assert stage.condition("quiet")["status"] == "True"


def test_a_pod_that_was_bound_meanwhile_never_says_that_it_was_not() -> None:
    """The patch holds only for the pod as it was read."""
    stage = full()
    stage.cycle()
    stage.round()
    pod = stage.api.read(paths.pod(NAMESPACE, "new-0"))
    stage.api.remove(paths.pod(NAMESPACE, "new-0"))
    stage.api.add(paths.pods(NAMESPACE), {**pod, "spec": {**pod["spec"], "nodeName": "n1"}})
    asked = stage.round(after_s=2.0)
    assert "PATCH pods/new-0/status" in asked
    assert stage.pod_condition("new-0") == {}
    assert stage.settled() != ["PATCH pods/new-0/status"]


def test_a_gated_pod_keeps_the_servers_own_condition() -> None:
    """SchedulingGated is not ours to change."""
    stage = full(pods=0)
    stage.group("gated")
    stage.pod("gated-0", "gated", schedulingGates=[{"name": "quota"}])
    stage.settled()
    assert stage.pod_condition("gated-0") == {}


def test_the_shells_own_reason_goes_first() -> None:
    """Say, that fractions are off."""
    stage = full()
    stage.settled(extra={"team/new": "shares of a GPU are off: --enable-fractions"})
    assert stage.pod_condition("new-0")["message"] == "shares of a GPU are off: --enable-fractions"


def test_who_has_no_group_or_cannot_be_read_says_why() -> None:
    """The others are told of as ever."""
    stage = full()
    stage.pod("stray", "")
    stage.group("odd", stalenessGracePeriod="never")
    stage.pod("odd-0", "odd")
    stage.settled(group_problems={"team/stray": "its owner cannot be read: not found"})
    assert stage.pod_condition("stray")["message"] == "its owner cannot be read: not found"
    assert stage.pod_condition("odd-0")["message"].startswith("the PodGroup cannot be read: spec.staleness")
    assert stage.condition("odd")["message"].startswith(
        "the PodGroup cannot be read: spec.stalenessGracePeriod"
    )
    assert stage.pod_condition("new-0")["message"].startswith("0/1 nodes are available")
    told = {one["regarding"]["name"]: one["note"] for one in stage.events()}
    assert told["stray"] == "its owner cannot be read: not found"
    assert told["odd-0"].startswith("the PodGroup cannot be read: spec.staleness")


def test_what_holds_for_long_is_told_again_when_the_server_forgot_it() -> None:
    """An Event lasts an hour; who looks in the night finds one, and it costs one request an hour."""
    stage = full()
    stage.pod("stray", "")
    problems = {"team/stray": "its owner cannot be read: not found"}
    stage.settled(group_problems=problems)
    before = {one["metadata"]["name"] for one in stage.events()}
    assert "events" not in " ".join(stage.round(after_s=3000.0))
    for name in before:
        stage.api.remove(f"{paths.events(NAMESPACE)}/{name}")
    asked = [one for _ in range(5) for one in stage.round(after_s=700.0)]
    assert asked == ["CREATE events"] * len(before)
    assert {one["metadata"]["name"] for one in stage.events()} == before


def test_a_tenants_text_makes_no_line_of_its_own() -> None:
    """A line break or an escape sequence in an annotation would forge a row, or repaint the screen."""
    stage = full()
    stage.pod("stray", "")
    stage.settled(
        group_problems={"team/stray": "PodGroup a\x1b[31m\npod/x Running\u202e, which is not there"}
    )
    words = "PodGroup a [31m pod/x Running , which is not there"
    assert stage.pod_condition("stray")["message"] == words
    assert [one["note"] for one in stage.events() if one["regarding"]["name"] == "stray"] == [words]


def test_the_name_of_an_event_is_one_that_the_server_takes() -> None:
    """However a long name of a pod is cut."""
    stage = Stage()
    name = "a" * 219 + "-b"
    stage.pod(name, "")
    stage.settled(group_problems={f"team/{name}": "its owner cannot be read: not found"})
    (event,) = stage.events()
    assert "-." not in event["metadata"]["name"]


NODES = "0/{n} nodes are available: {a} Insufficient nvidia.com/gpu, {b} node(s) had untolerated taint {{key: x}}."


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        pytest.param(NODES.format(n=8, a=6, b=2), NODES.format(n=8, a=5, b=3), True, id="other numbers"),
        pytest.param(
            "0/8 nodes are available: 5 Unknown, 3 GpuXidError.",
            "0/8 nodes are available: 4 GpuXidError, 4 Unknown.",
            True,
            id="another order, since the most frequent goes first",
        ),
        pytest.param(
            "0/8 nodes are available: 8 Unknown.",
            "0/8 nodes are available: 7 Unknown, 1 GpuXidError.",
            False,
            id="another reason",
        ),
    ],
)
def test_which_words_mean_the_same(one: str, other: str, same: bool) -> None:
    """Numbers and their order are no news."""
    assert (signature_of(one) == signature_of(other)) is same


def wait(message: str, code: str = "PodSchedulingErrors") -> Any:
    """Give the report of a plan in which one job waits."""
    stage = Stage()
    return stage.report(plan=Plan(waits=(Wait(job="team/new", code=code, message=message),)))


@pytest.mark.parametrize(
    ("message", "after_s", "told"),
    [
        pytest.param("5 of 8", 29.0, "6 of 8", id="numbers stand for half a minute"),
        pytest.param("5 of 8", 31.0, "5 of 8", id="and are right after that"),
        pytest.param(
            "no queue", 4.0, "6 of 8", id="other words for a few seconds, or two would take turns for ever"
        ),
        pytest.param("no queue", 6.0, "no queue", id="and then they are told"),
        pytest.param("no queue", 0.5, "no queue", id="nobody was told of words that stood for a moment"),
    ],
)
def test_words_stand_still(message: str, after_s: float, told: str) -> None:
    """Every cycle counts anew, and not every count is worth a write."""
    words = SteadyWords()
    words.update(wait("6 of 8"), 100.0)
    assert words.update(wait(message), 100.0 + after_s)["team/new"].message == told
