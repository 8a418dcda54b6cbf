"""The one door to the Kubernetes API, as a Protocol: `kube.session.Session` is the real one, `tests.fakes.FakeApi` the fake.

Paths are raw (`/api/v1/nodes/NAME/status`), bodies plain dictionaries, answers raw JSON bytes that the caller decodes into
a slim struct of its own. Every failure is one of the errors here; nothing else escapes.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, Protocol


class PatchType(StrEnum):
    """The content types of a PATCH. Conditions are merged by type only under STRATEGIC; CRDs take MERGE or JSON."""

    STRATEGIC = "application/strategic-merge-patch+json"
    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    APPLY = "application/apply-patch+yaml"


class ApiError(Exception):
    """An answer that is not success. `reason` and `causes` come from the Status object, where there was one."""

    def __init__(
        self,
        message: str,
        *,
        code: int = 0,
        reason: str = "",
        causes: tuple[str, ...] = (),
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.causes = causes
        self.retry_after_s = retry_after_s


class NotFound(ApiError):
    """404."""


class Conflict(ApiError):
    """409 on update: the object changed in between (or a precondition such as the UID failed)."""


class AlreadyExists(ApiError):
    """409 on create: an object of that name is there."""


class Gone(ApiError):
    """410: the resource version is too old; list again."""


class Invalid(ApiError):
    """400 or 422: the server refuses the object."""


class Forbidden(ApiError):
    """403: RBAC or an admission policy says no."""


class Unauthorized(ApiError):
    """401, after the token was read again and tried once more."""


class TooManyRequests(ApiError):
    """429. `disruption_budget` tells a PodDisruptionBudget's refusal from the server's own throttling."""

    @property
    def disruption_budget(self) -> bool:
        return "DisruptionBudget" in self.causes


class Unavailable(ApiError):
    """No answer, a 5xx answer, or no connection: the outcome of a write is unknown."""


class NotLeader(ApiError):
    """A write was refused here, before it was sent: the Lease could have passed on before the answer."""


class Api(Protocol):
    """What nodemend asks of the API server."""

    def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes: ...

    def create(self, path: str, body: Mapping[str, Any], query: Mapping[str, str] | None = None) -> bytes: ...

    def patch(
        self,
        path: str,
        body: Mapping[str, Any] | list[Any],
        patch_type: PatchType,
        query: Mapping[str, str] | None = None,
    ) -> bytes: ...

    def replace(self, path: str, body: Mapping[str, Any]) -> bytes: ...

    def delete(self, path: str, body: Mapping[str, Any] | None = None) -> bytes: ...

    def stream(self, path: str, query: Mapping[str, str], read_timeout_s: float) -> Iterator[bytes]:
        """Yield the lines of a watch; raises TimeoutError when nothing, not even a bookmark, came for `read_timeout_s`."""
        ...
