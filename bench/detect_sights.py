"""What a watch of the nodes shows while detection is measured."""

import threading

from bench.pairs import Pairs
from checks.condition import Status
from kube.types import Node

CONDITION = "GpuXidError"


class Looking:
    """Ends each sample when the watch shows its words in the condition's message."""

    def __init__(self) -> None:
        self.pairs = Pairs()
        self.healthy: set[str] = set()
        self._lock = threading.Lock()
        self._waiting: dict[str, dict[str, str]] = {}

    def expect(self, node: str, words: str, key: str, at: float) -> None:
        """Begin a sample that ends when `words` stand in the message of the node's condition."""
        with self._lock:
            self._waiting.setdefault(node, {})[words] = key
        self.pairs.begin(key, at)

    def see(self, node: Node, at: float) -> None:
        """Take one sight of a node."""
        condition = node.condition(CONDITION)
        if condition is None:
            return
        name = node.metadata.name
        if condition.status == Status.FALSE:
            self.healthy.add(name)
        elif condition.status == Status.TRUE:
            with self._lock:
                waiting = self._waiting.get(name, {})
                seen = [words for words in waiting if words in condition.message]
                keys = [waiting.pop(words) for words in seen]
            for key in keys:
                self.pairs.end(key, at)
