"""controller.node_patch against a server: what is not ours is never written, and what is ours is put back exactly."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller import node_patch
from controller.steps import Quarantine, Restore, Silence
from kube import paths
from kube.api import Conflict, PatchType
from kube.remediation import NodeBefore
from kube.types import Node
from tests.controller.shell.samples import INCIDENT, NODE, NOW, UID, node_json
from tests.fakes import FakeApi

OURS = {"key": "nodemend.dev/quarantine", "value": INCIDENT, "effect": "NoSchedule"}


def server(**changes: Any) -> FakeApi:
    """Run a server with one Node."""
    api = FakeApi()
    api.add(paths.nodes(), node_json(**changes))
    return api


def read(api: FakeApi) -> Node:
    """Read the Node as the controller does."""
    return msgspec.json.decode(api.get(paths.node(NODE)), type=Node)


def quarantine(api: FakeApi, *, cordoned: bool = True, tainted: bool = True) -> None:
    """Quarantine the Node as it stands."""
    node = read(api)
    before = NodeBefore(unschedulable=node.spec.unschedulable, cordoned=cordoned, tainted=tainted, at=NOW)
    step = Quarantine(
        node=NODE,
        node_uid=UID,
        resource_version=node.metadata.resource_version,
        incident=INCIDENT,
        before=before,
    )
    api.patch(paths.node(NODE), node_patch.quarantine(step, node), PatchType.JSON)


def restore_step(node: Node, **changes: Any) -> Restore:
    """Ask for everything back."""
    values: dict[str, Any] = {"incident": INCIDENT, "uncordon": True, "untaint": True}
    return Restore(
        node=NODE,
        node_uid=UID,
        resource_version=node.metadata.resource_version,
        **{**values, **changes},
    )


def restore(api: FakeApi, **changes: Any) -> bool:
    """Restore the Node as it stands; tells whether there was anything to do."""
    node = read(api)
    operations = node_patch.restore(restore_step(node, **changes), node)
    if operations:
        api.patch(paths.node(NODE), operations, PatchType.JSON)
    return bool(operations)


def facts(api: FakeApi) -> dict[str, Any]:
    """What counts of a Node: everything but the version."""
    node = api.read(paths.node(NODE))
    return {**node, "metadata": {k: v for k, v in node["metadata"].items() if k != "resourceVersion"}}


def test_one_patch_cordons_taints_and_says_whose_it_is() -> None:
    """Three changes or none; the other's taint stays, unknown fields included."""
    api = server()
    quarantine(api)
    node = api.read(paths.node(NODE))
    assert len(api.writes()) == 1
    assert node["spec"]["unschedulable"] is True
    assert node["spec"]["taints"] == [node_json()["spec"]["taints"][0], OURS]
    assert f'"incident":"{INCIDENT}"' in node["metadata"]["annotations"]["nodemend.dev/quarantine"]


@pytest.mark.parametrize(
    ("body", "cordoned", "tainted"),
    [
        pytest.param({}, True, True, id="a node with another's taint"),
        pytest.param({"spec": {"taints": []}}, True, True, id="a node without taints"),
        pytest.param({"spec": {"unschedulable": True}}, False, True, id="a node that a person had cordoned"),
        pytest.param({}, True, False, id="a node whose DaemonSets would not come back"),
        pytest.param(
            {"metadata": {"annotations": {"a/b~c": "x", "nodemend.dev/other": "y"}}},
            True,
            True,
            id="odd annotations",
        ),
    ],
)
def test_a_restore_puts_back_exactly_what_was_found(
    body: dict[str, Any], cordoned: bool, tainted: bool
) -> None:
    """Before and after are equal but for the version, whatever stood there."""
    api = server(**body)
    before = facts(api)
    quarantine(api, cordoned=cordoned, tainted=tainted)
    assert restore(api)
    assert facts(api) == before


def test_what_others_did_meanwhile_stays() -> None:
    """A taint and an annotation set during the incident are not ours to take."""
    api = server()
    quarantine(api)
    api.patch(
        paths.node(NODE),
        [
            {"op": "add", "path": "/spec/taints/0", "value": {"key": "late", "effect": "NoExecute"}},
            {"op": "add", "path": "/metadata/annotations/late", "value": "1"},
        ],
        PatchType.JSON,
    )
    restore(api)
    node = api.read(paths.node(NODE))
    assert [taint["key"] for taint in node["spec"]["taints"]] == ["late", "example.com/team"]
    assert node["metadata"]["annotations"] == {"example.com/rack": "r1", "late": "1"}


@pytest.mark.parametrize(
    "annotation",
    [
        pytest.param(None, id="the mark is gone"),
        pytest.param("{", id="the mark cannot be read"),
        pytest.param('{"incident":"inc-other"}', id="the mark is another incident's"),
        pytest.param(
            f'{{"incident":"{INCIDENT}","nodeUID":"{UID}","unschedulableBefore":true,"cordoned":false,'
            '"tainted":true,"at":"2026-01-01T00:00:00Z"}',
            id="the mark says that a person had cordoned",
        ),
        pytest.param(
            f'{{"incident":"{INCIDENT}","nodeUID":"other","unschedulableBefore":false,"cordoned":true,'
            '"tainted":true,"at":"2026-01-01T00:00:00Z"}',
            id="the mark was copied from another Node object",
        ),
    ],
)
def test_a_cordon_without_proof_that_it_is_ours_is_never_taken_back(annotation: str | None) -> None:
    """Even where the step asks for it; our own taint goes all the same."""
    marks = {} if annotation is None else {"nodemend.dev/quarantine": annotation}
    api = server(metadata={"annotations": marks}, spec={"unschedulable": True, "taints": [OURS]})
    restore(api)
    node = api.read(paths.node(NODE))
    assert node["spec"] == {"providerID": "test:///gpu-7", "unschedulable": True, "taints": []}


def test_where_nothing_of_ours_is_left_nothing_is_sent() -> None:
    """A second restore after a crash is no request at all."""
    api = server()
    assert restore(api) is False


@pytest.mark.parametrize("change", ["recreated", "changed"])
def test_a_node_that_is_another_one_now_refuses_the_patch(change: str) -> None:
    """Version and UID are those of the decision; anything else is a conflict, decided anew."""
    api = server()
    node = read(api)
    if change == "recreated":
        api.remove(paths.node(NODE))
        api.add(paths.nodes(), node_json(metadata={"uid": "another"}))
    else:
        api.patch(paths.node(NODE), {"spec": {"unschedulable": True}}, PatchType.MERGE)
    before = NodeBefore(unschedulable=False, cordoned=True, tainted=True, at=NOW)
    step = Quarantine(
        node=NODE,
        node_uid=UID,
        resource_version=node.metadata.resource_version,
        incident=INCIDENT,
        before=before,
    )
    with pytest.raises(Conflict):
        api.patch(paths.node(NODE), node_patch.quarantine(step, node), PatchType.JSON)


def test_a_second_quarantine_takes_the_place_of_an_older_taint() -> None:
    """One taint of ours at most, with the incident that holds the node now."""
    api = server(spec={"taints": [{**OURS, "value": "inc-old"}]})
    quarantine(api)
    assert api.read(paths.node(NODE))["spec"]["taints"] == [OURS]


@given(
    others=st.lists(st.sampled_from(["a", "b", "nodemend.dev/quarantine", "c"]), max_size=5, unique=True),
    unschedulable=st.booleans(),
    tainted=st.booleans(),
)
def test_quarantine_then_restore_is_nothing(others: list[str], unschedulable: bool, tainted: bool) -> None:
    """For any taints that are not ours to begin with, and any cordon."""
    taints = [{"key": key, "effect": "NoExecute"} for key in others]
    api = server(spec={"taints": taints, **({"unschedulable": True} if unschedulable else {})})
    before = facts(api)
    quarantine(api, cordoned=not unschedulable, tainted=tainted)
    restore(api)
    assert facts(api) == before


def test_silence_moves_the_time_of_transition_only_with_the_status() -> None:
    """False to Unknown is a transition; True that is confirmed late is none."""
    api = server()
    node = read(api)
    step = Silence(
        node=NODE,
        node_uid=UID,
        resource_version=node.metadata.resource_version,
        conditions=(
            ("GpuXidError", "Unknown", "AgentSilent", "silent"),
            ("Ready", "True", "KubeletReady", "last confirmed at x"),
        ),
    )
    api.patch(paths.node_status(NODE), node_patch.silence(step, node, NOW), PatchType.STRATEGIC)
    times = {
        condition["type"]: (condition["status"], condition["lastTransitionTime"])
        for condition in api.read(paths.node(NODE))["status"]["conditions"]
    }
    assert times == {
        "GpuXidError": ("Unknown", "2026-01-01T12:00:00Z"),
        "Ready": ("True", "2026-01-01T00:00:00Z"),
    }
