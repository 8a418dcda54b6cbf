"""Inter-pod affinity and anti-affinity, and topology spread: what other pods refuse."""

from typing import Any

import msgspec
import pytest

from controller.scheduler import fit
from controller.scheduler.cycle import open_session
from controller.scheduler.model import Job, TaskStatus
from controller.scheduler.pod_affinity import AFFINITY_REFUSED, ANTI_AFFINITY_REFUSED, EXISTING_REFUSED
from controller.scheduler.requests import Constraints, Expression, NodeTerm, PodTerm, Spread, Taint
from controller.scheduler.rules import COMPATIBLE, DEFAULT, Rules
from controller.scheduler.session import Session
from controller.scheduler.spread import LABEL_REFUSED, SPREAD_REFUSED
from tests.scheduler import words

ZONE, HOST = "zone", "host"
WEB = (Expression(key="app", operator="In", values=("web",)),)
BLUE = (Expression(key="colour", operator="In", values=("blue",)),)
NOT_WEB = (Expression(key="app", operator="NotIn", values=("web",)),)


def pod(
    name: str,
    labels: dict[str, str] | None = None,
    *,
    on: str = "",
    namespace: str = "team",
    status: TaskStatus | None = None,
    **wishes: Any,
) -> Job:
    """Give a job of one pod with labels, in a namespace, on the first free card of a node or waiting."""
    gpu = int(name[-1]) if name[-1].isdigit() else 0
    made = words.job(name, "q", on=[(on, [gpu])] if on else (), constraints=Constraints(**wishes))
    (task,) = made.tasks
    task = msgspec.structs.replace(
        task,
        namespace=namespace,
        labels=tuple(sorted((labels or {}).items())),
        status=status or task.status,
    )
    return msgspec.structs.replace(made, tasks=(task,))


def world(*jobs: Job, rules: Rules = DEFAULT, bare: tuple[str, ...] = (), taint: str = "") -> Session:
    """Three zones a, b and c; a has two nodes. `bare`: nodes without labels; `taint`: a node with a hard taint."""
    nodes = [
        words.node(
            name,
            labels={} if name in bare else {ZONE: name[0], HOST: name},
            taints=(Taint(key="t", effect="NoSchedule"),) if name == taint else (),
        )
        for name in ("a1", "a2", "b1", "c1")
    ]
    return open_session(words.cluster(nodes, [words.queue("q", 100)], jobs), rules)


def refusals(session: Session, name: str = "new", later: bool = False) -> dict[str, str]:
    """Say which nodes refuse the pod, and why."""
    task = session.ledger.tasks[f"{name}-0"]
    whys = {node.name: fit.why_not(session, task, node, later) for node in session.ledger.nodes}
    return {name: why for name, why in whys.items() if why is not None}


def near(selector: tuple[Expression, ...] = WEB, key: str = ZONE, **changes: Any) -> tuple[PodTerm, ...]:
    """Give one required term."""
    return (PodTerm(selector=selector, topology_key=key, **changes),)


@pytest.mark.parametrize(
    ("jobs", "refused"),
    [
        pytest.param(
            [pod("w", {"app": "web"}, on="b1"), pod("new", pod_affinity=near())],
            ["a1", "a2", "c1"],
            id="only where such a pod is",
        ),
        pytest.param(
            [pod("w", {"app": "web"}, on="a1"), pod("new", pod_affinity=near())],
            ["b1", "c1"],
            id="the whole zone counts",
        ),
        pytest.param(
            [pod("new", pod_affinity=near())],
            ["a1", "a2", "b1", "c1"],
            id="nowhere, where no such pod is",
        ),
        pytest.param(
            [pod("new", {"app": "web"}, pod_affinity=near())], [], id="anywhere for the first of its kind"
        ),
        pytest.param(
            [pod("w", {"app": "web"}, on="b1"), pod("new", {"app": "web"}, pod_affinity=near())],
            ["a1", "a2", "c1"],
            id="the second of its kind follows the first",
        ),
        pytest.param(
            [pod("w", {"app": "web"}, on="b1", namespace="other"), pod("new", pod_affinity=near())],
            ["a1", "a2", "b1", "c1"],
            id="another namespace does not count",
        ),
        pytest.param(
            [
                pod("w", {"app": "web"}, on="b1", namespace="other"),
                pod("new", pod_affinity=near(namespaces=("other",))),
            ],
            ["a1", "a2", "c1"],
            id="unless it is named",
        ),
        pytest.param(
            [
                pod("w", {"app": "web"}, on="b1", namespace="other"),
                pod("new", pod_affinity=near(all_namespaces=True)),
            ],
            ["a1", "a2", "c1"],
            id="or all are meant",
        ),
        pytest.param(
            [
                pod("w", {"app": "web"}, on="a1"),
                pod("x1", {"colour": "blue"}, on="a1"),
                pod("new", pod_affinity=near() + near(BLUE)),
            ],
            ["a1", "a2", "b1", "c1"],
            id="two terms are not met by two pods",
        ),
        pytest.param(
            [
                pod("w", {"app": "web", "colour": "blue"}, on="a1"),
                pod("new", pod_affinity=near() + near(BLUE, HOST)),
            ],
            ["a2", "b1", "c1"],
            id="two terms, each by its own domain",
        ),
    ],
)
def test_required_affinity(jobs: list[Job], refused: list[str]) -> None:
    """A pod goes where pods that it wants are, by domain and namespace."""
    assert refusals(world(*jobs)) == dict.fromkeys(refused, AFFINITY_REFUSED)


def test_affinity_needs_the_topology_label() -> None:
    """Even the first of its kind goes to no node without the label."""
    session = world(pod("new", {"app": "web"}, pod_affinity=near()), bare=("c1",))
    assert refusals(session) == {"c1": AFFINITY_REFUSED}


@pytest.mark.parametrize(
    ("jobs", "refused"),
    [
        pytest.param(
            [pod("w", {"app": "web"}, on="a1"), pod("new", pod_anti_affinity=near())],
            {"a1": ANTI_AFFINITY_REFUSED, "a2": ANTI_AFFINITY_REFUSED},
            id="not in the zone of such a pod",
        ),
        pytest.param(
            [pod("w", on="a1", pod_anti_affinity=near()), pod("new", {"app": "web"})],
            {"a1": EXISTING_REFUSED, "a2": EXISTING_REFUSED},
            id="who is there may refuse",
        ),
        pytest.param(
            [pod("w", on="a1", pod_anti_affinity=near(NOT_WEB)), pod("new", {"app": "db"})],
            {"a1": EXISTING_REFUSED, "a2": EXISTING_REFUSED},
            id="a selector that names no label refuses too",
        ),
        pytest.param(
            [pod("w", on="a1", pod_anti_affinity=near(), namespace="other"), pod("new", {"app": "web"})],
            {},
            id="not a pod of another namespace",
        ),
        pytest.param(
            [pod("w", pod_anti_affinity=near()), pod("new", {"app": "web"})],
            {},
            id="who only waits refuses nobody",
        ),
        pytest.param(
            [pod("w", {"app": "web"}, on="a1"), pod("new", pod_anti_affinity=near(weight=5))],
            {},
            id="a preference refuses nobody",
        ),
    ],
)
def test_anti_affinity_both_ways(jobs: list[Job], refused: dict[str, str]) -> None:
    """Anti-affinity holds for who comes and for who is there."""
    assert refusals(world(*jobs)) == refused


@pytest.mark.parametrize(
    ("rules", "refused"),
    [
        pytest.param(DEFAULT, [], id="ours: it no longer counts"),
        pytest.param(COMPATIBLE, ["a1", "a2"], id="KAI's: it counts to the end"),
    ],
)
def test_a_pod_that_ends_by_itself(rules: Rules, refused: list[str]) -> None:
    """Rule terminating_frees_affinity."""
    ends = pod("w", {"app": "web"}, on="a1", status=TaskStatus.RELEASING)
    session = world(ends, pod("new", pod_anti_affinity=near()), rules=rules)
    assert list(refusals(session)) == refused


def test_counts_follow_the_ledger() -> None:
    """A placed pod counts at once, an evicted one no longer, an undone step as if it had never been."""
    session = world(pod("w", {"app": "web"}), pod("new", pod_anti_affinity=near()))
    ledger = session.ledger
    assert refusals(session) == {}
    mark = ledger.mark()
    ledger.allocate(ledger.tasks["w-0"], ledger.node_by_name["b1"])
    assert list(refusals(session)) == ["b1"]
    ledger.undo_to(mark)
    assert refusals(session) == {}


def test_a_preferred_place_comes_first() -> None:
    """Preferred terms order the nodes: towards blue pods, away from web pods."""
    session = world(
        pod("w", {"app": "web"}, on="a1"),
        pod("x", {"colour": "blue"}, on="c1"),
        pod("new", pod_affinity=near(BLUE, weight=10), pod_anti_affinity=near(WEB, weight=10)),
    )
    task = session.ledger.tasks["new-0"]
    assert [node.name for node in session.candidates.best(task, False, None)] == ["c1", "b1", "a1", "a2"]


def spread(max_skew: int = 1, key: str = ZONE, **changes: Any) -> tuple[Spread, ...]:
    """Give one hard spread constraint over web pods."""
    return (
        msgspec.structs.replace(
            Spread(max_skew=max_skew, topology_key=key, hard=True, selector=WEB), **changes
        ),
    )


WEB_POD = {"app": "web"}
IN_A_OR_B = (NodeTerm(expressions=(Expression(key=ZONE, operator="In", values=("a", "b")),)),)


@pytest.mark.parametrize(
    ("there", "wishes", "refused"),
    [
        pytest.param(["a1"], {"spread": spread()}, ["a1", "a2"], id="one in a, none elsewhere"),
        pytest.param(["a1"], {"spread": spread(2)}, [], id="skew of two is allowed"),
        pytest.param(["a1", "b1", "c1"], {"spread": spread()}, [], id="all even"),
        pytest.param(["a1", "b1"], {"spread": spread()}, ["a1", "a2", "b1"], id="c is behind"),
        pytest.param(
            ["a1", "b1"],
            {"spread": spread(), "required": IN_A_OR_B},
            ["c1"],
            id="domains that the pod may not use are none",
        ),
        pytest.param(
            ["a1", "b1"],
            {"spread": spread(honor_affinity=False), "required": IN_A_OR_B},
            ["a1", "a2", "b1", "c1"],
            id="unless its affinity is ignored",
        ),
        pytest.param(
            ["a1", "b1", "c1"],
            {"spread": spread(min_domains=4)},
            ["a1", "a2", "b1", "c1"],
            id="fewer domains than asked make the minimum nothing",
        ),
        pytest.param(["a1"], {"spread": spread(key=HOST)}, ["a1"], id="by host"),
        pytest.param(["a1"], {"spread": spread(hard=False)}, [], id="a soft one refuses nobody"),
    ],
)
def test_hard_spread(there: list[str], wishes: dict[str, Any], refused: list[str]) -> None:
    """One more pod may not make a domain fuller than the emptiest by more than the skew."""
    jobs = [pod(f"w{index}", WEB_POD, on=name) for index, name in enumerate(there)]
    assert list(refusals(world(*jobs, pod("new", WEB_POD, **wishes)))) == refused


def test_spread_of_others_only() -> None:
    """A pod that its own selector does not match adds nothing to the skew."""
    session = world(pod("w", WEB_POD, on="a1"), pod("new", {"app": "db"}, spread=spread()))
    assert refusals(session) == {}


def test_spread_needs_the_label() -> None:
    """A node outside of all domains takes nobody with a hard constraint."""
    session = world(pod("new", WEB_POD, spread=spread()), bare=("c1",))
    assert refusals(session) == {"c1": LABEL_REFUSED}


def test_spread_over_tainted_domains() -> None:
    """A tainted domain is behind for ever, unless the policy honours taints."""
    there = [pod("w1", WEB_POD, on="a1"), pod("w2", WEB_POD, on="b1")]
    ignored = world(*there, pod("new", WEB_POD, spread=spread()), taint="c1")
    assert refusals(ignored)["a1"] == SPREAD_REFUSED
    honoured = world(*there, pod("new", WEB_POD, spread=spread(honor_taints=True)), taint="c1")
    assert list(refusals(honoured)) == ["c1"]


def test_kai_has_no_spread() -> None:
    """Rule topology_spread."""
    session = world(pod("w", WEB_POD, on="a1"), pod("new", WEB_POD, spread=spread()), rules=COMPATIBLE)
    assert refusals(session) == {}


def test_a_pod_that_ends_is_not_spread() -> None:
    """Pods that are going do not count, in no mode."""
    ends = pod("w", WEB_POD, on="a1", status=TaskStatus.RELEASING)
    assert refusals(world(ends, pod("new", WEB_POD, spread=spread()))) == {}


def test_soft_spread_orders() -> None:
    """ScheduleAnyway goes to emptier domains first."""
    session = world(pod("w", WEB_POD, on="a1"), pod("new", WEB_POD, spread=spread(hard=False)))
    task = session.ledger.tasks["new-0"]
    assert [node.name for node in session.candidates.best(task, False, None)] == ["b1", "c1", "a1", "a2"]
