"""The manifests, applied once to the sandbox that all tests share."""

import pytest

from sandbox.cluster import Sandbox
from sandbox.install import install


@pytest.fixture(scope="package")
def installed(sandbox: Sandbox) -> Sandbox:
    """The sandbox with the overlay `enforce` applied."""
    install(sandbox, "enforce")
    return sandbox
