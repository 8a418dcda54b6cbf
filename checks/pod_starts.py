"""Pods fail to start on the node again and again. The scheduler publishes it; no agent does.

**What it means.** The Node is Ready and its GPUs may be well, and yet kubelet turns pods away, or the container runtime
cannot make or run their containers. A node that fails pods so fast is always the emptiest, and would be given one pod
after the other. The message says how many pods of how many workloads failed, in kubelet's own words, and what becomes of
the node.

**How it is detected.** nodemend-scheduler counts failed starts from the pods themselves, whoever placed them: pods that
are Failed with a reason of kubelet's (UnexpectedAdmissionError, OutOfnvidia.com/gpu, TopologyAffinityError, NodeAffinity
and the like), and containers that never ran (CreateContainerError, RunContainerError, StartError,
CreateContainerConfigError). It takes 3 failed pods of two workloads within 10 minutes, or 3 of one whose pods start on
other nodes at that time, so that one broken workload condemns no node. An image that cannot be pulled, and a program
that exits, count for nothing.

**What nodemend does.** nodemend-scheduler places no new pod there for 10 minutes (`graces.start_failures` in
scheduler.toml), then one pod at a time: if it fails too, the node is put aside again for twice as long, up to 2
hours; the first that starts ends all of it. Where no pod came for 10 minutes, two are let in together, then four and
so on: maybe only gangs wait that need several places there. At most 10 % of the pool, at least one node, is put aside
so: what fails everywhere is no node's fault. What runs goes on, the node stays capacity, and nobody is evicted for
it. nodemend-controller does nothing about it: no cordon, no incident, no repair, no page, since pods that fail prove
nothing about a part. Other schedulers still place pods there.

**What on-call does.** See the reason's own text.

**How it ends.** As soon as a pod has started there after the last failure: one of the scheduler's own tries, the very
pods that failed, a DaemonSet's or yours. Where pods with a GPU failed, only the start of a pod with a GPU counts. A node
that got no pod for 12 hours after its pause begins anew. The condition then turns False and stays on the Node. A
scheduler that restarts, or a new leader, knows only what the pods that are still there say.
"""

from checks.check import FaultClass
from checks.condition import Healthy
from checks.finding import Action, Effect, Urgency
from checks.reason_rows import fault

REPEATED_START_FAILURES = fault(
    "RepeatedStartFailures",
    Effect.NONE,  # on the node: the scheduler keeps its own pods off for a while, and nobody cordons or drains because of it
    Urgency.PERSON,
    Action.NONE,
    "Pods fail to start on this node again and again, and nodemend-scheduler gives it no new ones for a while",
    "The message names kubelet's reasons. See the pods' own words: `kubectl get pods -A --field-selector "
    "spec.nodeName=NODE,status.phase=Failed`, `kubectl describe pod` of one, `kubectl get events -A --field-selector "
    "reason=UnexpectedAdmissionError` (or the reason that is named). Then the node: `journalctl -u kubelet` and "
    "`journalctl -u containerd` (or crio) at that time; `kubectl nodemend gpus NODE` and `kubectl describe node NODE` "
    "for GPUs that kubelet offers and that are gone. UnexpectedAdmissionError and OutOf... are mostly the device plugin, "
    "which restarted, lost a GPU or counts otherwise than kubelet: read its log, delete its pod on this node, and "
    "restart kubelet if that changes nothing. TopologyAffinityError: kubelet's topology manager finds no aligned GPUs "
    "and CPUs; compare its policy with other nodes. CreateContainerError, RunContainerError, StartError: container "
    "runtime, NVIDIA container toolkit (`nvidia-ctk cdi list`, the runtime's handler), a full or read-only disk. "
    "`kubectl nodemend explain NODE` shows the faults that stand beside it, `kubectl nodemend why POD` whether a pod "
    "waits because of it. Once it is mended nothing has to be done: the next try starts. To end it at once, start a pod "
    "with a GPU there by hand (`spec.nodeName: NODE`, so that no scheduler is asked): its start takes all of it back. To "
    "keep the node out for longer than that, `kubectl cordon` it. Where it is no node's fault, stop the workload.",
)

FAULT_CLASS = FaultClass(
    name="pod-starts",
    condition="PodStartFailing",
    healthy=Healthy(reason="PodsStart", message="pods start on this node, or were not tried for long"),
    reasons=(REPEATED_START_FAILURES,),
    runbook=__doc__,
)
