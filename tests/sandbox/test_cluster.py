"""The sandbox on the real programs: it starts, it serves, and whatever happens to its owner it leaves nothing behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kube.api import NotFound, Unavailable
from sandbox import state
from sandbox.cluster import KubectlError, Sandbox
from sandbox.control_plane import NotReady
from sandbox.processes import carrying, start_time
from tests.fakes import wait_until

pytestmark = pytest.mark.cluster

# Starts a sandbox, and beside it a program whose child leaves the session: only its inherited id betrays that one.
OWNER = """
import json, sys, time
from pathlib import Path
from sandbox.cluster import Sandbox
from sandbox.processes import carrying
from sandbox.state import MARK
programs = {name: Path(path) for name, path in json.loads(sys.argv[1]).items()}
with Sandbox(programs=programs, progress=lambda line: None) as it:
    it.spawn("family", ["sh", "-c", "setsid sleep 600 & echo $!; wait"])
    while not it.logs("family"):
        time.sleep(0.05)
    pids = sorted(carrying(MARK, it.id))
    story = {"id": it.id, "state": str(it.state_dir), "pids": pids, "far": it.logs("family")}
    print(json.dumps(story), flush=True)
    time.sleep(600)
"""

NODE = """
apiVersion: v1
kind: Node
metadata: {name: %(name)s, annotations: {kwok.x-k8s.io/node: fake}, labels: {test: %(name)s}}
status: {capacity: {cpu: 8, memory: 8Gi, pods: 110}, allocatable: {cpu: 8, memory: 8Gi, pods: 110}}
---
apiVersion: v1
kind: Pod
metadata: {name: it, namespace: %(name)s}
spec:
  nodeSelector: {test: %(name)s}
  containers: [{name: it, image: it}]
"""


def _ignore(_line: str) -> None:
    pass


def test_two_stand_side_by_side_and_leave_nothing(kubernetes_programs: dict[str, Path]) -> None:
    """Each has its own port, folder and objects; after the end neither has a process or a folder."""
    with (
        Sandbox(programs=kubernetes_programs, progress=_ignore) as first,
        Sandbox(programs=kubernetes_programs, progress=_ignore) as second,
    ):
        first.create_namespace("only-here")
        ids = [first.id, second.id]
        folders = [first.state_dir, second.state_dir]
        ran = [len(carrying(state.MARK, each)) for each in ids]

        assert first.server != second.server
        with pytest.raises(NotFound):
            second.admin.get("/api/v1/namespaces/only-here")

    assert ran == [5, 5]
    assert [carrying(state.MARK, each) for each in ids] == [{}, {}]
    assert [each.parent.exists() for each in folders] == [False, False]


def test_the_next_start_removes_what_a_killed_one_left(
    kubernetes_programs: dict[str, Path], tmp_path: Path
) -> None:
    """After kill -9 of the owner its programs die at once, what escaped them dies at the next start, the folder goes too."""
    paths = json.dumps({name: str(path) for name, path in kubernetes_programs.items()})
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", OWNER, paths], env=env, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        left = json.loads(owner.stdout.readline())
        owner.kill()
    far = int(left["far"])
    wait_until(lambda: all(start_time(pid) is None for pid in left["pids"] if pid != far))
    outlived = start_time(far) is not None and Path(left["state"]).is_dir()

    with subprocess.Popen([sys.executable, "-c", OWNER, paths], env=env, stdout=subprocess.PIPE) as again:
        assert again.stdout is not None
        started = json.loads(again.stdout.readline())
        again.kill()
    state.remove_dead(_ignore, folder=tmp_path / "nodemend" / "sandboxes")

    assert outlived
    assert started["id"] != left["id"]
    assert (start_time(far), Path(left["state"]).exists()) == (None, False)
    assert start_time(int(started["far"])) is None


def test_a_program_that_does_not_start_is_named_and_nothing_stays(
    kubernetes_programs: dict[str, Path], tmp_path: Path
) -> None:
    """The error holds the end of the log; what had started is ended."""
    broken = tmp_path / "kube-apiserver"
    broken.write_text("#!/bin/sh\necho 'error: no such flag'; exit 2\n")
    broken.chmod(0o755)
    sandbox = Sandbox(programs={**kubernetes_programs, "kube-apiserver": broken}, progress=_ignore)

    with pytest.raises(NotReady, match=r"kube-apiserver ended with status 2; (?s:.*)error: no such flag"):
        sandbox.__enter__()

    assert carrying(state.MARK, sandbox.id) == {}
    assert not sandbox.state_dir.parent.exists()


def test_an_outage_of_the_api_server_keeps_port_and_data(kubernetes_programs: dict[str, Path]) -> None:
    """While it is down requests fail as unavailable; afterwards the same address serves the same objects."""
    with Sandbox(programs=kubernetes_programs, progress=_ignore, with_kwok=False) as sandbox:
        sandbox.create_namespace("kept")
        server = sandbox.server

        sandbox.stop_apiserver()
        with pytest.raises(Unavailable):
            sandbox.admin.get("/api/v1/namespaces/kept")
        sandbox.start_apiserver()

        assert sandbox.server == server
        assert b'"kept"' in sandbox.admin.get("/api/v1/namespaces/kept")
        sandbox.check()


def test_kwok_plays_a_node_and_its_pods(sandbox: Sandbox, namespace: str) -> None:
    """The scheduler binds a pod to a node that carries KWOK's annotation, and KWOK runs it."""
    sandbox.kubectl("apply", "-f", "-", stdin=NODE % {"name": namespace})

    def phase() -> str:
        return sandbox.kubectl("get", "pod", "it", "-n", namespace, "-o", "jsonpath={.status.phase}")

    wait_until(lambda: phase() == "Running", timeout_s=60)
    sandbox.kubectl("delete", "node", namespace, "--wait=false")


def test_a_service_account_s_kubeconfig_is_that_service_account(sandbox: Sandbox, namespace: str) -> None:
    """Programs in the sandbox have their own identity and RBAC, not the admin's."""
    kubeconfig = sandbox.kubeconfig_for(namespace, "default")

    name = sandbox.kubectl(
        f"--kubeconfig={kubeconfig}", "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"
    )

    assert name == f"system:serviceaccount:{namespace}:default"
    with pytest.raises(KubectlError, match=r"get nodes: status 1: .*[Ff]orbidden"):
        sandbox.kubectl(f"--kubeconfig={kubeconfig}", "get", "nodes")


def test_a_token_bound_to_a_pod_names_its_node(sandbox: Sandbox, namespace: str) -> None:
    """The claim that the admission policy for agents compares is in the token, as in a DaemonSet's."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "agent"},
        "spec": {"nodeName": "some-node", "containers": [{"name": "it", "image": "it"}]},
    }
    sandbox.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(pod))
    uid = sandbox.kubectl("get", "pod", "agent", "-n", namespace, "-o", "jsonpath={.metadata.uid}")
    token = sandbox.token(namespace, "default", pod=("agent", uid))
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}

    answer = json.loads(sandbox.admin.create("/apis/authentication.k8s.io/v1/tokenreviews", review))

    assert answer["status"]["user"]["extra"]["authentication.kubernetes.io/node-name"] == ["some-node"]


def test_the_audit_record_tells_who_wrote_what(sandbox: Sandbox, namespace: str) -> None:
    """Tests count evictions and Jobs in it, whatever was restarted in between."""
    sandbox.kubectl("create", "configmap", "it", "-n", namespace)

    written = [
        (event["user"]["username"], event["verb"], event["responseStatus"]["code"])
        for event in sandbox.audit_events()
        if event.get("objectRef", {}).get("namespace") == namespace
        and event["objectRef"]["resource"] == "configmaps"
        and event["objectRef"].get("name") == "it"
    ]

    assert written == [("sandbox-admin", "create", 201)]


def test_a_spawned_program_sees_no_other_cluster(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's own KUBECONFIG must never lead a sandbox's controller to a real cluster."""
    monkeypatch.setenv("KUBECONFIG", "/a/real/cluster")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")

    process = sandbox.spawn("env", ["env"], {"EXTRA": "1"})

    assert process.wait(10) == 0
    seen = dict(line.split("=", 1) for line in sandbox.logs("env").splitlines() if "=" in line)
    assert (seen["EXTRA"], seen["HOME"], seen[state.MARK]) == ("1", str(sandbox.state_dir), sandbox.id)
    assert not {"KUBECONFIG", "KUBERNETES_SERVICE_HOST"} & seen.keys()


def test_a_failed_kubectl_says_which_and_why(sandbox: Sandbox) -> None:
    """The error names the command and holds kubectl's own words."""
    with pytest.raises(KubectlError, match=r'kubectl get node none: status 1: .*nodes "none" not found'):
        sandbox.kubectl("get", "node", "none")
