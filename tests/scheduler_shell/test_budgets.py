"""How many of a set of victims their PodDisruptionBudgets let go at once, counted as the API server counts."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from controller.outcome import Result
from controller.scheduler.shell.budgets import Budgets, beyond
from kube import paths
from kube.api import ApiError, Forbidden, Unavailable
from kube.disruption import PodDisruptionBudget
from kube.store import Store
from kube.types import Pod
from tests.fakes import FakeApi, request_to
from tests.scheduler_shell.shell_words import victims

BUDGETS = paths.collection("policy", "v1", "poddisruptionbudgets", "ns")
WEB = {"matchLabels": {"app": "web"}}
GONE_AT = datetime(2026, 1, 1, tzinfo=UTC)


def budget(
    name: str = "web",
    *,
    selector: Mapping[str, Any] | None = WEB,
    policy: str | None = None,
    generation: int = 1,
    namespace: str = "ns",
    **status: int,
) -> dict[str, Any]:
    """Give a budget that allows one eviction, and is met, unless told otherwise."""
    counted = {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 2}
    return {
        "metadata": {"name": name, "namespace": namespace, "generation": generation},
        "spec": {
            **({"selector": selector} if selector is not None else {}),
            **({"unhealthyPodEvictionPolicy": policy} if policy is not None else {}),
        },
        "status": {**counted, **status},
    }


def pod(
    name: str, *, ready: bool = True, phase: str = "Running", ends: bool = False, app: str = "web"
) -> Pod:
    body: dict[str, Any] = {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", "labels": {"app": app}},
        "spec": {"nodeName": "a"},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": str(ready)}]},
    }
    if ends:
        body["metadata"]["deletionTimestamp"] = GONE_AT
    return msgspec.convert(body, Pod)


TWO = (pod("v0"), pod("v1"))
SICK = (pod("v0"), pod("v1", ready=False))
BOTH_SICK = (pod("v0", ready=False), pod("v1", ready=False))
ALWAYS = "AlwaysAllow"


@pytest.mark.parametrize(
    ("budgets", "leaving", "stay"),
    [
        pytest.param([budget()], TWO, ["v1"], id="one may go, the second would be refused"),
        pytest.param([budget(disruptionsAllowed=2)], TWO, [], id="two may go"),
        pytest.param([budget(disruptionsAllowed=0)], TWO, ["v0", "v1"], id="none may go"),
        pytest.param([budget(disruptionsAllowed=-1)], TWO, ["v0", "v1"], id="less than none is none"),
        pytest.param([budget(generation=2, disruptionsAllowed=9)], TWO, ["v0", "v1"], id="its status is old"),
        pytest.param([budget(disruptionsAllowed=0)], TWO[:1], [], id="a single one is the server's to judge"),
        pytest.param([], TWO, [], id="there is no budget"),
        pytest.param([budget(namespace="other")], TWO, [], id="another namespace's budget"),
        pytest.param([budget(selector={})], TWO, ["v1"], id="an empty selector is everybody"),
        pytest.param([budget(selector=None)], TWO, [], id="no selector is nobody"),
        pytest.param(
            [
                budget(
                    selector={"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "x"]}]}
                )
            ],
            TWO,
            ["v1"],
            id="an expression selects",
        ),
        pytest.param([budget()], (pod("v0"), pod("v1", app="db")), [], id="one of them is under none"),
        pytest.param(
            [budget(), budget("all", selector={}, disruptionsAllowed=9)],
            TWO,
            [],
            id="two budgets over each: the server's to refuse",
        ),
        pytest.param(
            [budget(), budget("db", selector={"matchLabels": {"app": "db"}})],
            (*TWO, pod("d0", app="db"), pod("d1", app="db"), pod("d2", app="db")),
            ["v1", "d1", "d2"],
            id="each budget counts its own",
        ),
        pytest.param([budget()], (pod("v0"), pod("v1", phase="Pending")), [], id="one does not run yet"),
        pytest.param([budget()], (pod("v0"), pod("v1", phase="Succeeded")), [], id="one has ended"),
        pytest.param([budget()], (pod("v0"), pod("v1", ends=True)), [], id="one ends already"),
        pytest.param([budget()], SICK, [], id="one is not ready, and the budget is met without it"),
        pytest.param(
            [budget(currentHealthy=1)], SICK, ["v1"], id="one is not ready, and the budget is not met"
        ),
        pytest.param([budget(desiredHealthy=0)], SICK, ["v1"], id="a budget that wants none is not met"),
        pytest.param(
            [budget(currentHealthy=1, policy="IfHealthyBudget")], SICK, ["v1"], id="the same by name"
        ),
        pytest.param(
            [budget(currentHealthy=1, policy=ALWAYS)], SICK, [], id="who is not ready may always go"
        ),
        pytest.param([budget(currentHealthy=1, policy=ALWAYS)], TWO, ["v1"], id="not so who is ready"),
        pytest.param(
            [budget(disruptionsAllowed=0, currentHealthy=0, policy="Newer")],
            BOTH_SICK,
            ["v0", "v1"],
            id="unknown",
        ),
    ],
)
def test_who_of_a_set_stays(budgets: list[dict[str, Any]], leaving: tuple[Pod, ...], stay: list[str]) -> None:
    """The first in line may leave, as many as are allowed."""
    found = beyond(msgspec.convert(budgets, list[PodDisruptionBudget]), leaving, leaving)
    assert sorted(found) == sorted(f"ns/{name}" for name in stay)
    assert {one.answer.result for one in found.values()} <= {Result.BLOCKED}


@pytest.mark.parametrize(
    ("allowed", "why"),
    [
        (0, "PodDisruptionBudget web allows no eviction now"),
        (1, "PodDisruptionBudget web allows 1 eviction now, and 3 of its pods would have to leave together"),
        (2, "PodDisruptionBudget web allows 2 evictions now, and 3 of its pods would have to leave together"),
    ],
)
def test_the_budget_is_named_and_its_other_pods_are_no_victims_either(allowed: int, why: str) -> None:
    """Else each of them would be tried in turn, with the same outcome."""
    leaving = (*TWO, pod("v2"))
    others = (
        pod("w0"),
        pod("w1"),
        pod("db", app="db"),
        pod("ended", phase="Failed"),
        pod("sick", ready=False),
    )
    one = msgspec.convert(budget(disruptionsAllowed=allowed), PodDisruptionBudget)
    found = list(beyond([one], leaving, (*leaving, *others)).values())
    assert [refusal.answer.why for refusal in found] == [why] * (3 - allowed)
    assert [refusal.siblings for refusal in found] == [("ns/w0", "ns/w1"), *[()] * (2 - allowed)]


def reading(api: FakeApi, *pods: Pod) -> Budgets:
    store: Store[Pod] = Store()
    store.replace(pods, "1", 0.0)
    return Budgets(api, store)


def test_budgets_are_read_only_where_several_of_a_namespace_are_to_leave() -> None:
    """Anew each time: what they allow changes with every eviction."""
    api = FakeApi()
    api.add(BUDGETS, budget())
    budgets = reading(api, *TWO)
    assert budgets.refusals(victims("v0")) == {}
    assert api.requests == []
    assert list(budgets.refusals(victims("v0", "v1"))) == ["ns/v1"]
    assert [(one.method, one.path) for one in api.requests] == [("LIST", BUDGETS)]


def test_a_pod_that_is_another_one_by_now_uses_nothing_up() -> None:
    """The server finds it gone."""
    api = FakeApi()
    api.add(BUDGETS, budget())
    another = msgspec.structs.replace(
        TWO[1], metadata=msgspec.structs.replace(TWO[1].metadata, uid="another")
    )
    assert reading(api, TWO[0], another).refusals(victims("v0", "v1")) == {}


@pytest.mark.parametrize(
    ("error", "result"),
    [(Forbidden("cannot list", code=403), Result.FORBIDDEN), (Unavailable("away"), Result.UNAVAILABLE)],
)
def test_nobody_leaves_where_the_budgets_cannot_be_read(error: ApiError, result: Result) -> None:
    """What they allow is unknown then."""
    api = FakeApi()
    api.fail_next(request_to("LIST", "poddisruptionbudgets"), error)
    found = reading(api, *TWO).refusals(victims("v0", "v1"))
    assert {name: one.answer.result for name, one in found.items()} == {"ns/v0": result, "ns/v1": result}
    assert all("could not be read" in one.answer.why for one in found.values())
