"""`simulate`: what would be other with more objects or fewer nodes, and that nothing is written."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.cli.objects import Answer
from tests.cli.scheduling_words import (
    DEPARTMENTS,
    Pool,
    fault,
    group,
    health,
    lab,
    node,
    owner,
    pod,
    queue,
    running,
)

BETA = {"kai.scheduler/queue": "beta"}


def simulated(pool: Pool, tmp_path: Path, *objects: dict[str, Any], more: tuple[str, ...] = ()) -> Answer:
    """Simulate a file with these objects; JSON is YAML too."""
    file = tmp_path / "more.yaml"
    file.write_text("\n---\n".join(msgspec.json.encode(one).decode() for one in objects))
    return pool.typed("simulate", str(file), *more)


def job(name: str, pods: int, gpus: int, minimum: int = 1, **spec: Any) -> dict[str, Any]:
    """Give a Job of the queue beta."""
    marks = {"kai.scheduler/batch-min-member": str(minimum)}
    limits = {"nvidia.com/gpu": gpus, "cpu": 1, "memory": "1Gi"}
    container = {"name": "main", "resources": {"limits": limits}}
    template = {
        "metadata": {"labels": BETA},
        "spec": {"schedulerName": "nodemend-scheduler", "containers": [container]},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "team",
            "labels": BETA,
            "annotations": marks,
            "creationTimestamp": None,
        },
        "spec": {"parallelism": pods, "template": template, **spec},
    }


def as_file(kind: str, api_version: str, made: dict[str, Any]) -> dict[str, Any]:
    return {**made, "apiVersion": api_version, "kind": kind}


def test_a_job_is_its_pods(tmp_path: Path) -> None:
    """Each pod of the Job gets a place; the Job itself is nowhere."""
    answer = simulated(lab(), tmp_path, job("train", 3, 2))
    assert (answer.code, answer.err) == (0, "")
    assert answer.row("  team/train-0") == "team/train-0 n1 GPU-n1-0, GPU-n1-1 is new"
    assert [line.split()[1] for line in answer.out.splitlines() if "is new" in line] == ["n1", "n1", "n2"]
    assert "Nothing was written." in answer.out


def test_a_gang_that_does_not_fit_waits_whole(tmp_path: Path) -> None:
    """Three pods of four GPUs each: two would fit, none starts."""
    answer = simulated(lab(), tmp_path, job("train", 3, 4, minimum=3))
    assert "BOUND" not in answer.out
    assert "3 together" in answer.row("  team/pg-train-simulated-Job-team-train")


@pytest.mark.parametrize(
    ("spec", "pods"),
    [
        pytest.param({"completions": 1}, 1, id="no more pods than completions"),
        pytest.param({"suspend": True}, 0, id="a suspended Job makes none"),
    ],
)
def test_how_many_pods_a_job_makes(tmp_path: Path, spec: dict[str, Any], pods: int) -> None:
    """As the Job controller would at first."""
    told = simulated(lab(), tmp_path, job("train", 3, 1, **spec), more=("--json",)).json()
    assert len(told["binds"]) == pods


@pytest.mark.parametrize(
    ("owners", "then"),
    [
        pytest.param([owner("Job", "theirs")], "waits", id="a Job makes its pod again, which waits"),
        pytest.param([], "is gone: nobody makes it again", id="a bare pod is gone"),
    ],
)
def test_lent_gpus_are_taken_back(tmp_path: Path, owners: list[Any], then: str) -> None:
    """Alpha holds 6 with a quota of 4: the cheapest of its pods makes room for beta's."""
    made = [
        running("one", "alpha", 4, "n1"),
        running("two", "alpha", 2, "n2", owners=owners),
        running("mine", "beta", 1, "n2"),
    ]
    pool = lab(*(one for one, _ in made), groups=[its for _, its in made])
    answer = simulated(pool, tmp_path, job("train", 1, 2))
    assert answer.row("  team/train-0").startswith("team/train-0 n2 GPU-n2-")
    assert answer.row("  team/two").startswith(f"team/two n2 reclaim {then} reclaimed for job team/pg-train")
    assert ("team/pg-two" in answer.out) == (then == "waits")


def test_only_differences_are_told(tmp_path: Path) -> None:
    """What waits, is bound or goes anyway is no news."""
    pool = lab(pod("fits", 1, labels=BETA), pod("never", 5, labels=BETA))
    answer = simulated(pool, tmp_path, as_file("Queue", "scheduling.run.ai/v2", queue("gamma")))
    assert answer.row("+ Queue") == "+ Queue gamma"
    assert answer.row("The next cycles") == "The next cycles would do nothing else than they do anyway."
    assert "team/fits" not in answer.out
    assert "team/never" not in answer.out


def test_another_node_lets_somebody_start(tmp_path: Path) -> None:
    """A job that waits starts on it."""
    answer = simulated(lab(pod("never", 5, labels=BETA)), tmp_path, node("n3", 8))
    assert answer.row("  team/never") == "team/never n3 n3/0, n3/1, n3/2, n3/3, n3/4 waits"
    assert answer.row("  team/pg-never") == "team/pg-never-uid-never"


def test_a_fault_may_be_simulated(tmp_path: Path) -> None:
    """A NodeHealth of the same name takes the place of the one that is there."""
    its = health("n2", *({**fault(n), "part": {"kind": "gpu", "uuid": f"GPU-n2-{n}"}} for n in range(2)))
    pool = lab(pod("fits", 4, labels=BETA), nodes=[node("n2")], healths=[health("n2")])
    answer = simulated(pool, tmp_path, as_file("NodeHealth", "nodemend.dev/v1alpha1", its))
    assert answer.row("~ NodeHealth") == "~ NodeHealth n2"
    assert answer.row("  team/fits") == "team/fits"
    assert "WOULD GET NO PLACE" in answer.out
    assert "PodSchedulingErrors" in answer.row("  team/pg-fits")


def test_a_smaller_quota_takes_gpus_away(tmp_path: Path) -> None:
    """A Queue of the same name takes the place of the one that is there."""
    one, its = running("one", "alpha", 4, "n1")
    two, theirs = running("two", "alpha", 2, "n2")
    new = as_file("Queue", "scheduling.run.ai/v2", queue("alpha", "research", quota=0, limit=0))
    pool = lab(
        one,
        two,
        pod("more", 1, labels={"kai.scheduler/queue": "alpha"}),
        groups=[its, theirs],
        queues=(*DEPARTMENTS[::2], queue("alpha", "research", quota=8)),
    )
    answer = simulated(pool, tmp_path, new)
    assert answer.row("  team/pg-more").startswith("team/pg-more-uid-more OverLimit")


def test_a_lost_node() -> None:
    """Its pods are made again where somebody makes them, and go where there is room; a bare one is gone."""
    one, its = running("one", "beta", 2, "n2", owners=[owner("Job", "theirs")])
    two, theirs = running("two", "beta", 1, "n2")
    answer = lab(one, two, groups=[its, theirs]).typed("simulate", "--lose", "n2")
    assert answer.row("- Node") == "- Node n2"
    found = [" ".join(line.split()) for line in answer.out.splitlines() if line.startswith("  team/")]
    assert found == [
        "team/one n2 goes on at n1",
        "team/two n2 is gone: nobody makes it again",
        "team/one n1 GPU-n1-0, GPU-n1-1 waits",
    ]


def test_pods_of_other_schedulers_are_said_not_simulated(tmp_path: Path) -> None:
    """A file without schedulerName is Kubernetes' own scheduler's."""
    made = job("train", 2, 1)
    del made["spec"]["template"]["spec"]["schedulerName"]
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}
    answer = simulated(lab(), tmp_path, made, service)
    assert answer.row("2 pods of the file").startswith(
        "2 pods of the file are for scheduler default-scheduler"
    )
    assert answer.row("passed by").endswith("Service web")


def test_a_pod_group_of_the_file_counts(tmp_path: Path) -> None:
    """Pods that name it belong to it."""
    its = as_file("PodGroup", "scheduling.run.ai/v2alpha2", group("pair", "beta", 2))
    pods = [pod(f"p{n}", 4, group_name="pair") for n in range(2)]
    its["metadata"]["namespace"] = "team"
    told = simulated(lab(), tmp_path, its, *pods, more=("--json",)).json()
    assert [(row["pod"], row["node"]) for row in told["binds"]] == [("team/p0", "n1"), ("team/p1", "n2")]


def test_lists_are_taken_apart(tmp_path: Path) -> None:
    """What `kubectl get -o yaml` prints is a List."""
    made = {"apiVersion": "v1", "kind": "List", "items": [pod("a", labels=BETA), pod("b", labels=BETA)]}
    told = simulated(lab(), tmp_path, made, more=("--json",)).json()
    assert told["changed"] == ["+ Pod team/a", "+ Pod team/b"]


BAD = [
    pytest.param("a: [", "document 1: is no YAML", id="no YAML"),
    pytest.param("", "holds no object", id="an empty file"),
    pytest.param("- 1", "document 1: is list, must be an object", id="a list"),
    pytest.param(
        "kind: Pod\napiVersion: v1\nmetadata: {name: a}\n---\nkind: PyTorchJob\nmetadata: {name: b}",
        "document 2: field kind is 'PyTorchJob', which is not simulated",
        id="an unknown kind, in the second document",
    ),
    pytest.param(
        "kind: Pod\napiVersion: v2\nmetadata: {name: a}",
        "field apiVersion of a Pod is 'v2': must be v1",
        id="version",
    ),
    pytest.param(
        "kind: Pod\napiVersion: v1\nmetadata: {}", "field metadata.name of a Pod is None", id="no name"
    ),
    pytest.param(
        "kind: Pod\napiVersion: v1\nmetadata: {name: a}\nspec: 3",
        "field spec of Pod a is 3",
        id="spec is a number",
    ),
    pytest.param(
        "kind: Pod\napiVersion: v1\nmetadata: {name: a, labels: {x: 3}}",
        "field metadata.labels[...] of Pod a: expected `str`, got `int`",
        id="a label that is a number",
    ),
    pytest.param(
        "kind: Job\napiVersion: batch/v1\nmetadata: {name: a}\nspec: {parallelism: many, template: {spec: {}}}",
        "field spec.parallelism of Job a is 'many'",
        id="a parallelism that is no number",
    ),
    pytest.param(
        "kind: Job\napiVersion: batch/v1\nmetadata: {name: a}\nspec: {parallelism: 1}",
        "field spec.template.spec of Job a",
        id="a Job without a template",
    ),
    pytest.param(
        "kind: Job\napiVersion: batch/v1\nmetadata: {name: a}\nspec: {parallelism: 1, template: {spec: {nodeName: 3}}}",
        "document 1, its pod template: field spec.nodeName of Pod a-0",
        id="a template that cannot be read",
    ),
    pytest.param("a: &a [*a]", "or holds itself", id="a document that holds itself"),
    pytest.param("kind: List\nitems: 3", "field items must be a list", id="a List without items"),
]


@pytest.mark.parametrize(("text", "words"), BAD)
def test_a_bad_file_is_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    """It names file, document and field; nothing is read from the cluster."""
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    pool = lab()
    answer = pool.typed("simulate", str(file))
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert words in answer.err
    assert str(file) in answer.err
    assert pool.api.requests == []


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        pytest.param(("simulate",), 2, "name a FILE, or say --lose NODE", id="neither"),
        pytest.param(("simulate", "x.yaml", "--lose", "n1"), 2, "name a FILE, or say --lose NODE", id="both"),
        pytest.param(
            ("simulate", "none.yaml"), 2, "none.yaml: cannot be read: No such file", id="no such file"
        ),
        pytest.param(("simulate", "--lose", " ,"), 2, "name a FILE, or say --lose NODE", id="no node named"),
        pytest.param(("simulate", "--lose", "n1,n9"), 2, "no node is named n9", id="an unknown node"),
    ],
)
def test_bad_use(words: tuple[str, ...], code: int, said: str) -> None:
    """One sentence."""
    answer = lab().typed(*words)
    assert (answer.code, answer.out) == (code, "")
    assert said in answer.err


def test_queues_are_not_installed() -> None:
    """Exit code 3, with the command."""
    answer = lab().without("queues").typed("simulate", "--lose", "n1")
    assert (answer.code, "kubectl create -k manifests/crds-kai" in answer.err) == (3, True)
