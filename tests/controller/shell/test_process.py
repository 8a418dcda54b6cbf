"""The controller as a process under its own ServiceAccount: how it ends when it is asked to, and when it must."""

import json
import secrets
import signal
from collections.abc import Callable, Iterator

import msgspec
import pytest

from kube import paths
from kube.api import NotFound, PatchType
from kube.types import Lease
from sandbox import actors
from sandbox.actors import ControllerActor
from sandbox.cluster import Sandbox
from sandbox.install import install
from tests.fakes import wait_until

NAMESPACE = "nodemend-system"


@pytest.fixture
def leader(sandbox: Sandbox) -> Iterator[tuple[ControllerActor, Callable[[], str], str]]:
    """A controller that leads by a Lease of its own, the Lease's holder, and its name.

    The right to that Lease ends with the test: others of the same sandbox try what the account must not do.
    """
    install(sandbox, "enforce")
    name = f"election-{secrets.token_hex(4)}"
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "rules": [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]}],
    }
    sandbox.kubectl("create", "-f", "-", stdin=json.dumps(role))
    account = f"--serviceaccount={NAMESPACE}:{actors.CONTROLLER}"
    sandbox.kubectl("-n", NAMESPACE, "create", "rolebinding", name, f"--role={name}", account)
    (controller,) = actors.start_controller(sandbox, settings={"leader": {"name": name}})

    def holder() -> str:
        try:
            answer = sandbox.admin.get(paths.lease(NAMESPACE, name))
        except NotFound:
            return ""
        return msgspec.json.decode(answer, type=Lease).spec.holder_identity

    wait_until(lambda: bool(holder()), timeout_s=60)
    yield controller, holder, name
    controller.kill()
    sandbox.kubectl("-n", NAMESPACE, "delete", "rolebinding,role", name)


def test_a_controller_that_is_asked_to_end_frees_its_lease(
    leader: tuple[ControllerActor, Callable[[], str], str],
) -> None:
    """SIGTERM: exit 0, and the next replica need not wait for the Lease to run out."""
    controller, holder, _ = leader
    controller.process.send_signal(signal.SIGTERM)
    assert controller.process.wait(30) == 0, controller.logs
    assert holder() == ""


def test_a_controller_that_lost_its_lease_ends_at_once(
    sandbox: Sandbox, leader: tuple[ControllerActor, Callable[[], str], str]
) -> None:
    """Exit 1 within a renewal: whatever it was about to do, another may be doing by now."""
    controller, _, name = leader
    sandbox.admin.patch(paths.lease(NAMESPACE, name), {"spec": {"holderIdentity": "other"}}, PatchType.MERGE)
    assert controller.process.wait(15) == 1, controller.logs
    assert "leader.lost" in controller.logs
