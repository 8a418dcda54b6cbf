"""Ask before the first step whether every step is allowed: an uninstallation that stops half-way is the worst kind."""

from collections.abc import Iterable, Iterator

import msgspec

from cli.failure import Exit, Failure
from cli.release_tries import ADMIN, tried
from cli.uninstall_plan import ALL, CRD
from kube.api import Api
from kube.clock import Clock
from kube.nodehealth import GROUP
from kube.types import Struct

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class Right(msgspec.Struct, frozen=True, kw_only=True):
    """One verb on one resource, in the whole cluster or in one namespace."""

    verb: str
    resource: str
    group: str = ""
    subresource: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        of_group = f".{self.group}" if self.group else ""
        part = f"/{self.subresource}" if self.subresource else ""
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{of_group}{part}{where}"


class _Review(Struct, frozen=True, kw_only=True):
    class Status(Struct, frozen=True, kw_only=True):
        allowed: bool = False

    status: Status = Status()


def needed(namespace: str) -> Iterator[Right]:
    """List every right that `uninstall` uses."""
    yield from (Right(verb=verb, resource="nodes") for verb in ("get", "list", "patch"))
    yield Right(verb="patch", resource="nodes", subresource="status")
    yield from (Right(verb="list", resource=name) for name in ("pods", "persistentvolumeclaims"))
    yield from (Right(verb=verb, resource="namespaces") for verb in ("get", "delete"))
    yield Right(verb="get", resource="leases", group="coordination.k8s.io", namespace=namespace)
    for resource in ("nodehealths", "remediations", "remediationpolicies"):
        yield from (Right(verb=verb, resource=resource, group=GROUP) for verb in ("list", "patch"))
    for kind in (*ALL, CRD):
        yield from (Right(verb=verb, resource=kind.plural, group=kind.group) for verb in ("list", "delete"))
    for kind in (*ALL, CRD):
        if kind.names or kind is CRD:
            yield Right(verb="get", resource=kind.plural, group=kind.group)


def check_rights(api: Api, clock: Clock, rights: Iterable[Right]) -> None:
    """Raise Failure naming every right that is missing."""
    missing = [str(right) for right in rights if not _allowed(api, clock, right)]
    if missing:
        raise Failure(f"not allowed to {', '.join(missing)} ({ADMIN}); nothing was changed", Exit.MISSING)


def _allowed(api: Api, clock: Clock, right: Right) -> bool:
    attributes = {name: value for name, value in msgspec.structs.asdict(right).items() if value}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    raw = tried(clock, f"ask whether I may {right}", lambda: api.create(_REVIEWS, body))
    return raw is not None and msgspec.json.decode(raw, type=_Review).status.allowed
