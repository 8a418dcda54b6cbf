"""The retries of the session: how often, how long apart, and what may be repeated at all."""

import random
from collections.abc import Callable

import tenacity

from kube.api import ApiError, TooManyRequests, Unavailable
from kube.clock import Clock

TRIES = 3
RETRY_AFTER_LIMIT_S = 10.0


def of(clock: Clock, may_repeat: Callable[[BaseException], bool]) -> tenacity.Retrying:
    """Try up to three times in all; the server's Retry-After is honoured up to 10 s. The last error is raised as it is."""
    return tenacity.Retrying(
        sleep=clock.sleep,
        stop=tenacity.stop_after_attempt(TRIES),
        wait=_pause,
        retry=tenacity.retry_if_exception(may_repeat),
        reraise=True,
    )


def _pause(state: tenacity.RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome is not None else None
    jitter = random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing
    if isinstance(error, ApiError) and error.retry_after_s:
        return min(error.retry_after_s, RETRY_AFTER_LIMIT_S) + jitter * 0.2
    return 0.2 * float(2**state.attempt_number) * jitter


def may_repeat_read(error: BaseException) -> bool:
    """Reads change nothing; a certificate that is not trusted will not be trusted a moment later."""
    return isinstance(error, TooManyRequests) or (isinstance(error, Unavailable) and error.reason != "TLS")


def may_repeat_write(error: BaseException) -> bool:
    """Only what the server says it did not carry out: its own throttling, never a PodDisruptionBudget's refusal."""
    return isinstance(error, TooManyRequests) and not error.disruption_budget
