"""What the API server's refusals mean: from an HTTP status and a Status object to one of our errors."""

from collections.abc import Mapping

import msgspec

from kube.api import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from kube.types import Struct

MESSAGE_LIMIT = 2048


class Cause(Struct, frozen=True, kw_only=True):
    reason: str = ""
    message: str = ""


class StatusDetails(Struct, frozen=True, kw_only=True):
    causes: tuple[Cause, ...] | None = ()
    retry_after_seconds: int = 0


class ServerStatus(Struct, frozen=True, kw_only=True):
    """metav1.Status, as it comes as the body of a refusal and inside a watch's ERROR event."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None


_STATUS = msgspec.json.Decoder(ServerStatus)
_BY_CODE: Mapping[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


def refusal(asked: str, code: int, body: bytes, retry_after: str | None = None) -> ApiError:
    """Turn an answer that is not success into the error that says so; `asked` is the request in words, `PATCH /path`.

    `retry_after` is the header's text; only whole seconds are understood, which is all the API server sends.
    """
    try:
        status = _STATUS.decode(body)
    except msgspec.DecodeError:  # a proxy's page, or nothing at all
        status = ServerStatus(message=body[:MESSAGE_LIMIT].decode(errors="replace").strip())
    return from_status(asked, status, code=code, retry_after=retry_after)


def from_status(
    asked: str, status: ServerStatus, *, code: int = 0, retry_after: str | None = None
) -> ApiError:
    """Turn a Status object into an error; `code` is the HTTP status and outweighs the object's own."""
    code = code or status.code
    details = status.details or StatusDetails()
    seconds = (
        int(retry_after) if retry_after and retry_after.isdigit() else details.retry_after_seconds or None
    )
    # A PodDisruptionBudget is named in its cause alone; an invalid field is in the message already.
    more = "; ".join(c.message for c in details.causes or () if c.message and c.message not in status.message)
    message = " ".join(filter(None, (status.message or status.reason or "no message", more)))[:MESSAGE_LIMIT]
    return _kind(code, status.reason)(
        f"{asked}: {code} {message}",
        code=code,
        reason=status.reason,
        causes=tuple(cause.reason for cause in details.causes or () if cause.reason),
        retry_after_s=float(seconds) if seconds is not None else None,
    )


def _kind(code: int, reason: str) -> type[ApiError]:
    if code == 409 and reason == "AlreadyExists":
        return AlreadyExists
    if code >= 500:
        return Unavailable
    return _BY_CODE.get(code, ApiError)
