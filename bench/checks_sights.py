"""What a watch shows of one node's conditions, and each turn that one takes."""

import threading
from collections.abc import Iterable

import msgspec

from kube.types import Node, NodeCondition


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """A condition has another status than before, seen at `at` (monotonic seconds); `before` is empty for a new one."""

    at: float
    type: str
    before: str
    status: str
    reason: str


class Sights:
    """The conditions of these `types` on the node `name`. All methods may be called from any thread."""

    def __init__(self, name: str, types: Iterable[str]) -> None:
        self._name = name
        self._types = frozenset(types)
        self._lock = threading.Lock()
        self._shown: dict[str, NodeCondition] = {}
        self._turns: list[Turn] = []

    def see(self, node: Node, at: float) -> None:
        """Take the node as a watch shows it."""
        if node.metadata.name != self._name:
            return
        with self._lock:
            for one in node.status.conditions:
                if one.type not in self._types:
                    continue
                held = self._shown.get(one.type)
                self._shown[one.type] = one
                before = held.status if held is not None else ""
                if before != one.status:
                    turn = Turn(at=at, type=one.type, before=before, status=one.status, reason=one.reason)
                    self._turns.append(turn)

    @property
    def shown(self) -> dict[str, NodeCondition]:
        """Every condition as it stands, by type."""
        with self._lock:
            return dict(self._shown)

    def turns(self, since: float) -> list[Turn]:
        """Give the turns seen since then, oldest first."""
        with self._lock:
            return [turn for turn in self._turns if turn.at >= since]

    def true_since(self, type_: str, since: float) -> float | None:
        """Tell when this condition turned True after `since`, None where it has not."""
        return next((one.at for one in self.turns(since) if (one.type, one.status) == (type_, "True")), None)
