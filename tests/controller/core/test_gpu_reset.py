"""What a reset of single GPUs is not for: said before anything is touched, and the next rung follows."""

from typing import Any

import msgspec
import pytest

from controller.gpu_reset import with_clearings
from controller.guards import why_not_repair
from kube.nodehealth import CLEARED_LIMIT, ClearedPart, HealthPart
from kube.policy import Rung
from kube.remediation import Phase
from kube.types import ObjectMeta
from tests import build as make
from tests.build import NOW, SEEN
from tests.controller.core.gpu_node import (
    INCIDENT,
    LABELS,
    OFF_LABELS,
    PLUGIN,
    SICK,
    client,
    quiet,
    reset,
    resetting,
)
from tests.controller.core.stage import decide, drain_record, reboot, stage

EMPTY = drain_record(finished_at=SEEN)


def begun(**given: Any) -> Any:
    """Decide on a drained node whose ladder begins."""
    defaults: dict[str, Any] = {"evidence": [SICK], "drain": EMPTY, "attempts": ()}
    node = {"labels": LABELS, **given.pop("node", {})}
    return decide(stage(Phase.REPAIRING, node=node, **{**defaults, **given}))


def standalone(key: str, value: str) -> Any:
    """Build a device plugin that nobody's label moves."""
    pod = client("nvidia-device-plugin")
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, labels={key: value}))


def unnamed(finding: Any, **changes: Any) -> Any:
    part = HealthPart(kind="gpu", **{"pci": "0000:03:00", "index": 3, **changes})
    return msgspec.structs.replace(finding, part=part)


SWITCH = msgspec.structs.replace(
    make.reset_finding(reason="SxidLinkFatal"), part=HealthPart(kind="nvswitch", pci="0000:05:00")
)
PLUGIN_DS = [make.daemonset("nvidia-device-plugin", namespace="gpu-operator")]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        pytest.param({}, None, id="an H100"),
        pytest.param({"health": {"model": "NVIDIA H200"}}, None, id="an H200"),
        pytest.param({"health": {"model": "NVIDIA GB200"}}, None, id="a GB200"),
        pytest.param({"health": {"model": "NVIDIA A100 80GB PCIe"}}, None, id="an A100 on PCIe"),
        pytest.param({"health": {"model": "NVIDIA L40S"}}, None, id="an L40S"),
        pytest.param(
            {"health": {"model": "NVIDIA RTX PRO 6000 Blackwell Server Edition"}}, None, id="an RTX PRO 6000"
        ),
        pytest.param(
            {"health": {"model": "NVIDIA A100-SXM4-80GB"}},
            "NVSwitches",
            id="an A100 that may have NVSwitches",
        ),
        pytest.param({"health": {"model": "Tesla V100-SXM2-32GB"}}, "NVSwitches", id="older than Ampere"),
        pytest.param(
            {"health": {"model": "NVIDIA X900"}}, "NVIDIA X900 is not among", id="a model that nobody knows"
        ),
        pytest.param({"health": {"model": ""}}, "the model of GPU-3 is not known", id="no model"),
        pytest.param({"health": {"mig": True}}, "MIG is on at GPU-3", id="MIG"),
        pytest.param({"health": {"mig": False}}, None, id="MIG is off"),
        pytest.param({"health": {"gpus": 2}}, "NodeHealth reports no GPU-3", id="a GPU that is not there"),
        pytest.param({"evidence": [unnamed(SICK)]}, None, id="a finding without UUID is found by its slot"),
        pytest.param(
            {"evidence": [unnamed(SICK, pci="0000:99:00")]},
            "the UUID of the GPU at 0000:99:00 is not known",
            id="a GPU without UUID",
        ),
        pytest.param(
            {"evidence": [SICK, SWITCH]}, "SxidLinkFatal on nvswitch at 0000:05:00", id="a switch is ill too"
        ),
        pytest.param(
            {"pods": [standalone("name", "nvidia-device-plugin-ds")], "daemonsets": PLUGIN_DS},
            "gpu-operator/nvidia-device-plugin-x holds the GPUs",
            id="a device plugin that no label stops",
        ),
        pytest.param(
            {"pods": [standalone("app.kubernetes.io/name", "nvidia-device-plugin")], "daemonsets": PLUGIN_DS},
            "no label of the Node stops it",
            id="NVIDIA's own chart",
        ),
        pytest.param(
            {
                "pods": [client(PLUGIN)],
                "daemonsets": [make.daemonset("nvidia-device-plugin-daemonset", namespace="gpu-operator")],
            },
            None,
            id="GPU Operator's",
        ),
        pytest.param(
            {
                "pods": [client(PLUGIN)],
                "daemonsets": [make.daemonset("nvidia-device-plugin-daemonset", namespace="gpu-operator")],
                "node": {"labels": {}},
            },
            "no label of the Node stops it",
            id="GPU Operator's, on a Node without its labels",
        ),
    ],
)
def test_a_reset_is_refused_with_the_reason_and_the_next_rung_follows(
    given: dict[str, Any], why: str | None
) -> None:
    """Written down as an attempt, so that the story tells why the node was rebooted for one GPU."""
    decision = begun(**given)
    (attempt,) = decision.status.attempts
    assert (decision.phase, attempt.kind) == (Phase.REPAIRING, "reset-gpu")
    if why is None:
        assert (attempt.result, attempt.submitted_at) == ("", None)
        return
    assert (attempt.result, attempt.submitted_at, attempt.finished_at) == ("Refused", None, NOW)
    assert why in attempt.message
    follows = begun(**{**given, "attempts": (attempt,)}).status
    assert [one.kind for one in follows.attempts] == ["reset-gpu", "reboot"]
    assert follows.attempts[1].job.startswith("reboot-")


@pytest.mark.parametrize(
    ("evidence", "kind"),
    [
        pytest.param([make.finding()], "reboot", id="a GPU that fell off the bus"),
        pytest.param([make.finding(), make.reset_finding(index=5)], "reboot", id="beside one to reset"),
        pytest.param([SICK], "reset-gpu", id="a GPU to reset"),
        pytest.param([SICK, make.reset_finding(index=5)], "reset-gpu", id="two GPUs to reset"),
    ],
)
def test_the_default_ladder(evidence: Any, kind: str) -> None:
    """A reset first where it ends the fault; everything else is rebooted, as before."""
    (attempt,) = begun(evidence=evidence).status.attempts
    assert attempt.kind == kind
    if kind == "reset-gpu":
        assert [t.uuid for t in attempt.targets] == sorted(f.part.uuid for f in evidence)


@pytest.mark.parametrize(
    ("attempts", "evidence", "kind"),
    [
        pytest.param(
            (reset(result="Failed", submitted_at=SEEN),), [SICK], "reboot", id="a reset that failed"
        ),
        pytest.param(
            (reset(result="Failed", submitted_at=SEEN),),
            [make.finding(), SICK],
            "reboot",
            id="a reset that failed, and now the GPU is lost",
        ),
        pytest.param(
            (reboot(result="Failed", submitted_at=SEEN, job="reboot-x-1"),),
            [SICK],
            "reset-gpu",
            id="a reboot for another fault takes no reset away",
        ),
        pytest.param(
            (reset(result="Refused", finished_at=SEEN), reboot(number=2, result="Failed", submitted_at=SEEN)),
            [SICK],
            None,
            id="nothing is left",
        ),
    ],
)
def test_rungs_are_counted_for_each_repair(attempts: Any, evidence: Any, kind: str | None) -> None:
    """The ladder depends on the worst fault, which may be another one than at the last attempt."""
    decision = begun(attempts=attempts, evidence=evidence)
    if kind is None:
        assert decision.phase is Phase.ESCALATED
    else:
        assert decision.status.attempts[-1].kind == kind


def test_where_nothing_could_be_tried_the_reason_goes_to_the_person() -> None:
    """A ladder without a reboot ends at once."""
    policy = make.policy(ladder=(Rung(repair="reset-gpu"),))
    refused = reset(result="Refused", finished_at=SEEN, message="MIG is on at GPU-3")
    decision = begun(policy=policy, attempts=(refused,))
    assert decision.phase is Phase.ESCALATED
    assert "no repair could be done (reset-gpu: MIG is on at GPU-3)" in decision.message


def test_a_ladder_of_resets_alone_leaves_other_faults_to_a_person() -> None:
    """A reset does not bring a lost GPU back."""
    policy = make.policy(ladder=(Rung(repair="reset-gpu"),))
    decision = begun(policy=policy, evidence=[make.finding()])
    assert decision.phase is Phase.ESCALATED
    assert "has no repair for Xid79FallenOffBus" in decision.message


@pytest.mark.parametrize(
    ("fleet", "why"),
    [
        pytest.param(resetting(), None, id="before the clients are switched off"),
        pytest.param(quiet(), None, id="before the Job"),
        pytest.param(
            resetting(health={"mig": True}), "MIG is on", id="MIG, before the clients are switched off"
        ),
        pytest.param(quiet(health={"released": None}), "the agent has not let go", id="the agent is back"),
        pytest.param(
            quiet(node={"labels": {**OFF_LABELS, PLUGIN: "other"}}),
            "by somebody else",
            id="a label was changed",
        ),
        pytest.param(quiet(pods=[client(PLUGIN)]), "waiting for gpu-operator/", id="a client is there"),
        pytest.param(quiet(pods=[make.pod()]), "pods are on the node again", id="a pod is there"),
        pytest.param(quiet(policy=make.policy(paused=True)), "is paused", id="paused"),
    ],
)
def test_the_guards_of_a_reset_are_asked_again_on_what_was_read_that_moment(
    fleet: Any, why: str | None
) -> None:
    """Before the first client is switched off, and before the Job."""
    said = why_not_repair(fleet, fleet.remediations[INCIDENT], NOW)
    assert (said is None) == (why is None)
    assert (why or "") in (said or "")


def test_clearings_are_one_a_part_and_bounded() -> None:
    """The newest of a part counts; the oldest parts go where there are too many."""
    rows = [ClearedPart(uuid=f"GPU-{n}", before=SEEN) for n in range(CLEARED_LIMIT)]
    newer = ClearedPart(uuid="GPU-0", before=NOW)
    more = with_clearings(tuple(rows), [newer, ClearedPart(uuid="GPU-new", before=NOW)])
    assert len(more) == CLEARED_LIMIT
    assert newer in more
    assert [row.uuid for row in more][-2:] == ["GPU-0", "GPU-new"]
    assert with_clearings(more, [ClearedPart(uuid="GPU-0", before=SEEN)]) == more


def test_a_pod_of_a_client_that_ended_holds_nothing() -> None:
    done = msgspec.structs.replace(
        standalone("name", "nvidia-device-plugin-ds"), metadata=ObjectMeta(name="x", namespace="n")
    )
    done = msgspec.structs.replace(done, status=msgspec.structs.replace(done.status, phase="Failed"))
    (attempt,) = begun(pods=[done]).status.attempts
    assert attempt.result == ""
