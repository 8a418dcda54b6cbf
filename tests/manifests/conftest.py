"""The manifests, applied once to the sandbox that all tests share."""

from collections.abc import Iterator

import pytest

from sandbox.cluster import Sandbox
from sandbox.identities import AgentIdentities
from sandbox.install import install, install_scheduler
from tests.manifests.admission import agents_of


@pytest.fixture(scope="package")
def installed(sandbox: Sandbox) -> Sandbox:
    """The sandbox with the overlay `enforce` applied."""
    install(sandbox, "enforce")
    return sandbox


@pytest.fixture(scope="package")
def scheduled(installed: Sandbox) -> Sandbox:
    """The same, with the scheduler's manifests applied, without components."""
    install_scheduler(installed)
    return installed


@pytest.fixture(scope="module")
def agents(installed: Sandbox) -> Iterator[AgentIdentities]:
    """Identities of agents that RBAC hinders nowhere; two Nodes, what belongs to them, and the leader's Lease."""
    with agents_of(installed) as identities:
        yield identities
