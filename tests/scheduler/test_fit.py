"""What a node's own properties and a pod's own words refuse, and in which words."""

from typing import Any

import pytest

from controller.scheduler import fit
from controller.scheduler.cycle import open_session
from controller.scheduler.model import Settings
from controller.scheduler.nodes import Node
from controller.scheduler.requests import Constraints, Expression, NodeTerm, Request, Taint, Toleration
from controller.scheduler.rules import COMPATIBLE, DEFAULT, Rules
from tests.scheduler import words

LABELS = {"disk": "ssd", "slots": "16", "zone": "a"}
CPU_POD = Request(cpu_milli=1000)
GPU_POD = Request(gpus=1, cpu_milli=1000)
HALF = Request(portion=500, cpu_milli=1000)
MEMORY = Request(gpu_memory_mib=1000, cpu_milli=1000)
SLICE = Request(mig=(("1g.10gb", 1),), cpu_milli=1000)

AFFINITY = "node(s) didn't match Pod's node affinity/selector"
CORDON = "node(s) were unschedulable"
PASSES_CORDON = Toleration(key="node.kubernetes.io/unschedulable", operator="Exists", effect="NoSchedule")


def refusal(
    node: Node,
    request: Request = GPU_POD,
    *,
    rules: Rules = DEFAULT,
    settings: Settings | None = None,
    **wishes: Any,
) -> str | None:
    """Ask one empty node about one pod."""
    job = words.job("a", "q", request=request, constraints=Constraints(**wishes))
    snapshot = words.cluster([node], [words.queue("q", 8)], [job], settings=settings)
    session = open_session(snapshot, rules)
    (task,) = session.ledger.tasks.values()
    return fit.why_not(session, task, session.ledger.nodes[0], False)


def expression(key: str, operator: str, *values: str) -> tuple[NodeTerm, ...]:
    """Give one alternative of required node affinity with one requirement."""
    return (NodeTerm(expressions=(Expression(key=key, operator=operator, values=values),)),)


@pytest.mark.parametrize(
    ("required", "fits"),
    [
        pytest.param(expression("zone", "In", "a", "b"), True, id="a value of the list"),
        pytest.param(expression("zone", "In", "b"), False, id="none of the list"),
        pytest.param(expression("rack", "In", ""), False, id="no label is no empty value"),
        pytest.param(expression("zone", "NotIn", "a"), False, id="a value of the ban"),
        pytest.param(expression("rack", "NotIn", "a"), True, id="no label passes a ban"),
        pytest.param(expression("disk", "Exists"), True, id="label is there"),
        pytest.param(expression("rack", "Exists"), False, id="label is not there"),
        pytest.param(expression("rack", "DoesNotExist"), True, id="label is away as asked"),
        pytest.param(expression("slots", "Gt", "15"), True, id="greater as a number, not as text"),
        pytest.param(expression("slots", "Gt", "16"), False, id="equal is not greater"),
        pytest.param(expression("slots", "Lt", "100"), True, id="lower as a number, not as text"),
        pytest.param(expression("disk", "Gt", "1"), False, id="a word is no number"),
        pytest.param(expression("slots", "Gt", "1", "2"), False, id="two numbers are none"),
        pytest.param(expression("zone", "Like", "a"), False, id="an unknown operator holds for nothing"),
        pytest.param((NodeTerm(),), False, id="an empty term matches no node"),
        pytest.param((NodeTerm(), *expression("zone", "In", "a")), True, id="one alternative is enough"),
    ],
)
def test_required_node_affinity(required: tuple[NodeTerm, ...], fits: bool) -> None:
    """A node takes the pod if any term holds whole."""
    assert refusal(words.node("n", labels=LABELS), required=required) == (None if fits else AFFINITY)


@pytest.mark.parametrize(
    ("key", "values", "fits"),
    [
        pytest.param("metadata.name", ("n",), True, id="its own name"),
        pytest.param("metadata.name", ("m",), False, id="another name"),
        pytest.param("metadata.uid", ("n",), False, id="no other field can be asked"),
    ],
)
def test_match_fields(key: str, values: tuple[str, ...], fits: bool) -> None:
    """Terms may name a node by metadata.name and by nothing else."""
    term = NodeTerm(fields=(Expression(key=key, operator="In", values=values),))
    assert (refusal(words.node("n"), required=(term,)) is None) == fits


def test_node_selector_needs_every_label() -> None:
    """All pairs of nodeSelector must be on the node."""
    node = words.node("n", labels=LABELS)
    assert refusal(node, node_selector=(("disk", "ssd"), ("zone", "a"))) is None
    assert refusal(node, node_selector=(("disk", "ssd"), ("zone", "b"))) == AFFINITY


def test_every_volume_must_be_reachable() -> None:
    """Volumes are a conjunction of alternatives."""
    node = words.node("n", labels=LABELS)
    here, there = expression("zone", "In", "a"), expression("zone", "In", "b")
    assert refusal(node, volumes=(here, here + there)) is None
    assert refusal(node, volumes=(here, there)) == "node(s) had volume node affinity conflict"


@pytest.mark.parametrize(
    ("taint", "tolerations", "why"),
    [
        pytest.param(
            Taint(key="team", value="x", effect="NoSchedule"),
            (),
            "node(s) had untolerated taint {team: x}",
            id="NoSchedule keeps off",
        ),
        pytest.param(
            Taint(key="gone", effect="NoExecute"),
            (),
            "node(s) had untolerated taint {gone}",
            id="NoExecute keeps off too",
        ),
        pytest.param(Taint(key="full", effect="PreferNoSchedule"), (), None, id="a soft taint does not"),
        pytest.param(
            Taint(key="team", value="x", effect="NoSchedule"),
            (Toleration(key="team", value="x", effect="NoSchedule"),),
            None,
            id="tolerated by value",
        ),
        pytest.param(
            Taint(key="team", value="x", effect="NoSchedule"),
            (Toleration(key="team", value="y"),),
            "node(s) had untolerated taint {team: x}",
            id="another value is not tolerated",
        ),
        pytest.param(
            Taint(key="team", value="x", effect="NoExecute"),
            (Toleration(key="team", operator="Exists", effect="NoSchedule"),),
            "node(s) had untolerated taint {team: x}",
            id="another effect is not tolerated",
        ),
        pytest.param(
            Taint(key="team", value="x", effect="NoExecute"),
            (Toleration(operator="Exists"),),
            None,
            id="Exists without a key tolerates all",
        ),
    ],
)
@pytest.mark.parametrize("rules", [DEFAULT, COMPATIBLE], ids=["ours", "KAI's"])
def test_taints(taint: Taint, tolerations: tuple[Toleration, ...], why: str | None, rules: Rules) -> None:
    """Hard taints keep off whoever does not tolerate them, in both modes."""
    assert refusal(words.node("n", taints=(taint,)), tolerations=tolerations, rules=rules) == why


@pytest.mark.parametrize(
    ("rules", "tolerations", "why"),
    [
        pytest.param(DEFAULT, (), CORDON, id="nobody told it"),
        pytest.param(DEFAULT, (PASSES_CORDON,), None, id="ours may be tolerated"),
        pytest.param(COMPATIBLE, (PASSES_CORDON,), CORDON, id="KAI's may not"),
    ],
)
def test_a_cordon(rules: Rules, tolerations: tuple[Toleration, ...], why: str | None) -> None:
    """A cordon is the unschedulable taint, which KAI lets nobody tolerate."""
    assert refusal(words.node("n", cordoned=True), rules=rules, tolerations=tolerations) == why


@pytest.mark.parametrize(
    ("changes", "request_", "why"),
    [
        pytest.param({"closed": "NotReady"}, CPU_POD, "NotReady", id="a closed node takes nobody"),
        pytest.param({"no_new_gpu": "GpuXidError"}, GPU_POD, "GpuXidError", id="unfenced card, GPU pod"),
        pytest.param({"no_new_gpu": "GpuXidError"}, HALF, "GpuXidError", id="unfenced card, shared pod"),
        pytest.param({"no_new_gpu": "GpuXidError"}, CPU_POD, None, id="unfenced card, CPU pod"),
        pytest.param({"no_multi_gpu": "NvLinkDown"}, GPU_POD, None, id="dead NVLink, one GPU"),
        pytest.param(
            {"no_multi_gpu": "NvLinkDown"}, Request(gpus=2), "NvLinkDown", id="dead NVLink, two GPUs"
        ),
        pytest.param(
            {"no_multi_gpu": "NvLinkDown"},
            Request(portion=500, devices=2),
            "NvLinkDown",
            id="dead NVLink, shares of two GPUs",
        ),
        pytest.param({"no_multi_node": "PortDown"}, GPU_POD, None, id="slow port, a pod alone"),
        pytest.param(
            {"no_multi_node": "PortDown"}, Request(gpus=1, rdma=True), "PortDown", id="slow port, RDMA"
        ),
        pytest.param({"avoid": "PcieSpeedReduced"}, GPU_POD, None, id="to avoid is not refused"),
        pytest.param(
            {"mig": {"1g.10gb": 2}, "gpus": 0, "no_new_mig": "old pod"}, SLICE, "old pod", id="old MIG pod"
        ),
    ],
)
def test_what_a_sick_node_still_takes(changes: dict[str, Any], request_: Request, why: str | None) -> None:
    """Effects narrow a node for those that they hurt, and for nobody else."""
    assert refusal(words.node("n", **changes), request_) == why


@pytest.mark.parametrize(
    ("changes", "request_", "fits"),
    [
        pytest.param({}, SLICE, False, id="MIG pod, whole cards"),
        pytest.param({"mig": {"1g.10gb": 1}, "mig_strategy": "mixed"}, SLICE, True, id="MIG pod, mixed"),
        pytest.param({"mig": {"1g.10gb": 1}, "mig_strategy": "mixed"}, GPU_POD, False, id="GPU pod, mixed"),
        pytest.param({"mig": {"1g.10gb": 1}, "mig_strategy": "mixed"}, HALF, False, id="share, mixed"),
        pytest.param({"mig": {"1g.10gb": 1}, "mig_strategy": "mixed"}, CPU_POD, True, id="CPU pod, mixed"),
        pytest.param({"mig": {"1g.10gb": 1}, "mig_strategy": "single"}, SLICE, False, id="MIG pod, single"),
        pytest.param({"mig": {"1g.10gb": 1}, "mig_strategy": "single"}, HALF, False, id="share, single"),
        pytest.param({"mig_strategy": "single"}, HALF, False, id="share, single, by strategy alone"),
        pytest.param({"mig_strategy": "single"}, GPU_POD, True, id="GPU pod, single, by strategy alone"),
        pytest.param({"gpu_memory_known": False}, MEMORY, False, id="memory asked, none known"),
        pytest.param({"gpu_memory_known": False}, HALF, True, id="portion asked, no memory known"),
    ],
)
@pytest.mark.parametrize("rules", [DEFAULT, COMPATIBLE], ids=["ours", "KAI's"])
def test_the_kind_of_node(changes: dict[str, Any], request_: Request, fits: bool, rules: Rules) -> None:
    """Cut cards, whole cards and shares do not mix."""
    assert (refusal(words.node("n", **changes), request_, rules=rules) is None) == fits


@pytest.mark.parametrize(
    ("label", "request_", "fits"),
    [
        pytest.param(fit.GPU_WORKER_LABEL, GPU_POD, True, id="GPU pod, GPU worker"),
        pytest.param(fit.GPU_WORKER_LABEL, CPU_POD, False, id="CPU pod, GPU worker"),
        pytest.param(fit.CPU_WORKER_LABEL, CPU_POD, True, id="CPU pod, CPU worker"),
        pytest.param(fit.CPU_WORKER_LABEL, GPU_POD, False, id="GPU pod, CPU worker"),
    ],
)
def test_restricted_nodes(label: str, request_: Request, fits: bool) -> None:
    """With restrict_node_scheduling nodes take pods of their own kind; without it labels mean nothing."""
    node = words.node("n", labels={label: ""})
    assert (refusal(node, request_, settings=Settings(restrict_node_scheduling=True)) is None) == fits
    assert refusal(node, request_) is None


def test_old_mig_annotations_fit_nowhere() -> None:
    """A pod that asks by annotation finds no node, KAI having dropped that form."""
    assert refusal(words.node("n"), Request(legacy_mig=True)) is not None


def test_what_is_missing_keeps_a_pod_off_every_node() -> None:
    """A ConfigMap or PVC that does not exist is said first."""
    assert refusal(words.node("n"), missing=('configmap "c"',)) == 'configmap "c" not found'


def test_without_predicates_only_health_kind_and_room_count() -> None:
    """Cases that run without the predicates plugin check no taint and no affinity; a closed node stays closed."""
    free = Settings(predicates=False)
    node = words.node("n", taints=(Taint(key="t", effect="NoSchedule"),))
    assert refusal(node, required=expression("zone", "In", "b"), settings=free) is None
    assert refusal(words.node("n", closed="NotReady"), settings=free) == "NotReady"
    assert refusal(words.node("n"), SLICE, settings=free) is not None


@pytest.mark.parametrize(
    ("taken", "wanted", "fits"),
    [
        pytest.param(("TCP", "", 80), ("TCP", "", 80), False, id="same port"),
        pytest.param(("", "", 80), ("TCP", "", 80), False, id="TCP is the default"),
        pytest.param(("UDP", "", 80), ("TCP", "", 80), True, id="another protocol"),
        pytest.param(("TCP", "", 80), ("TCP", "", 81), True, id="another port"),
        pytest.param(("TCP", "10.0.0.1", 80), ("TCP", "10.0.0.2", 80), True, id="another address"),
        pytest.param(("TCP", "10.0.0.1", 80), ("TCP", "0.0.0.0", 80), False, id="every address"),  # noqa: S104
    ],
)
def test_host_ports(taken: tuple[str, str, int], wanted: tuple[str, str, int], fits: bool) -> None:
    """A host port is free for a protocol and an address, where every address meets all."""
    runs = words.job("a", "q", on=[("n", [0])], constraints=Constraints(ports=(taken,)))
    waits = words.job("b", "q", constraints=Constraints(ports=(wanted,)))
    session = open_session(words.cluster([words.node("n")], [words.queue("q", 8)], [runs, waits]), DEFAULT)
    why = fit.why_not(session, session.ledger.tasks["b-0"], session.ledger.nodes[0], False)
    assert why == (None if fits else fit.PORTS_REFUSED)


def test_an_evicted_pod_leaves_its_port_to_who_comes_later() -> None:
    """What this cycle evicts no longer holds its port in the books; the pod that follows waits for it anyway."""
    port = Constraints(ports=(("TCP", "", 80),))
    runs = words.job("a", "q", on=[("n", [0])], constraints=port)
    waits = words.job("b", "q", constraints=port)
    session = open_session(words.cluster([words.node("n")], [words.queue("q", 8)], [runs, waits]), DEFAULT)
    node, task = session.ledger.nodes[0], session.ledger.tasks["b-0"]
    mark = session.ledger.mark()
    session.ledger.evict(session.ledger.tasks["a-0"], "for b")
    assert fit.why_not(session, task, node, True) is None
    session.ledger.undo_to(mark)
    assert fit.why_not(session, task, node, True) == fit.PORTS_REFUSED
