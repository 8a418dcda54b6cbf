"""`kubectl-nodemend drill` on the real API server, and an agent that is told nothing else."""

import io
import json
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout

import pytest

from cli.__main__ import run
from kube import paths
from kube.api import ApiError, PatchType
from kube.clock import SYSTEM
from sandbox import nodes as simulated
from sandbox.agents import AgentHost
from sandbox.cluster import Sandbox
from sandbox.identities import AgentIdentities
from sandbox.install import install
from sandbox.nodes import SimulatedNode
from tests.fakes import wait_until

pytestmark = [pytest.mark.cluster]
NAME = "drill-node"


@pytest.fixture(scope="module")
def node(sandbox: Sandbox) -> Iterator[SimulatedNode]:
    """A node with its agent; no controller."""
    install(sandbox, "observe")
    (made,) = simulated.create(sandbox, [NAME])
    identities = AgentIdentities(sandbox)
    host = AgentHost(identities, [made])
    host.start()
    try:
        wait_until(lambda: _condition(sandbox, "GpuXidError") == "False", 30)
        yield made
    finally:
        host.stop()
        identities.close()
        made.delete(sandbox.admin)
        made.close()


def _condition(sandbox: Sandbox, kind: str) -> str:
    conditions = json.loads(sandbox.admin.get(paths.node(NAME)))["status"].get("conditions", [])
    return next((str(one["status"]) for one in conditions if one["type"] == kind), "")


def _message(sandbox: Sandbox, kind: str) -> str:
    conditions = json.loads(sandbox.admin.get(paths.node(NAME)))["status"]["conditions"]
    return next(str(one["message"]) for one in conditions if one["type"] == kind)


def _type(sandbox: Sandbox, *words: str) -> tuple[int, str]:
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        code = run(words, open_api=lambda _: sandbox.admin, clock=SYSTEM)
    return code, out.getvalue()


def test_a_drill_is_found_within_seconds_and_ends_when_it_is_told(
    sandbox: Sandbox, node: SimulatedNode
) -> None:
    """The condition says that it is a drill; the spec of the Node is not touched."""
    before = json.loads(sandbox.admin.get(paths.node(NAME)))["spec"]
    code, said = _type(sandbox, "drill", node.name, "Xid79FallenOffBus", "--part", "3")
    assert code == 0, said

    wait_until(lambda: _condition(sandbox, "GpuXidError") == "True", 15)
    assert _message(sandbox, "GpuXidError").startswith("drill: GPU 3")
    wait_until(lambda: bool(_findings(sandbox)), 15)
    found = [(one["reason"], one["drill"]) for one in _findings(sandbox)]
    assert found == [("Xid79FallenOffBus", True)]
    assert json.loads(sandbox.admin.get(paths.node(NAME)))["spec"] == before

    assert _type(sandbox, "drill", node.name, "--end")[0] == 0
    wait_until(lambda: _condition(sandbox, "GpuXidError") == "False", 15)


def test_a_warning_is_drilled_without_a_condition_and_told_in_an_event(
    sandbox: Sandbox, node: SimulatedNode
) -> None:
    """Under the agent's own rights and admission policy; conditions stay as they are."""
    before = json.loads(sandbox.admin.get(paths.node(NAME)))["status"]["conditions"]
    code, said = _type(sandbox, "drill", node.name, "KubeletDown")
    assert code == 0, said
    wait_until(lambda: "drill: node: KubeletDown" in _notes(sandbox), 15)
    after = json.loads(sandbox.admin.get(paths.node(NAME)))["status"]["conditions"]
    assert [(one["type"], one["status"]) for one in after] == [(one["type"], one["status"]) for one in before]
    assert _type(sandbox, "drill", node.name, "--end")[0] == 0
    wait_until(lambda: not _findings(sandbox), 15)


def _findings(sandbox: Sandbox) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(sandbox.admin.get(paths.node_health(NAME)))["status"].get(
        "findings", []
    )
    return found


def _notes(sandbox: Sandbox) -> list[str]:
    events = json.loads(sandbox.admin.get(paths.events("default")))["items"]
    return [str(one["note"]).partition(" (")[0] for one in events if one["regarding"]["name"] == NAME]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param({"until": "2026-05-04T14:00:01Z"}, "an hour at most", id="longer than an hour"),
        pytest.param({"reason": "no reason"}, "reason", id="a reason that is none"),
        pytest.param({"part": {"kind": "toaster"}}, "kind", id="a part that is none"),
    ],
)
def test_the_server_refuses_what_is_no_drill(
    sandbox: Sandbox, node: SimulatedNode, change: dict[str, object], said: str
) -> None:
    """Whoever writes it."""
    row: dict[str, object] = {
        "id": "d1",
        "reason": "Xid79FallenOffBus",
        "part": {"kind": "gpu"},
        "since": "2026-05-04T12:00:00Z",
        "until": "2026-05-04T13:00:00Z",
    }
    with pytest.raises(ApiError, match=said):
        sandbox.admin.patch(
            paths.node_health(node.name), {"spec": {"drills": [{**row, **change}]}}, PatchType.MERGE
        )
