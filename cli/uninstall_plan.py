"""What belongs to an installation, and what has to be waited for before it may go. Pure.

Ours is what carries the manifests' label, what has one of their names where there may be no label, and the CRDs of our own
API group. What manifests/crds-kai makes is shared with KAI Scheduler and never touched: CRDs of `scheduling.run.ai` and
`kai.scheduler`, priority classes.
"""

from collections.abc import Iterable, Sequence

import msgspec

from controller.incident import has_taint, holds, last_repair
from controller.repairs import INCIDENT_LABEL
from kube import paths
from kube.nodehealth import GROUP
from kube.policy import RemediationPolicy
from kube.remediation import CANCEL, Phase, Remediation
from kube.types import Node, ObjectMeta, Struct

PART_OF = "app.kubernetes.io/part-of"
NAMESPACES = ("nodemend-system", "nodemend-repairs")
# On a policy that `uninstall` paused: since when. With --keep-crds it is what tells that the pause has to end.
PAUSED_BY = "nodemend.dev/paused-by-uninstall"


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of object that the manifests hold, or the controller makes. `names` are ours without a label, too."""

    title: str
    group: str
    plural: str
    version: str = "v1"
    namespaced: bool = True
    selector: str = f"{PART_OF}=nodemend"
    names: tuple[str, ...] = ()

    def collection(self, namespace: str = "") -> str:
        return paths.collection(self.group, self.version, self.plural, namespace)

    @property
    def resource(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


class _Spec(Struct, frozen=True, kw_only=True):
    group: str = ""
    node_name: str = ""


class Bare(Struct, frozen=True, kw_only=True):
    """All that is needed to name and delete an object; `spec.group` is that of a CRD, `spec.nodeName` that of a pod."""

    metadata: ObjectMeta
    spec: _Spec = _Spec()


class Thing(msgspec.Struct, frozen=True, kw_only=True):
    """One object of ours."""

    kind: Kind
    metadata: ObjectMeta

    @property
    def path(self) -> str:
        return paths.member(self.kind.collection(self.metadata.namespace), self.metadata.name)

    @property
    def name(self) -> str:
        where = f"{self.metadata.namespace}/" if self.metadata.namespace else ""
        return f"{where}{self.metadata.name}"

    def __str__(self) -> str:
        return f"{self.kind.title} {self.name}"


_RBAC, _ADMISSION = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"
_PROGRAMS = ("nodemend-agent", "nodemend-controller", "nodemend-scheduler")

_DEPLOYED = ("nodemend-controller", "nodemend-scheduler")

# Ended first: what decides, what publishes.
PROGRAMS = (
    Kind(title="Deployment", group="apps", plural="deployments", names=_DEPLOYED),
    Kind(title="DaemonSet", group="apps", plural="daemonsets", names=("nodemend-agent",)),
)
# Ended next: a repair that has not begun must not begin on a Node that was given back.
JOBS = (Kind(title="Job", group="batch", plural="jobs", selector=INCIDENT_LABEL),)
# Taken away before a Node is cleaned: a program that outlives its pod, where nobody reaches the machine, writes no more.
RIGHTS = (
    Kind(
        title="ClusterRoleBinding",
        group=_RBAC,
        plural="clusterrolebindings",
        namespaced=False,
        names=(*_PROGRAMS, "nodemend-scheduler-owners"),
    ),
    Kind(title="RoleBinding", group=_RBAC, plural="rolebindings", names=_PROGRAMS),
)
OTHERS = (
    Kind(
        title="ClusterRole",
        group=_RBAC,
        plural="clusterroles",
        namespaced=False,
        names=(*_PROGRAMS, "nodemend-scheduler-owners", "nodemend-driller", "nodemend-operator"),
    ),
    Kind(title="Role", group=_RBAC, plural="roles"),
    Kind(
        title="ValidatingAdmissionPolicyBinding",
        group=_ADMISSION,
        plural="validatingadmissionpolicybindings",
        namespaced=False,
    ),
    Kind(
        title="ValidatingAdmissionPolicy",
        group=_ADMISSION,
        plural="validatingadmissionpolicies",
        namespaced=False,
    ),
    Kind(title="PodDisruptionBudget", group="policy", plural="poddisruptionbudgets"),
    Kind(title="NetworkPolicy", group="networking.k8s.io", plural="networkpolicies"),
    Kind(title="ResourceQuota", group="", plural="resourcequotas"),
    Kind(title="ConfigMap", group="", plural="configmaps"),
    Kind(title="ServiceAccount", group="", plural="serviceaccounts"),
)
NAMESPACE = Kind(title="Namespace", group="", plural="namespaces", namespaced=False)
ALL = (*PROGRAMS, *JOBS, *RIGHTS, *OTHERS)
CRD = Kind(
    title="CustomResourceDefinition",
    group="apiextensions.k8s.io",
    plural="customresourcedefinitions",
    namespaced=False,
    selector="",
)


def is_our_crd(definition: Bare) -> bool:
    """Tell our own kinds by their API group alone; a label is no proof here."""
    return definition.spec.group == GROUP and definition.metadata.name.endswith(f".{GROUP}")


def is_ours_inside(metadata: ObjectMeta) -> bool:
    """Tell pods and volume claims of ours from those that somebody else put into our namespaces."""
    return metadata.labels.get(PART_OF) == "nodemend" or INCIDENT_LABEL in metadata.labels


def why_wait(remediation: Remediation) -> str | None:
    """Say what of an incident runs on by itself while its policy is paused and is better waited for, or None.

    A repair whose Job was created may still reboot the machine or reset its GPUs; a revalidation gives the node back.
    """
    match remediation.status.phase:
        case Phase.REVALIDATING:
            return "it is being revalidated"
        case Phase.REPAIRING:
            attempt = last_repair(remediation.status)
            if attempt is not None and attempt.submitted_at is not None and not attempt.result:
                return f"{attempt.job} runs"
    return None


def is_cancelled(remediation: Remediation) -> bool:
    return CANCEL in remediation.metadata.annotations


def is_given_back(node: Node | None, incident: str) -> bool:
    """Tell whether nothing of this incident is on its Node any more."""
    return node is None or not (holds(node, incident) or has_taint(node, incident))


def to_pause(policies: Iterable[RemediationPolicy]) -> list[RemediationPolicy]:
    return [policy for policy in policies if not policy.spec.paused]


def to_resume(policies: Iterable[RemediationPolicy]) -> list[RemediationPolicy]:
    """Give those that an uninstallation paused, this one or an earlier one that did not come to its end."""
    return [policy for policy in policies if PAUSED_BY in policy.metadata.annotations]


def incident_lines(standing: Sequence[Remediation], *, cancel: bool, wait: str) -> list[str]:
    """Say what becomes of each open incident."""
    lines = []
    for one in standing:
        why = why_wait(one)
        if why is None:
            fate = "cancelled"
        elif cancel:
            fate = f"cancelled, although {why} and may still act on the machine"
        else:
            fate = f"waited for up to {wait}, since {why}; then cancelled"
        lines.append(f"incident {one.metadata.name} on {one.spec.node_name} ({one.status.phase}): {fate}")
    return lines
