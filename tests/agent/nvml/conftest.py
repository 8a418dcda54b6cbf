"""What the tests of the NVML child share."""

from collections.abc import Iterator

import pytest

from tests.agent.nvml.nursery import Nursery, nursery


@pytest.fixture(scope="session", name="nursery")
def the_nursery() -> Iterator[Nursery]:
    """One place that forks children, for all tests of a pytest process."""
    with nursery() as one:
        yield one
