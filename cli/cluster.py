"""What the commands read from the cluster: whole lists, page by page, decoded into slim structs.

Required readings end the command when they fail. Optional ones (Leases, pods, Jobs) become a line in `not_read`, so that an
answer never looks complete when it is not.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from cli.failure import Exit, Failure, failure_of
from kube import paths
from kube.api import Api, ApiError, Gone
from kube.nodehealth import NodeHealth
from kube.policy import RemediationPolicy
from kube.remediation import Remediation
from kube.types import DaemonSet, Job, Lease, Node, Pod
from kube.watch import Bare, Page

PAGE_SIZE = 500
PAGES_LIMIT = 400  # 200,000 objects: far above any cluster, and an end to a server that pages in circles

T = TypeVar("T")


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """One look at the cluster; None = not read. `not_read` names what is missing from it, one sentence each."""

    nodes: tuple[Node, ...] = ()
    healths: tuple[NodeHealth, ...] = ()
    remediations: tuple[Remediation, ...] = ()
    policies: tuple[RemediationPolicy, ...] = ()
    leases: tuple[Lease, ...] | None = None
    pods: tuple[Pod, ...] | None = None
    jobs: tuple[Job, ...] | None = None
    daemonsets: tuple[DaemonSet, ...] | None = None
    not_read: tuple[str, ...] = ()


def read_fleet(api: Api, *, namespace: str) -> Reading:
    """Read what `status` shows. Raises Failure where nodes or nodemend's own objects cannot be listed."""
    odd: list[str] = []
    return Reading(
        nodes=tuple(_required(api, paths.nodes(), Node, "nodes", odd)),
        healths=tuple(_required(api, paths.node_healths(), NodeHealth, "nodehealths", odd)),
        remediations=tuple(_required(api, paths.remediations(), Remediation, "remediations", odd)),
        policies=tuple(_required(api, paths.policies(), RemediationPolicy, "remediationpolicies", odd)),
        leases=_optional(api, paths.leases(namespace), Lease, f"leases in {namespace}", odd),
        not_read=tuple(odd),
    )


def read_story(api: Api, node: str, *, namespace: str, jobs_namespace: str) -> Reading:
    """Read what `explain` shows: the fleet, and the pods and Jobs that the node's incident waits for."""
    fleet = read_fleet(api, namespace=namespace)
    odd = list(fleet.not_read)
    on_node = {"fieldSelector": f"spec.nodeName={node}"}
    return msgspec.structs.replace(
        fleet,
        pods=_optional(api, paths.pods(), Pod, f"pods on {node}", odd, on_node),
        jobs=_optional(api, paths.jobs(jobs_namespace), Job, f"jobs in {jobs_namespace}", odd),
        daemonsets=_optional(api, paths.daemonsets(), DaemonSet, "daemonsets", odd),
        not_read=tuple(odd),
    )


def read_remediations(api: Api) -> tuple[Remediation, ...]:
    """Read every Remediation. Raises Failure where they cannot be listed."""
    return tuple(_required(api, paths.remediations(), Remediation, "remediations", []))


def read_node_names(api: Api) -> tuple[str, ...]:
    """Read the names of all Nodes. Raises Failure where they cannot be listed."""
    return tuple(bare.metadata.name for bare in _required(api, paths.nodes(), Bare, "nodes", []))


def _required(api: Api, path: str, kind: type[T], plural: str, odd: list[str]) -> list[T]:
    try:
        return list_all(api, path, kind, plural, odd)
    except ApiError as error:
        raise failure_of(error, f"list {plural}") from error


def _optional(
    api: Api, path: str, kind: type[T], plural: str, odd: list[str], query: Mapping[str, str] | None = None
) -> tuple[T, ...] | None:
    try:
        return tuple(list_all(api, path, kind, plural, odd, query))
    except ApiError as error:
        odd.append(f"{plural}: {error}")
        return None


def list_all(
    api: Api,
    path: str,
    kind: type[T],
    plural: str,
    odd: list[str],
    query: Mapping[str, str] | None = None,
) -> list[T]:
    """List page by page; an object that cannot be decoded is named in `odd` and left out.

    A page token that expired in between (410) starts the list over, once. Raises ApiError.
    """
    try:
        return _pages(api, path, kind, plural, odd, query or {})
    except Gone:
        return _pages(api, path, kind, plural, odd, query or {})


def _pages(
    api: Api, path: str, kind: type[T], plural: str, odd: list[str], query: Mapping[str, str]
) -> list[T]:
    found: list[T] = []
    token = ""
    for _ in range(PAGES_LIMIT):
        asked = {**query, "limit": str(PAGE_SIZE), **({"continue": token} if token else {})}
        page = _decoded_page(api.get(path, asked), plural)
        for raw in page.items or ():
            try:
                found.append(msgspec.json.decode(raw, type=kind))
            except msgspec.ValidationError as error:
                odd.append(f"{plural}: {_name(raw)} cannot be read: {error}")
        token = page.metadata.continue_
        if not token:
            return found
    raise Failure(f"the list of {plural} does not end after {PAGES_LIMIT} pages", Exit.MISSING)


def _decoded_page(answer: bytes, plural: str) -> Page:
    try:
        return msgspec.json.decode(answer, type=Page)
    except msgspec.DecodeError as error:
        raise Failure(f"the answer to list {plural} is no Kubernetes list ({error})", Exit.MISSING) from error


def _name(raw: msgspec.Raw) -> str:
    try:
        return msgspec.json.decode(raw, type=Bare).metadata.name
    except msgspec.DecodeError:
        return "an object without a name"


def by_name(objects: Sequence[T], name: Callable[[T], str]) -> dict[str, T]:
    """Index objects by a name of theirs; of two with the same name the later one stays."""
    return {name(one): one for one in objects}
