"""Leader election on the real API server: two processes under a ServiceAccount's own token and RBAC.

What each of them wrote is read from the API server's audit record, not from what they say of themselves.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from kube import paths
from kube.types import Lease
from sandbox.cluster import Sandbox
from tests.fakes import wait_until
from tests.kube.leader_process import LEASE_DURATION_S

REPOSITORY = Path(__file__).parents[2]
ROLE = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "Role",
    "metadata": {"name": "candidate"},
    "rules": [
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "patch"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]},
    ],
}


@pytest.fixture
def contested(sandbox: Sandbox, namespace: str) -> str:
    """A namespace with the ConfigMap that leaders write to, and the rights to do so."""
    sandbox.kubectl("--namespace", namespace, "create", "-f", "-", stdin=json.dumps(ROLE))
    grant = [
        "create",
        "rolebinding",
        "candidate",
        "--role=candidate",
        f"--serviceaccount={namespace}:default",
    ]
    sandbox.kubectl("--namespace", namespace, *grant)
    sandbox.kubectl("--namespace", namespace, "create", "configmap", "target")
    return namespace


@contextmanager
def candidate(sandbox: Sandbox, namespace: str, identity: str) -> Iterator[subprocess.Popen[bytes]]:
    token_file = sandbox.token_file(namespace, "default")
    reached = ["--server", sandbox.server, "--token-file", str(token_file), "--ca-file", str(sandbox.ca_file)]
    command = [sys.executable, "-m", "tests.kube.leader_process", *reached]
    process = subprocess.Popen([*command, "--namespace", namespace, "--identity", identity], cwd=REPOSITORY)
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)


def writes_of(sandbox: Sandbox, namespace: str, identity: str) -> list[datetime]:
    """When the server received this candidate's writes to the ConfigMap."""
    return [
        datetime.fromisoformat(event["requestReceivedTimestamp"])
        for event in sandbox.audit_events()
        if event["userAgent"] == identity and event["objectRef"].get("namespace") == namespace
    ]


def holder(sandbox: Sandbox, namespace: str) -> str:
    raw = sandbox.admin.get(paths.lease(namespace, "contested"))
    return msgspec.json.decode(raw, type=Lease).spec.holder_identity


def wait_for_leader(sandbox: Sandbox, namespace: str, identity: str) -> None:
    wait_until(lambda: len(writes_of(sandbox, namespace, identity)) >= 3, timeout_s=60.0)


def test_a_leader_stopped_past_its_lease_wakes_without_a_write(sandbox: Sandbox, contested: str) -> None:
    """SIGSTOP past expiry, another leads, SIGCONT: the server receives nothing more of the old one, which exits with 1."""
    with candidate(sandbox, contested, "old") as old:
        wait_for_leader(sandbox, contested, "old")
        with candidate(sandbox, contested, "new") as new:
            time.sleep(1.0)  # let it follow, so that the old one's last renewal is seen
            old.send_signal(signal.SIGSTOP)
            wait_for_leader(sandbox, contested, "new")
            woken = datetime.now(UTC)
            old.send_signal(signal.SIGCONT)
            code = old.wait(20)
            now_leading = holder(sandbox, contested)
            alive = new.poll() is None
    assert (code, alive, now_leading) == (1, True, "new")
    assert [at for at in writes_of(sandbox, contested, "old") if at >= woken] == []


def test_a_leader_that_is_asked_to_end_hands_over_at_once(sandbox: Sandbox, contested: str) -> None:
    """SIGTERM: worker first, then the Lease; nobody waits it out, and their writes do not overlap."""
    with candidate(sandbox, contested, "old") as old:
        wait_for_leader(sandbox, contested, "old")
        with candidate(sandbox, contested, "new"):
            time.sleep(1.0)
            old.send_signal(signal.SIGTERM)
            code = old.wait(20)
            ended = datetime.now(UTC)
            wait_for_leader(sandbox, contested, "new")
    first = writes_of(sandbox, contested, "new")[0]
    assert (code, writes_of(sandbox, contested, "old")[-1] < first) == (0, True)
    assert (first - ended).total_seconds() < LEASE_DURATION_S - 1
