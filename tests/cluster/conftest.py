"""The stage that tests of the scheduler share; a module whose stage is another one has a fixture of that name of its own."""

from collections.abc import Iterator

import pytest

from sandbox.cluster import Sandbox
from sandbox.install import install, install_scheduler
from tests.cluster.scheduler_stage import SchedulerStage, standing


@pytest.fixture(scope="module")
def installed(sandbox: Sandbox) -> None:
    """The namespace, the scheduler's objects and KAI's kinds are there, whatever another module changed in them."""
    install(sandbox, "observe")
    install_scheduler(sandbox)


@pytest.fixture
def stage(installed: None, sandbox: Sandbox, namespace: str) -> Iterator[SchedulerStage]:  # noqa: ARG001
    """A stage of this test's own."""
    with standing(sandbox, namespace) as made:
        yield made
