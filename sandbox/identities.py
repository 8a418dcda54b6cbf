"""The identity of each node's agent in a process that plays many: a token for each node over one pool of connections.

The admission policy for agents lets a token write on the node that it names and nowhere else, so that a fleet in one process
needs as many tokens as nodes. They are bound to the Nodes themselves, where a DaemonSet's are bound to its pods; the claim
that the policy reads is the same. The right to ask for them is the sandbox admin's alone.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from kube.api import Api
from kube.clock import SYSTEM, Clock
from kube.session import Session, connect, user_agent
from sandbox.tokens import NodeRef, NodeToken

NAMESPACE, ACCOUNT = "nodemend-system", "nodemend-agent"
_ASKED_AT_ONCE = 8


class Cluster(Protocol):
    """What is needed of a `sandbox.cluster.Sandbox`."""

    @property
    def server(self) -> str: ...

    @property
    def ca_file(self) -> Path: ...

    @property
    def admin(self) -> Api: ...

    def token_file(self, namespace: str, service_account: str) -> Path: ...


class AgentIdentities:
    """Sessions of nodemend-agent. `shared` is bound to no node: it may read, and the policy refuses every write of it."""

    def __init__(
        self, cluster: Cluster, *, max_connections: int = 32, clock: Clock = SYSTEM, token_seconds: int = 3600
    ) -> None:
        """Raises ApiError, CannotConnect."""
        self.shared = connect(
            user_agent=user_agent(ACCOUNT),
            server=cluster.server,
            token_file=cluster.token_file(NAMESPACE, ACCOUNT),
            ca_file=cluster.ca_file,
            clock=clock,
            max_connections=max_connections,
        )
        at_once = threading.Semaphore(_ASKED_AT_ONCE)
        self._token: Callable[[str], NodeToken] = lambda node: NodeToken(
            lambda: cluster.admin,
            NAMESPACE,
            ACCOUNT,
            NodeRef(name=node),
            clock=clock,
            at_once=at_once,
            seconds=token_seconds,
        )

    def of(self, node: str) -> Session:
        """Give the session of one node's agent; its token is asked for with its first request."""
        return self.shared.with_token(self._token(node))

    def close(self) -> None:
        """Let the connections of all of them go."""
        self.shared.close()
