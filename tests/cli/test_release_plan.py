"""What is ours on a Node, and what is taken off: each rule a row, and nothing of others in any patch."""

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.release_plan import (
    OwnedNode,
    Trace,
    Wanted,
    condition_body,
    doubt_lines,
    left_words,
    node_operations,
    trace,
    trace_lines,
)
from controller.gpu_clients import OFF
from kube.nodehealth import NodeHealth
from kube.remediation import QUARANTINE
from tests import fake_patch
from tests.cli.objects import AGENT, INCIDENT, health, mark, node, quarantined, written_by


def labelled(**labels: str) -> dict[str, Any]:
    made = quarantined()
    made["metadata"]["labels"] = labels
    return made


def look(raw: dict[str, Any], report: dict[str, Any] | None = None, **wanted: bool) -> Trace:
    seen = None if report is None else msgspec.convert(report, NodeHealth)
    return trace(msgspec.convert(raw, OwnedNode), seen, Wanted(**wanted))


CORDONS = [
    pytest.param(quarantined(), True, "", id="a cordon that we set is taken off"),
    pytest.param(quarantined(cordoned=False), False, "", id="a node that is not cordoned any more stays so"),
    pytest.param(
        quarantined(mark(unschedulableBefore=True, cordoned=False)),
        False,
        "it was cordoned before nodemend came",
        id="a cordon from before stays",
    ),
    pytest.param(
        quarantined(mark(unschedulableBefore=True)),
        False,
        "it was cordoned before nodemend came",
        id="a person's cordon that another automation took off and we put back stays",
    ),
    pytest.param(
        quarantined(mark(cordoned=False)),
        False,
        "nodemend did not cordon it",
        id="a later cordon of others stays",
    ),
    pytest.param(
        quarantined(mark(nodeUID="uid-of-before")),
        False,
        "another Node object of this name (UID uid-of-before)",
        id="an annotation that came with a copied Node proves nothing",
    ),
    pytest.param(
        quarantined({QUARANTINE: "{"}),
        False,
        "cannot be read",
        id="an annotation that cannot be read proves nothing",
    ),
    pytest.param(
        quarantined({}),
        False,
        "no annotation says that nodemend cordoned it",
        id="no annotation, no uncordon",
    ),
]


@pytest.mark.parametrize(("raw", "uncordon", "why"), CORDONS)
def test_whose_cordon_it_is(raw: dict[str, Any], uncordon: bool, why: str) -> None:
    """Only the annotation of this Node object makes a cordon ours; taint and annotation go in every case."""
    found = look(raw)
    assert (found.uncordon, found.held) == (uncordon, "")
    assert why in found.cordon_stays
    assert bool(found.cordon_stays) == bool(why)
    after = fake_patch.json_patch(raw, node_operations(msgspec.convert(raw, OwnedNode), found))
    assert after["metadata"]["annotations"] == {"example.com/note": "keep"}
    assert [taint["key"] for taint in after["spec"]["taints"]] == [
        "example.com/theirs",
        "node.kubernetes.io/unschedulable",
    ]
    assert after["spec"].get("unschedulable", False) == (raw["spec"]["unschedulable"] and not uncordon)
    assert not look(after).goes


@pytest.mark.parametrize(
    ("raw", "owner"),
    [
        pytest.param(
            labelled(**{"nvidia.com/gpu-driver-upgrade-state": "drain-required"}),
            "the GPU Operator's driver upgrade (drain-required)",
            id="a driver upgrade",
        ),
        pytest.param(
            labelled(**{"dgxc.nvidia.com/nvsentinel-state": "draining"}),
            "NVSentinel (draining)",
            id="NVSentinel",
        ),
    ],
)
def test_a_node_in_other_hands_is_left_for_now(raw: dict[str, Any], owner: str) -> None:
    """The controller would leave it too; by force it is put back all the same. Conditions are nobody else's."""
    found = look(raw, health("gpu-1", publishedConditions=["GpuXidError"]))
    assert owner in found.held
    assert node_operations(msgspec.convert(raw, OwnedNode), found) == []
    assert found.conditions == ("GpuXidError",)
    assert "left as it is for now" in "\n".join(trace_lines([found]))
    assert look(raw, force=True).uncordon


def test_gpu_clients_that_a_reset_switched_off_run_again() -> None:
    """The word that only we write says which; a value with another's word in it, or of another, is left."""
    labels = {
        "nvidia.com/gpu.deploy.device-plugin": OFF,
        "nvidia.com/gpu.deploy.dcgm": f"{OFF},paused-for-driver-upgrade",
        "nvidia.com/gpu.deploy.nvsm": "false",
        "nvidia.com/gpu.present": "true",
    }
    raw = labelled(**labels)
    found = look(raw)
    assert "1 GPU clients switched on again" in trace_lines([found])[0]
    after = fake_patch.json_patch(raw, node_operations(msgspec.convert(raw, OwnedNode), found))
    assert after["metadata"]["labels"] == {**labels, "nvidia.com/gpu.deploy.device-plugin": "true"}
    assert left_words(look(after)) == f"node gpu-1: label nvidia.com/gpu.deploy.dcgm ({OFF})"


def test_a_node_that_is_being_deleted_is_left_alone() -> None:
    """Uncordoned, it would take new work on its way out."""
    raw = quarantined()
    raw["metadata"]["deletionTimestamp"] = "2026-11-29T03:00:00Z"
    assert look(raw) == Trace(node="gpu-1")


def published(*types: str, **more: Any) -> dict[str, Any]:
    return health("gpu-1", publishedConditions=list(types), **more)


CONDITIONS = [
    pytest.param(
        [], published("GpuXidError"), {}, ["GpuXidError"], [], id="NodeHealth says that we wrote it"
    ),
    pytest.param(
        [AGENT], None, {}, ["GpuXidError", "FutureFault"], [], id="the Node's books say it, newer types too"
    ),
    pytest.param(
        [written_by("nodemend-controller", "GpuXidError")],
        None,
        {},
        ["GpuXidError"],
        [],
        id="the controller turned it Unknown",
    ),
    pytest.param(
        [AGENT, written_by("nodemend-scheduler", "PodStartFailing")],
        None,
        {},
        ["GpuXidError", "FutureFault", "PodStartFailing"],
        [],
        id="the scheduler said that pods fail to start",
    ),
    pytest.param([], None, {}, [], ["GpuXidError", "PodStartFailing"], id="only their names are ours"),
    pytest.param(
        [],
        None,
        {"by_name": True},
        ["GpuXidError", "PodStartFailing"],
        [],
        id="only their names are ours, and the user says so",
    ),
    pytest.param(
        [AGENT, written_by("their-detector", "GpuXidError")],
        None,
        {},
        ["FutureFault"],
        ["GpuXidError"],
        id="two writers in the books: not proven",
    ),
    pytest.param(
        [],
        published("GpuXidError", nodeUID="uid-of-before"),
        {},
        [],
        ["GpuXidError"],
        id="a NodeHealth of another Node object proves nothing",
    ),
    pytest.param(
        [written_by("nodemend-agent", "Ready")],
        published("Ready", "GpuXidError", "MemoryPressure"),
        {},
        ["GpuXidError"],
        [],
        id="Kubernetes' own are never ours, whatever anybody wrote",
    ),
    pytest.param(
        [AGENT], published("GpuXidError"), {"conditions": False}, [], [], id="agents still publish them"
    ),
    pytest.param(
        [{"manager": "nodemend-agent", "fieldsV1": {"f:status": {"f:conditions": {"k:{": {}, "v:1": {}}}}}],
        None,
        {},
        [],
        ["GpuXidError"],
        id="books that cannot be read prove nothing",
    ),
]


@pytest.mark.parametrize(("books", "report", "wanted", "gone", "doubtful"), CONDITIONS)
def test_whose_condition_it_is(
    books: list[dict[str, Any]],
    report: dict[str, Any] | None,
    wanted: dict[str, bool],
    gone: list[str],
    doubtful: list[str],
) -> None:
    """A condition goes where it is recorded as ours; a name alone needs the user's word."""
    raw = node("gpu-1")
    raw["metadata"]["managedFields"] = books
    raw["status"]["conditions"] += [
        {"type": "FutureFault", "status": "False"},
        {"type": "TheirFault", "status": "True"},
        *({"type": kind, "status": "False"} for kind in ("PodStartFailing",) if kind in (*gone, *doubtful)),
    ]
    found = look(raw, report, **wanted)
    assert (list(found.conditions), list(found.doubtful)) == (gone, doubtful)
    after = fake_patch.strategic(raw, condition_body(msgspec.convert(raw, OwnedNode), found))
    kept = [one["type"] for one in raw["status"]["conditions"] if one["type"] not in gone]
    assert [one["type"] for one in after["status"]["conditions"]] == kept
    assert all(kind in left_words(found) for kind in gone)
    assert all(kind in doubt_lines([found])[0] for kind in doubtful)


def test_the_plan_sums_conditions_up_and_names_marked_nodes() -> None:
    """1,500 nodes with conditions are one line, two quarantined ones are two."""
    many = [Trace(node=f"gpu-{n}", conditions=("GpuXidError", "GpuMissing")) for n in range(1500)]
    marked = look(quarantined(mark(unschedulableBefore=True)))
    assert trace_lines([*many, marked]) == [
        "conditions are removed: GpuMissing on 1500, GpuXidError on 1500",
        f"gpu-1: taint, annotation of {INCIDENT} removed; it stays cordoned: it was cordoned before nodemend came",
        "conditions stay, since nothing says who wrote them: GpuXidError on 1 (--conditions-by-name)",
    ]


_TAINTS = st.lists(
    st.sampled_from(
        [
            {"key": QUARANTINE, "value": INCIDENT, "effect": "NoSchedule"},
            {"key": QUARANTINE, "value": "inc-ffffffffffff", "effect": "NoExecute"},
            {"key": "nodemend.dev/other", "value": "x", "effect": "NoSchedule"},
            {"key": "karpenter.sh/unregistered", "effect": "NoExecute"},
            {"key": "example.com/a", "value": INCIDENT, "effect": "NoSchedule"},
        ]
    ),
    max_size=8,
)


@given(taints=_TAINTS, cordoned=st.booleans(), before=st.booleans(), ours=st.booleans(), marked=st.booleans())
def test_nothing_of_others_ever_changes(
    taints: list[dict[str, str]], cordoned: bool, before: bool, ours: bool, marked: bool
) -> None:
    """Whatever stands on a Node, what is not ours is the same afterwards, in the same order."""
    raw = quarantined(mark(unschedulableBefore=before, cordoned=ours) if marked else {}, cordoned=cordoned)
    raw["spec"]["taints"] = taints
    held = copy.deepcopy(raw)
    found = look(raw)
    after = fake_patch.json_patch(raw, node_operations(msgspec.convert(raw, OwnedNode), found))
    assert raw == held
    assert after["spec"]["taints"] == [taint for taint in taints if taint["key"] != QUARANTINE]
    assert after["metadata"]["annotations"] == {"example.com/note": "keep"}
    uncordoned = cordoned and not after["spec"].get("unschedulable", False)
    assert uncordoned == (cordoned and marked and ours and not before)
    assert after["status"] == raw["status"]
