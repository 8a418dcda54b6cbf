"""Raw paths of the API server, one function per resource that nodemend touches.

Names are percent-encoded, so that a name taken from an object can never lead to another path.
"""

from urllib.parse import quote

CORE = "/api/v1"
NODEMEND = "/apis/nodemend.dev/v1alpha1"


def _one(collection: str, name: str, subresource: str = "") -> str:
    if not name:
        raise ValueError(
            f"{collection}: an empty name would address the whole collection, give the object's name"
        )
    tail = f"/{subresource}" if subresource else ""
    return f"{collection}/{quote(name, safe='')}{tail}"


def _in_namespace(group: str, namespace: str, plural: str) -> str:
    return f"{_one(group + '/namespaces', namespace)}/{plural}"


def nodes() -> str:
    return f"{CORE}/nodes"


def node(name: str) -> str:
    return _one(nodes(), name)


def node_status(name: str) -> str:
    return _one(nodes(), name, "status")


def namespaces() -> str:
    return f"{CORE}/namespaces"


def namespace(name: str) -> str:
    return _one(namespaces(), name)


def pods(namespace: str | None = None) -> str:
    """All pods of the cluster, or of one namespace."""
    return f"{CORE}/pods" if namespace is None else _in_namespace(CORE, namespace, "pods")


def pod(namespace: str, name: str) -> str:
    return _one(pods(namespace), name)


def pod_status(namespace: str, name: str) -> str:
    return _one(pods(namespace), name, "status")


def binding(namespace: str, name: str) -> str:
    """Binding subresource of a pod: POST only."""
    return _one(pods(namespace), name, "binding")


def eviction(namespace: str, name: str) -> str:
    """Eviction subresource of a pod (policy/v1): POST only."""
    return _one(pods(namespace), name, "eviction")


def events(namespace: str) -> str:
    """Events of events.k8s.io/v1."""
    return _in_namespace("/apis/events.k8s.io/v1", namespace, "events")


def leases(namespace: str) -> str:
    return _in_namespace("/apis/coordination.k8s.io/v1", namespace, "leases")


def lease(namespace: str, name: str) -> str:
    return _one(leases(namespace), name)


def jobs(namespace: str) -> str:
    return _in_namespace("/apis/batch/v1", namespace, "jobs")


def job(namespace: str, name: str) -> str:
    return _one(jobs(namespace), name)


def daemonsets() -> str:
    """All DaemonSets of the cluster."""
    return "/apis/apps/v1/daemonsets"


def resource_claim(namespace: str, name: str) -> str:
    return _one(_in_namespace("/apis/resource.k8s.io/v1", namespace, "resourceclaims"), name)


def resource_claim_status(namespace: str, name: str) -> str:
    return f"{resource_claim(namespace, name)}/status"


def volume_claim(namespace: str, name: str) -> str:
    return _one(_in_namespace(CORE, namespace, "persistentvolumeclaims"), name)


def volume(name: str) -> str:
    return _one(f"{CORE}/persistentvolumes", name)


def token_request(namespace: str, service_account: str) -> str:
    """TokenRequest of a ServiceAccount: POST only."""
    return _one(_in_namespace(CORE, namespace, "serviceaccounts"), service_account, "token")


def node_healths() -> str:
    return f"{NODEMEND}/nodehealths"


def node_health(name: str) -> str:
    return _one(node_healths(), name)


def node_health_status(name: str) -> str:
    return _one(node_healths(), name, "status")


def remediations() -> str:
    return f"{NODEMEND}/remediations"


def remediation(name: str) -> str:
    return _one(remediations(), name)


def remediation_status(name: str) -> str:
    return _one(remediations(), name, "status")


def policies() -> str:
    return f"{NODEMEND}/remediationpolicies"


def policy(name: str) -> str:
    return _one(policies(), name)


def policy_status(name: str) -> str:
    return _one(policies(), name, "status")


def queues() -> str:
    """Queues of scheduling.run.ai."""
    return "/apis/scheduling.run.ai/v2/queues"


def queue_status(name: str) -> str:
    return _one(queues(), name, "status")


def pod_groups(namespace: str) -> str:
    """PodGroups of scheduling.run.ai in one namespace."""
    return _in_namespace("/apis/scheduling.run.ai/v2alpha2", namespace, "podgroups")


def pod_group(namespace: str, name: str) -> str:
    return _one(pod_groups(namespace), name)


def pod_group_status(namespace: str, name: str) -> str:
    return _one(pod_groups(namespace), name, "status")


def collection(group: str, version: str, plural: str, namespace: str = "") -> str:
    """Any collection: `group` is empty for the core API, `namespace` for all namespaces or where there is none."""
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    return _in_namespace(root, namespace, plural) if namespace else f"{root}/{plural}"


def member(collection: str, name: str) -> str:
    """One object of a collection."""
    return _one(collection, name)
