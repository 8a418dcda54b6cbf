"""How a command of kubectl-nodemend ends when it does not end well: one sentence and an exit code."""

from enum import IntEnum

from kube.api import ApiError, Conflict, Forbidden, NotFound, Unauthorized, Unavailable


class Exit(IntEnum):
    """The exit codes of every program of this project."""

    DONE = 0
    NOT_SO = 1
    BAD_USE = 2
    MISSING = 3


class Failure(Exception):
    """Ends the command: `str()` is the one line for standard error, `code` the exit code."""

    def __init__(self, message: str, code: Exit) -> None:
        super().__init__(message)
        self.code = code


OPERATOR = "ask for the ClusterRole nodemend-operator"


def failure_of(error: ApiError, wanted: str, *, allowed_by: str = OPERATOR) -> Failure:
    """Say in one sentence why `wanted` (`list nodes`) could not be done, and what would help."""
    match error:
        case Forbidden():
            return Failure(f"not allowed to {wanted}: {error} ({allowed_by})", Exit.MISSING)
        case Unauthorized():
            return Failure(f"the cluster does not accept these credentials: {error}", Exit.MISSING)
        case Unavailable():
            return Failure(f"no answer from the cluster while trying to {wanted}: {error}", Exit.MISSING)
        case NotFound():
            return Failure(
                f"the cluster does not know how to {wanted}: {error} (is nodemend installed here?)",
                Exit.MISSING,
            )
        case Conflict():
            return Failure(f"it changed in between, nothing was written; look again: {error}", Exit.NOT_SO)
        case _:
            return Failure(f"could not {wanted}: {error}", Exit.NOT_SO)
