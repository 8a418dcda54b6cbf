"""controller.apply: the GPU's clients are switched off only under guard, and put back exactly, label by label."""

from typing import Any

import msgspec
import pytest

from controller.gpu_clients import OFF
from controller.outcome import Result
from controller.steps import RunRepair, StartClients, StopClients
from kube import paths
from kube.api import PatchType
from kube.remediation import RepairTarget
from tests.controller.shell.one_of_each import PLUGIN, clients
from tests.controller.shell.samples import INCIDENT, NODE, attempt, raw
from tests.controller.shell.world import Bench

RACK = "example.com/rack"
RESET = attempt(kind="reset-gpu", job="reset-gpu-inc-1", targets=(RepairTarget(uuid="GPU-5d0c"),))


def labels(bench: Bench) -> dict[str, Any]:
    found: dict[str, Any] = bench.api.read(paths.node(NODE))["metadata"]["labels"]
    return found


def test_off_and_on_again_leaves_the_node_as_it_was() -> None:
    """And nothing else of it is ever written."""
    bench = Bench()
    bench.under_repair()
    before = bench.api.read(paths.node(NODE))
    assert bench.applier.apply(clients(bench, StopClients)).result is Result.DONE
    assert labels(bench) == {RACK: "r1", PLUGIN: OFF}
    outcome = bench.applier.apply(clients(bench, StartClients))
    assert (outcome.result, len(outcome.objects)) == (Result.DONE, 1)
    after = bench.api.read(paths.node(NODE))
    for one in (before, after):
        del one["metadata"]["resourceVersion"]
    assert after == before


def test_each_of_them_is_idempotent() -> None:
    """A leader that was killed after the request asks again, and nothing is sent."""
    bench = Bench()
    bench.under_repair()
    assert bench.applier.apply(clients(bench, StartClients)).result is Result.UNCHANGED
    bench.applier.apply(clients(bench, StopClients))
    writes = len(bench.api.writes())
    assert bench.applier.apply(clients(bench, StopClients)).result is Result.UNCHANGED
    assert len(bench.api.writes()) == writes


def test_what_somebody_else_set_is_left_alone() -> None:
    bench = Bench()
    bench.under_repair()
    bench.applier.apply(clients(bench, StopClients))
    bench.api.patch(paths.node(NODE), {"metadata": {"labels": {PLUGIN: "false"}}}, PatchType.MERGE)
    assert bench.applier.apply(clients(bench, StartClients)).result is Result.UNCHANGED
    assert labels(bench)[PLUGIN] == "false"


def test_the_guards_are_asked_before_a_client_is_switched_off() -> None:
    """It takes the GPUs from whoever comes back: as destructive as the repair itself."""
    bench = Bench(guard=lambda seen: f"a person is at {seen.node.metadata.name}")
    bench.under_repair()
    outcome = bench.applier.apply(clients(bench, StopClients))
    assert (outcome.result, outcome.why) == (Result.REFUSED, f"a person is at {NODE}")
    assert bench.api.writes() == []


def test_putting_back_asks_no_guard() -> None:
    """Whatever holds the rest."""
    bench = Bench(guard=lambda _: "paused")
    bench.under_repair()
    bench.api.patch(paths.node(NODE), {"metadata": {"labels": {PLUGIN: OFF}}}, PatchType.MERGE)
    assert bench.applier.apply(clients(bench, StartClients)).result is Result.DONE
    assert labels(bench)[PLUGIN] == "true"


@pytest.mark.parametrize("kind", [StopClients, StartClients])
def test_a_node_that_changed_since_is_a_conflict(kind: type[StopClients | StartClients]) -> None:
    bench = Bench()
    bench.under_repair()
    step = clients(bench, kind)
    bench.api.patch(paths.node(NODE), {"metadata": {"labels": {RACK: "r2"}}}, PatchType.MERGE)
    assert bench.applier.apply(step).result is Result.CONFLICT


def test_the_job_of_a_reset_is_told_the_gpus_that_are_persisted() -> None:
    """Not those of the plan: what is written down is what is reset."""
    bench = Bench()
    bench.under_repair()
    bench.api.patch(
        paths.remediation_status(INCIDENT), {"status": {"attempts": [raw(RESET)]}}, PatchType.MERGE
    )
    step = RunRepair(
        node=NODE, incident=INCIDENT, repair="reset-gpu", attempt=1, job=RESET.job, boot_id="boot-1"
    )
    assert bench.applier.apply(step).result is Result.DONE
    (container,) = bench.api.read(paths.job("nodemend-repairs", RESET.job))["spec"]["template"]["spec"][
        "containers"
    ]
    assert container["command"][:2] == ["nodemend-agent", "reset-gpu"]
    assert container["command"][container["command"].index("--uuid") + 1] == "GPU-5d0c"
    assert msgspec.json.encode(container["command"]).count(b"--uuid") == 1
