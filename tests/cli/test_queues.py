"""`queues`: the table of fair shares, from departments down, and what is wrong with a queue."""

from typing import Any

import pytest

from kube.api import Forbidden
from tests.cli.scheduling_words import DEPARTMENTS, Pool, group, health, lab, node, pod, queue, running
from tests.fakes import request_to


def test_a_department_stands_above_its_projects() -> None:
    """Each project holds and asks for something, the department for both; what waits is not held yet."""
    one, its = running("one", "alpha", 3)
    two, theirs = running("two", "alpha", 2, "n2", labels={})
    waits = pod("waits", 4, labels={"kai.scheduler/queue": "beta"})
    answer = lab(
        one,
        two,
        waits,
        groups=[its, {**theirs, "spec": {**theirs["spec"], "preemptibility": "non-preemptible"}}],
    ).typed("queues")
    assert (answer.code, answer.err) == (0, "")
    assert answer.row("gpu: ") == "gpu: the pool has 8, without what other schedulers' pods hold"
    assert answer.row("research") == "research 100 6 unlimited 1 8 5 (2 non-preemptible) 9 3 -"
    assert answer.row("  alpha") == "alpha 100 4 6 1 5 5 (2 non-preemptible) 5 - OverQuota"
    assert answer.row("  beta") == "beta 100 2 unlimited 2 3 0 4 3 -"


CONDITIONS = [
    pytest.param(
        (queue("left", "right"), queue("right", "left")),
        "left",
        "ParentLoop",
        "is a loop",
        id="parents in a loop",
    ),
    pytest.param(
        (queue("left", "nobody"),), "left", "Orphan", "no such Queue", id="a parent that is not there"
    ),
    pytest.param(
        ({**queue("left"), "spec": {"preemptMinRuntime": "soon"}},),
        "left",
        "Invalid",
        "soon",
        id="a queue that cannot be read",
    ),
]


@pytest.mark.parametrize(("queues", "name", "kind", "words"), CONDITIONS)
def test_a_queue_that_is_left_out_says_why(queues: Any, name: str, kind: str, words: str) -> None:
    """It has no share, and takes nothing from the others' table."""
    answer = lab(queues=(*DEPARTMENTS, *queues)).typed("queues")
    assert answer.code == 0
    assert answer.row(f"{name} ") == f"{name} 100 - - - - - - - {kind}"
    assert words in answer.row(f"{name}: {kind}")
    assert answer.row("research").startswith("research 100 6")


def test_capacity_that_is_gone_is_a_shortage() -> None:
    """Quotas of 6 on 4 GPUs: each is worth less, and the department says what it is short of."""
    waits = [pod(f"w{n}", 1, labels={"kai.scheduler/queue": "alpha"}) for n in range(6)]
    pool = lab(*waits, nodes=[node("n1", 2)], healths=[health("n1", gpus=2)])
    answer = pool.typed("queues")
    assert answer.row("  alpha").split()[2:5] == ["4", "(worth", "2)"]
    assert "Shortage" in answer.row("  alpha")
    assert "its share is" in answer.row("alpha: Shortage")


def test_json_has_the_schedulers_integers() -> None:
    """Milli-GPU, millicores, bytes; -1 is no bound."""
    told = (
        lab(*running("one", "alpha", 1)[:1], groups=[group("pg-one", "alpha")])
        .typed("queues", "--json")
        .json()
    )
    alpha = next(row for row in told["queues"] if row["queue"] == "alpha")
    gpu = next(row for row in alpha["amounts"] if row["resource"] == "gpu")
    assert (alpha["parent"], alpha["depth"]) == ("research", 1)
    assert (gpu["quota"], gpu["limit"], gpu["allocated"]) == (4000, 6000, 1000)
    assert next(row["limit"] for row in alpha["amounts"] if row["resource"] == "cpu") == -1
    assert told["total"]["gpu"] == 8000


@pytest.mark.parametrize(
    ("words", "titles"),
    [
        pytest.param(("--resource", "cpu"), ["cpu"], id="another resource"),
        pytest.param(("--all",), ["gpu", "cpu", "memory"], id="all resources"),
    ],
)
def test_a_table_for_each_resource_asked_for(words: tuple[str, ...], titles: list[str]) -> None:
    """One table each, with the same queues."""
    out = lab().typed("queues", *words).out
    assert [line.split(":")[0] for line in out.splitlines() if ": the pool has" in line] == titles
    assert out.count("  alpha") == len(titles)


def test_a_quota_by_model_has_its_own_table() -> None:
    """It stands in an annotation, and holds beside the queue's quota."""
    models = '{"NVIDIA-H200": {"quota": 2, "limit": 4}}'
    one, its = running("one", "alpha", 3)
    queues = (queue("alpha", quota=4, annotations={"nodemend.dev/gpu-models": models}),)
    assert (
        lab(one, groups=[its], queues=queues).typed("queues").row("alpha   NVIDIA")
        == "alpha NVIDIA-H200 2 4 3"
    )


def test_only_the_pool_asked_for_is_shown() -> None:
    """A queue of another node pool has no share here."""
    other = queue("gamma", labels={"kai.scheduler/node-pool": "west"})
    pool = lab(queues=(*DEPARTMENTS, other))
    assert "gamma" not in pool.typed("queues").out
    assert [row["queue"] for row in pool.typed("queues", "--pool", "west", "--json").json()["queues"]] == [
        "gamma"
    ]


def test_a_pod_of_another_scheduler_is_no_capacity() -> None:
    """What it holds is off the total, and counts for no queue."""
    theirs = pod("theirs", 2, on="n1", scheduler="default-scheduler")
    assert lab(theirs).typed("queues").row("gpu: ").startswith("gpu: the pool has 6,")


def test_queues_are_not_installed() -> None:
    """One sentence with the command that makes them, exit code 3."""
    answer = lab().without("queues").typed("queues")
    assert (answer.code, answer.out, answer.err.count("\n")) == (3, "", 1)
    assert "queues.scheduling.run.ai" in answer.err
    assert "kubectl create -k manifests/crds-kai" in answer.err


def test_a_list_that_may_not_be_read_is_named() -> None:
    """A required one ends the command; any other is said, with what the answer lacks."""
    pool = lab()
    pool.api.fail_next(request_to("LIST", "/podgroups"), Forbidden("podgroups is forbidden", code=403))
    answer = pool.typed("queues")
    assert (answer.code, answer.out) == (3, "")
    assert "not allowed to list podgroups.scheduling.run.ai" in answer.err
    pool.api.fail_next(
        request_to("LIST", "/resourceclaims"), Forbidden("resourceclaims is forbidden", code=403)
    )
    answer = pool.typed("queues")
    assert answer.code == 0
    assert "resourceclaims is forbidden" in answer.row("NOT READ: ")


def test_an_api_that_is_not_there_is_said() -> None:
    """Without NodeHealth no GPU is known to be ill, and the table says so."""
    answer = lab().without("nodehealths", "noderesourcetopologies").typed("queues")
    assert answer.code == 0
    rows = [line for line in answer.out.splitlines() if line.startswith("NOT INSTALLED: ")]
    assert [row.split()[2] for row in rows] == ["nodehealths.nodemend.dev:", "noderesourcetopologies:"]


def test_lists_are_read_page_by_page() -> None:
    """No list is asked for in one piece."""
    pool = lab()
    pool.typed("queues")
    assert {request.query.get("limit") for request in pool.api.requests if request.method == "LIST"} == {
        "500"
    }


def test_no_queues_at_all() -> None:
    """A cluster without queues says what follows from it."""
    assert "no job of this scheduler can start" in Pool().typed("queues").out
