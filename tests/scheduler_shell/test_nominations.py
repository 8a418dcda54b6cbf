"""On which waiting pods `status.nominatedNodeName` stands after a cycle, and what a leader that begins reads there."""

from collections.abc import Mapping

import msgspec
import pytest

from controller.scheduler.model import Snapshot
from controller.scheduler.plan import Bind, Pipeline, Plan, Promise
from controller.scheduler.shell.events import Voice
from controller.scheduler.shell.memberships import Grouped, GroupView
from controller.scheduler.shell.nominations import GROUPED_WITHIN_S, Beginning, Nominations, shown
from controller.scheduler.shell.report_round import MOST_NOMINATED, Rounds
from controller.scheduler.shell.reported import Report
from controller.scheduler.shell.round_writes import Held, Moment
from kube import paths
from kube.types import Pod
from tests.fakes import EPOCH
from tests.scheduler.words import cluster, job, node, queue
from tests.scheduler_shell.report_stage import NAMESPACE, Stage
from tests.scheduler_shell.shell_words import OURS, keyed, waiting_pod

P, Q = "ns/p", "ns/q"
HERE = Promise(job="ns/g", nodes=("a",))


def pod(name: str, nominated: str = "", *, node: str = "", group: str = "g", scheduler: str = OURS) -> Pod:
    """Give a pod of ours; `node`: it is bound there."""
    made = waiting_pod(name, node=node)
    annotations = {"pod-group-name": group} if group else {}
    return msgspec.structs.replace(
        made,
        metadata=msgspec.structs.replace(made.metadata, annotations=annotations),
        spec=msgspec.structs.replace(made.spec, scheduler_name=scheduler),
        status=msgspec.structs.replace(made.status, nominated_node_name=nominated),
    )


def ending(one: Pod) -> Pod:
    when = one.metadata.creation_timestamp
    return msgspec.structs.replace(
        one, metadata=msgspec.structs.replace(one.metadata, deletion_timestamp=when)
    )


def another(one: Pod) -> Pod:
    return msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, uid="another"))


def seen(bound_to: str = "") -> Snapshot:
    """Give a snapshot in which `p` waits for us, or has a bind under way."""
    whole = job("ns/g", "q", on=[(bound_to, [0])] if bound_to else [])
    task = msgspec.structs.replace(whole.tasks[0], id=P)
    return cluster([node("a")], [queue("q")], [msgspec.structs.replace(whole, tasks=(task,))])


def report(plan: Plan, snapshot: Snapshot | None = None) -> Report:
    return Report(plan=plan, snapshot=snapshot or seen(), waiting_pods={"ns/g": (P,)})


def making_room(where: str = "a", job: str = "ns/g") -> Plan:
    return Plan(
        pipelined=(Pipeline(task=P, job=job, node=where),), promises=(Promise(job=job, nodes=(where,)),)
    )


MERELY_WAITS = Plan(pipelined=(Pipeline(task=P, job="ns/g", node="a"),))
BINDS = Plan(binds=(Bind(task=P, job="ns/g", node="a"),))


def written(nominations: Nominations, told: Report, *pods: Pod) -> dict[str, str | None]:
    """Give what is written on which pods."""
    jobs = {one.id: one for one in told.snapshot.jobs}
    return {
        one.key: one.body["status"]["nominatedNodeName"]
        for one in nominations.writes(told, jobs, keyed(pods))
    }


@pytest.mark.parametrize(
    ("plan", "found", "wanted"),
    [
        pytest.param(making_room(), pod("p"), {P: "a"}, id="room is being made for it"),
        pytest.param(making_room(), pod("p", "a"), {}, id="it says so already"),
        pytest.param(making_room("b"), pod("p", "a"), {P: "b"}, id="on another node by now"),
        pytest.param(MERELY_WAITS, pod("p"), {}, id="it merely waits for what ends anyway"),
        pytest.param(making_room(), pod("p", node="a"), {}, id="it was bound meanwhile"),
        pytest.param(making_room(), ending(pod("p")), {}, id="it is being deleted"),
        pytest.param(BINDS, pod("p"), {}, id="it is bound straight away"),
    ],
)
def test_who_is_nominated(plan: Plan, found: Pod, wanted: dict[str, str]) -> None:
    """Only on change, and only who waits for room that is made for it."""
    assert written(Nominations(OURS), report(plan), found) == wanted


@pytest.mark.parametrize(
    ("plan", "found", "wanted"),
    [
        pytest.param(Plan(), pod("p", "a"), {P: None}, id="it is promised nothing any more"),
        pytest.param(MERELY_WAITS, pod("p", "a"), {P: None}, id="by now it merely waits"),
        pytest.param(Plan(), pod("p"), {}, id="somebody took it back already"),
        pytest.param(BINDS, pod("p", "a"), {}, id="it is being bound"),
        pytest.param(
            Plan(promises=(HERE,)), pod("p", "a"), {}, id="it pauses after a failed bind, and keeps its room"
        ),
        pytest.param(
            Plan(promises=(HERE,)), pod("p", "b"), {P: None}, id="it keeps its room, which is another one"
        ),
        pytest.param(Plan(), pod("p", "a", node="a"), {}, id="it is bound, and the server left it there"),
        pytest.param(Plan(), ending(pod("p", "a")), {}, id="it is being deleted"),
        pytest.param(Plan(), another(pod("p", "a")), {}, id="it is another pod of that name"),
    ],
)
def test_when_a_nomination_is_taken_back(plan: Plan, found: Pod, wanted: dict[str, str]) -> None:
    """Where it ended without a bind."""
    nominations = Nominations(OURS)
    written(nominations, report(making_room()), pod("p"))
    assert written(nominations, report(plan), found) == wanted


def test_of_a_bind_that_is_under_way_for_long_the_nomination_stays() -> None:
    """Its volumes are being made there."""
    nominations = Nominations(OURS)
    written(nominations, report(making_room()), pod("p"))
    assert written(nominations, report(Plan(), seen(bound_to="a")), pod("p", "a")) == {}
    assert written(nominations, report(Plan()), pod("p", "a")) == {P: None}


def test_what_stood_there_at_the_beginning_is_taken_over_and_what_comes_later_is_not() -> None:
    """The last leader's is ours to take back; whoever else nominates a pod answers for it."""
    nominations = Nominations(OURS)
    theirs = pod("other", "a", scheduler="other")
    assert written(nominations, report(Plan()), pod("p", "a"), theirs) == {P: None}
    assert written(nominations, report(Plan()), pod("p"), pod("q", "a"), theirs) == {}


def test_a_write_holds_only_for_the_pod_as_it_was_read() -> None:
    """A bind that came meanwhile changed its version."""
    found = pod("p")
    told = report(making_room())
    (write,) = Nominations(OURS).writes(told, {}, keyed([found]))
    assert write.path == "/api/v1/namespaces/ns/pods/p/status"
    assert write.body["metadata"] == {"resourceVersion": found.metadata.resource_version}


@pytest.mark.parametrize(
    ("pods", "promises"),
    [
        pytest.param([pod("p", "b"), pod("q", "a")], (("ns/g", ("a", "b")),), id="a gang's nodes, sorted"),
        pytest.param(
            [pod("p", "a", group="z"), pod("q", "a", group="b")],
            (("ns/b", ("a",)), ("ns/z", ("a",))),
            id="by the names of the jobs",
        ),
        pytest.param([pod("p"), pod("q", "a")], (("ns/g", ("a",)),), id="one of two is nominated"),
        pytest.param([pod("p", "a", node="a")], (), id="a pod that is bound"),
        pytest.param([ending(pod("p", "a"))], (), id="a pod that ends"),
        pytest.param([pod("p", "a", scheduler="other")], (), id="another scheduler's pod"),
        pytest.param([pod("p", "a", group="")], (), id="a pod without a group"),
        pytest.param([pod("p"), pod("q")], (), id="nobody is nominated"),
    ],
)
def test_what_pods_promise(pods: list[Pod], promises: tuple[tuple[str, tuple[str, ...]], ...]) -> None:
    """Waiting pods of ours, by their groups."""
    assert tuple((one.job, one.nodes) for one in shown(pods, OURS)) == promises


def known(uid: str = "uid-p", problems: Mapping[str, str] = {}) -> GroupView:
    return GroupView(members={P: Grouped(uid=uid, group="ns/g")}, problems=problems)


@pytest.mark.parametrize(
    ("found", "view", "waits"),
    [
        pytest.param(pod("p", "a", group=""), GroupView(), True, id="nominated, and no group yet"),
        pytest.param(pod("p", "a", group=""), known("another"), True, id="another pod of that name had one"),
        pytest.param(pod("p", "a", group=""), known(), False, id="its group is decided"),
        pytest.param(pod("p", "a"), GroupView(), False, id="it names its group itself"),
        pytest.param(
            pod("p", "a", group=""), GroupView(problems={P: "no"}), False, id="it cannot be grouped"
        ),
        pytest.param(pod("p", group=""), GroupView(), False, id="not nominated"),
        pytest.param(pod("p", "a", group="", scheduler="other"), GroupView(), False, id="not ours"),
    ],
)
def test_whose_group_the_first_cycle_waits_for(found: Pod, view: GroupView, waits: bool) -> None:
    """Else its room is somebody else's by then."""
    why = Beginning(OURS).why_not(keyed([found]), view, 0.0)
    assert why == (f"pod {P} is nominated for a node, and its group is not known yet" if waits else None)


def test_the_first_cycle_waits_some_seconds_at_most_and_no_later_one_does() -> None:
    """A group may never be known."""
    pods, beginning = keyed([pod("p", "a", group="")]), Beginning(OURS)
    assert beginning.why_not(pods, GroupView(), 100.0)
    assert beginning.why_not(pods, GroupView(), 100.0 + GROUPED_WITHIN_S) is None
    assert beginning.why_not(pods, GroupView(), 101.0) is None


def reclaiming() -> Stage:
    """Give a cluster of four cards, all lent to a borrower, whose owner asks for them."""
    stage = Stage()
    for name, quota in (("borrower", 0), ("owner", 4)):
        stage.queue(name, gpus=quota)
    stage.group("old", queue="borrower")
    stage.group("new", queue="owner")
    stage.pod("old-0", "old", gpus=4, on="n1")
    stage.pod("new-0", "new", gpus=4)
    return stage


def nominated(stage: Stage) -> str:
    status = stage.api.read(paths.pod(NAMESPACE, "new-0"))["status"]
    return str(status.get("nominatedNodeName") or "")


def test_a_reclaim_nominates_before_all_words_and_takes_it_back() -> None:
    """By this leader or the next one. Its condition follows in the next round, since a patch holds for one version."""
    stage = reclaiming()
    plan = stage.cycle()
    assert (plan.evictions[0].task, plan.promises[0].nodes) == ("team/old-0", ("n1",))
    assert stage.round(after_s=1.0)[0] == "PATCH pods/new-0/status"
    assert nominated(stage) == "n1"
    assert "PATCH pods/new-0/status" not in stage.round(after_s=0.1)
    stage.settled(plan=plan)
    assert (nominated(stage), stage.pod_condition("new-0")["reason"]) == ("n1", "Unschedulable")
    assert not stage.reporter.failed

    stage.restart()
    stage.cycle(plan=plan)
    stage.round()
    assert nominated(stage) == "n1"
    stage.cycle(plan=Plan())
    stage.round()
    assert nominated(stage) == ""


def test_a_bind_that_comes_first_leaves_no_nomination() -> None:
    """The store had not shown it yet when the round was worked out."""
    stage = reclaiming()
    stage.cycle()
    stage.remove("old-0")
    held = stage.pods.snapshot()
    stage.bind("new-0", to="n1")
    stage.pods.replace(held.values(), "1", 0.0)
    stage.round()
    assert nominated(stage) == ""
    assert stage.api.read(paths.pod(NAMESPACE, "new-0"))["spec"]["nodeName"] == "n1"


def test_a_gang_of_thousands_lets_others_have_their_word() -> None:
    """So many in a round, and the rest in the next."""
    names = [f"p{number}" for number in range(MOST_NOMINATED + 3)]
    plan = Plan(
        pipelined=tuple(Pipeline(task=f"ns/{name}", job="ns/g", node="a") for name in names),
        promises=(HERE,),
    )
    rounds = Rounds(Voice(scheduler=OURS, instance="one"), "pool", lambda _write: True)
    moment = Moment(now=EPOCH, at=0.0, calm=True, settle_s=1.0)
    pods = keyed(map(pod, names))
    writes, due = rounds.plan(report(plan), Held(pods=pods, groups={}, queues={}), {}, moment)
    assert (len(writes), due) == (MOST_NOMINATED, 0.0)
    pods |= {write.key: pod(write.key.removeprefix("ns/"), "a") for write in writes}
    writes, _ = rounds.plan(report(plan), Held(pods=pods, groups={}, queues={}), {}, moment)
    assert len(writes) == 3
