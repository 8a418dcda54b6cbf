"""controller.apply: what each answer of the Eviction API means."""

import pytest

from controller.outcome import Result
from kube import paths
from kube.api import (
    ApiError,
    Conflict,
    Forbidden,
    TooManyRequests,
    Unavailable,
)
from tests.controller.shell.one_of_each import (
    EVICT,
    POD_UID,
)
from tests.controller.shell.world import Bench
from tests.fakes import request_to


@pytest.mark.parametrize(
    ("error", "expected", "why"),
    [
        pytest.param(
            TooManyRequests(
                "The disruption budget pdb-1 needs 1 healthy pods and has 1 currently",
                code=429,
                causes=("DisruptionBudget",),
                retry_after_s=10,
            ),
            Result.BLOCKED,
            "PodDisruptionBudget pdb-1 allows no eviction now",
            id="429 with a budget as cause: held by it",
        ),
        pytest.param(
            TooManyRequests("slow down", code=429, retry_after_s=2),
            Result.THROTTLED,
            "slow down",
            id="429 without: the server is busy",
        ),
        pytest.param(
            Unavailable(
                "POST x: 500 This pod has more than one PodDisruptionBudget, which the eviction subresource does "
                "not support.",
                code=500,
            ),
            Result.MISCONFIGURED,
            "more than one PodDisruptionBudget",
            id="500 with several budgets: needs a person",
        ),
        pytest.param(
            Unavailable("etcd", code=500), Result.UNAVAILABLE, "etcd", id="any other 500: try again"
        ),
        pytest.param(
            Forbidden("no", code=403, causes=("NamespaceTerminating",)),
            Result.BLOCKED,
            "being deleted",
            id="403 with a namespace that is going",
        ),
        pytest.param(Forbidden("rbac", code=403), Result.FORBIDDEN, "rbac", id="403 otherwise"),
        pytest.param(
            Conflict(
                "Operation cannot be fulfilled: the UID in the precondition (a) does not match", code=409
            ),
            Result.ABSENT,
            "another pod",
            id="409 for the UID: this pod is gone",
        ),
        pytest.param(Conflict("try again", code=409), Result.CONFLICT, "try again", id="409 otherwise"),
    ],
)
def test_the_eviction_apis_answers(error: ApiError, expected: Result, why: str) -> None:
    """One code stands for several things there; each is told apart."""
    bench = Bench()
    bench.api.fail_next(request_to("CREATE", "/eviction"), error)
    outcome = bench.applier.apply(EVICT)
    assert (outcome.result, why in outcome.why) == (expected, True)


def test_an_eviction_names_the_pod_by_its_uid() -> None:
    """A StatefulSet's pod of the same name on another node is not ours to evict (kubernetes/kubernetes#138229)."""
    bench = Bench()
    pod = {"metadata": {"name": "train-0", "namespace": "ml", "uid": POD_UID}}
    bench.api.add(paths.pods("ml"), pod)
    assert bench.applier.apply(EVICT).result is Result.DONE
    bench.api.add(paths.pods("ml"), {"metadata": {"name": "train-0", "namespace": "ml", "uid": "new"}})
    assert bench.applier.apply(EVICT).result is Result.ABSENT
    assert bench.api.names(paths.pods("ml")) == ["train-0"]
    assert bench.api.writes()[0].body["deleteOptions"] == {"preconditions": {"uid": POD_UID}}


def test_a_pod_that_is_gone_is_evicted() -> None:
    """404 is success."""
    assert Bench().applier.apply(EVICT).result is Result.ABSENT
