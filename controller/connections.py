"""How a program of the control plane reaches the API server: sessions, election, the write guard between. Shell."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from controller.config import KubeSection, LeaderSection
from kube.api import Api
from kube.clock import Clock
from kube.leader import LeaderElection, unique_identity
from kube.session import Session, connect, user_agent

_SECOND = timedelta(seconds=1)


class Apis(msgspec.Struct, frozen=True, kw_only=True):
    """Three ways to the server: `lease` without write guard, for the election alone; `reads` for the watches; `writes`."""

    lease: Api
    reads: Api
    writes: Api


class Election:
    """The write guard before the election exists: the sessions need the one, the election the other."""

    def __init__(self) -> None:
        self._budget: Callable[[], float] = lambda: 0.0

    def bind(self, budget: Callable[[], float]) -> None:
        self._budget = budget

    def write_budget(self) -> float:
        """Seconds that a write may still take; 0 while not leading."""
        return self._budget()


def open_sessions(
    program: str,
    kube: KubeSection,
    leader: LeaderSection,
    guard: Callable[[], float],
    *,
    reads: int,
    writes: int,
) -> Apis:
    """Open the sessions; `reads` and `writes` are their most connections. Raises CannotConnect."""
    return Apis(
        lease=_session(program, kube, max_connections=2, timeout_s=leader.renew_deadline.total_seconds() / 2),
        reads=_session(program, kube, max_connections=reads),
        writes=_session(program, kube, max_connections=writes, write_guard=guard),
    )


def _session(program: str, kube: KubeSection, **options: Any) -> Session:
    return connect(
        user_agent=user_agent(program),
        kubeconfig=Path(kube.kubeconfig) if kube.kubeconfig else None,
        server=kube.server or None,
        token_file=Path(kube.token_file) if kube.token_file else None,
        ca_file=Path(kube.ca_file) if kube.ca_file else None,
        **options,
    )


def election_for(leader: LeaderSection, api: Api, clock: Clock) -> LeaderElection:
    """Make the election, as an identity of this very process. `api` carries no write guard."""
    return LeaderElection(
        api,
        leader.namespace,
        leader.name,
        unique_identity(),
        clock,
        lease_duration=leader.lease_duration // _SECOND,
        renew_deadline=leader.renew_deadline.total_seconds(),
        retry_period=leader.retry_period.total_seconds(),
    )
