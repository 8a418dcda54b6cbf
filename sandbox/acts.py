"""What the demo waits for: the milestones of one closed loop, as questions about the objects that kubectl shows.

The order is the order in which they are expected; each is asked on its own, so that a step that happens out of order is
seen where it happens.
"""

from kube.remediation import Attempt, Phase, Remediation
from kube.types import Node
from sandbox.story import Milestone, Scene

CONDITION = "GpuXidError"
TAINT = "nodemend.dev/quarantine"


def loop_milestones(
    boot_id_before: str, work_pods_before: int, condition: str = CONDITION
) -> tuple[Milestone, ...]:
    """Give the milestones of one fault, shown by `condition`, that is repaired by a reboot.

    `boot_id_before` is the Node's boot id when the fault is injected, `work_pods_before` the pods that must leave.
    """
    return (
        Milestone(
            name="condition",
            title="condition True",
            seen=lambda scene: _condition_true(scene, condition),
        ),
        Milestone(name="incident", title="incident opened", seen=_incident),
        Milestone(name="quarantined", title="node cordoned", seen=_cordoned),
        Milestone(name="paged", title="page arrived", seen=lambda scene: _page(scene, "open")),
        Milestone(name="drained", title="work drained", seen=lambda scene: _drained(scene, work_pods_before)),
        Milestone(name="repair", title="repair started", seen=lambda scene: _started(scene, "reboot")),
        Milestone(
            name="rebooted", title="new boot id", seen=lambda scene: _new_boot_id(scene, boot_id_before)
        ),
        Milestone(name="proven", title="reboot proven", seen=lambda scene: _succeeded(scene, "reboot")),
        Milestone(
            name="cleared",
            title="condition False",
            seen=lambda scene: _cleared(scene, boot_id_before, condition),
        ),
        Milestone(
            name="revalidating",
            title="revalidation started",
            seen=lambda scene: _started(scene, "revalidate"),
        ),
        Milestone(
            name="revalidated",
            title="revalidation passed",
            seen=lambda scene: _succeeded(scene, "revalidate"),
        ),
        Milestone(name="returned", title="node given back", seen=_returned),
        Milestone(name="resolved", title="page resolved", seen=lambda scene: _page(scene, "resolve")),
    )


def tainted(node: Node) -> bool:
    """Whether our quarantine taint stands on the node."""
    return any(taint.key == TAINT for taint in node.spec.taints)


def _condition_true(scene: Scene, kind: str) -> str | None:
    condition = scene.node.condition(kind) if scene.node else None
    return f"{kind}=True {condition.reason}" if condition and condition.status == "True" else None


def _incident(scene: Scene) -> str | None:
    return scene.remediation.metadata.name if scene.remediation else None


def _cordoned(scene: Scene) -> str | None:
    if scene.node is None or not scene.node.spec.unschedulable:
        return None
    return "unschedulable, tainted" if tainted(scene.node) else "unschedulable"


def _page(scene: Scene, transition: str) -> str | None:
    return f"webhook message '{transition}' verified" if transition in scene.pages else None


def _drained(scene: Scene, before: int) -> str | None:
    story = scene.remediation
    if story is None or story.status.drain is None or story.status.drain.finished_at is None:
        return None
    if scene.work_pods:
        return None
    return f"{before} pods evicted through the Eviction API"


def _attempt(story: Remediation | None, kind: str) -> Attempt | None:
    rows = [row for row in story.status.attempts if row.kind == kind] if story else []
    return rows[-1] if rows else None


def _started(scene: Scene, kind: str) -> str | None:
    row = _attempt(scene.remediation, kind)
    return f"Job {row.job}" if row and row.submitted_at else None


def _succeeded(scene: Scene, kind: str) -> str | None:
    row = _attempt(scene.remediation, kind)
    return (row.message or row.result) if row and row.result == "Succeeded" else None


def _new_boot_id(scene: Scene, before: str) -> str | None:
    now = scene.node.status.node_info.boot_id if scene.node else ""
    return f"{before[:8]} -> {now[:8]} (simulated)" if now and now != before else None


def _cleared(scene: Scene, boot_id_before: str, kind: str) -> str | None:
    condition = scene.node.condition(kind) if scene.node else None
    if condition is None or condition.status != "False" or scene.health is None:
        return None
    return None if scene.health.status.boot_id == boot_id_before else f"{kind}=False"


def _returned(scene: Scene) -> str | None:
    if scene.node is None or scene.node.spec.unschedulable or tainted(scene.node):
        return None
    story = scene.remediation
    return "cordon and taint gone" if story and story.status.phase is Phase.RETURNED else None
