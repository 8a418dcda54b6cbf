"""Requests of `uninstall` and `release`: tried again, a bounded number of times, while the server is busy, away or ahead."""

import random
from collections.abc import Callable, Mapping
from typing import TypeVar

from cli.cluster import list_all
from cli.failure import failure_of
from kube.api import Api, ApiError, Conflict, NotFound, TooManyRequests, Unavailable
from kube.clock import Clock

TRIES = 8
ADMIN = "this needs the rights of a cluster administrator"
_LONGEST_PAUSE_S = 5.0

T = TypeVar("T")


def tried(clock: Clock, wanted: str, action: Callable[[], T]) -> T | None:
    """Do it; None where the object is not there, which is as good as done.

    `action` looks anew each time: after a conflict, and after an answer that got lost. Raises Failure naming `wanted`.
    """
    for number in range(TRIES):
        try:
            return action()
        except NotFound:
            return None
        except (Conflict, TooManyRequests, Unavailable) as error:
            if number == TRIES - 1:
                raise failure_of(error, wanted, allowed_by=ADMIN) from error
            clock.sleep(_pause_s(number, error))
        except ApiError as error:
            raise failure_of(error, wanted, allowed_by=ADMIN) from error
    raise AssertionError("the last try returns or raises")


def listed(
    api: Api,
    clock: Clock,
    path: str,
    kind: type[T],
    plural: str,
    odd: list[str],
    query: Mapping[str, str] | None = None,
) -> list[T]:
    """List page by page; nothing where the cluster does not know such objects (any more).

    What cannot be decoded is named in `odd`. Raises Failure.
    """

    def once() -> list[T]:
        odd_now: list[str] = []
        found = list_all(api, path, kind, plural, odd_now, query)
        odd.extend(odd_now)
        return found

    return tried(clock, f"list {plural}", once) or []


def _pause_s(number: int, error: ApiError) -> float:
    jitter = random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing
    return max(min(_LONGEST_PAUSE_S, 0.2 * 2.0**number), error.retry_after_s or 0.0) * jitter
