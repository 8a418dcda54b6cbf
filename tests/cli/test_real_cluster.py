"""kubectl-nodemend against a real API server, as a person who holds nothing but the operator's ClusterRole."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from kube import paths
from kube.api import ApiError, Conflict, NotFound, PatchType
from kube.remediation import CANCEL, REPAIRED
from kube.session import connect
from sandbox.cluster import Sandbox
from sandbox.install import install
from tests.cli.objects import node, remediation

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.cluster


class OnCall:
    """A service account bound to the operator's ClusterRole (or to nothing), and its shell."""

    def __init__(self, sandbox: Sandbox, namespace: str, account: str, *, bound: bool) -> None:
        sandbox.kubectl("-n", namespace, "create", "serviceaccount", account)
        if bound:
            binding = f"{namespace}-{account}"
            who = f"--serviceaccount={namespace}:{account}"
            sandbox.kubectl("create", "clusterrolebinding", binding, "--clusterrole=nodemend-operator", who)
        self.kubeconfig = sandbox.kubeconfig_for(namespace, account)
        self.environment = sandbox.environment()

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", "cli", "--kubeconfig", str(self.kubeconfig)]

    def type(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run the program as its own process, without a terminal."""
        return subprocess.run(
            [*self.command, *words],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
        )


@pytest.fixture(scope="module")
def installed(sandbox: Sandbox) -> Sandbox:
    """The cluster with nodemend's manifests."""
    install(sandbox, "observe")
    return sandbox


@pytest.fixture
def on_call(installed: Sandbox, namespace: str) -> OnCall:
    """A person on call."""
    return OnCall(installed, namespace, "on-call", bound=True)


def _open_incident(sandbox: Sandbox, name: str, node_name: str, phase: str) -> None:
    """Put a node and its incident there, status through its own subresource, as the controller does."""
    admin = sandbox.admin
    admin.create(paths.nodes(), {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node_name}})
    admin.patch(paths.node_status(node_name), {"status": node(node_name)["status"]}, PatchType.STRATEGIC)
    made = remediation(name, node_name, phase, message="reboot did not help")
    body = {"apiVersion": "nodemend.dev/v1alpha1", "kind": "Remediation"}
    admin.create(paths.remediations(), {**body, "metadata": {"name": name}, "spec": made["spec"]})
    admin.patch(paths.remediation_status(name), {"status": made["status"]}, PatchType.MERGE)


@pytest.fixture
def escalated(installed: Sandbox) -> str:
    """A node of its own with an escalated incident, whose name it gives."""
    _open_incident(installed, "inc-cli000000001", "cli-node-1", "Escalated")
    return "inc-cli000000001"


@pytest.fixture(autouse=True)
def _clean(sandbox: Sandbox) -> None:
    """Leave nothing of an earlier test behind."""
    for path in (paths.remediation("inc-cli000000001"), paths.node("cli-node-1")):
        try:
            sandbox.admin.delete(path)
        except NotFound:
            continue


def _annotations(sandbox: Sandbox, incident: str) -> dict[str, str]:
    found = json.loads(sandbox.admin.get(paths.remediation(incident)))["metadata"].get("annotations", {})
    return {str(key): str(value) for key, value in found.items()}


def test_status_and_explain_are_allowed_to_an_operator(on_call: OnCall, escalated: str) -> None:
    """The role lets everything be read that the two commands show."""
    status = on_call.type("status", "-o", "json")
    assert (status.returncode, status.stderr) == (0, "")
    told = json.loads(status.stdout)
    rows = [(row["node"], row["phase"], row["incident"]) for row in told["nodes"]]
    assert ("cli-node-1", "Escalated", escalated) in rows
    assert told["not_read"] == []
    story = on_call.type("explain", "cli-node-1")
    assert (story.returncode, story.stderr) == (0, "")
    assert f"INCIDENT {escalated}" in story.stdout


@pytest.mark.parametrize(
    ("command", "annotation"),
    [pytest.param("repaired", REPAIRED, id="repaired"), pytest.param("cancel", CANCEL, id="cancel")],
)
def test_a_word_arrives_as_an_annotation(
    on_call: OnCall, installed: Sandbox, escalated: str, command: str, annotation: str
) -> None:
    """The role lets the word be given, the CRD takes it, and nothing else of the object changes."""
    before = json.loads(installed.admin.get(paths.remediation(escalated)))
    answer = on_call.type(command, "cli-node-1")
    assert (answer.returncode, answer.stderr) == (0, "")
    after = json.loads(installed.admin.get(paths.remediation(escalated)))
    assert set(_annotations(installed, escalated)) == {annotation}
    assert (after["spec"], after["status"]) == (before["spec"], before["status"])


@pytest.mark.parametrize(
    ("answer", "code", "written"),
    [
        pytest.param("n", 1, set(), id="no: nothing is written"),
        pytest.param("", 1, set(), id="no answer is no"),
        pytest.param("y", 0, {CANCEL}, id="yes: the word is written"),
    ],
)
def test_a_terminal_is_asked_first(
    on_call: OnCall, installed: Sandbox, escalated: str, answer: str, code: int, written: set[str]
) -> None:
    """On a terminal what will happen is said and confirmed; without one (all other tests) nothing asks."""
    theirs, ours = pty.openpty()
    command = [*on_call.command, "cancel", "cli-node-1"]
    with subprocess.Popen(
        command, cwd=ROOT, env=on_call.environment, stdin=ours, stdout=ours, stderr=ours
    ) as process:
        os.close(ours)
        os.write(theirs, f"{answer}\n".encode())
        shown = os.read(theirs, 65536).decode()
        while "Go on?" not in shown:
            shown += os.read(theirs, 65536).decode()
        assert process.wait(60) == code
    os.close(theirs)
    assert "will be written on incident" in shown
    assert set(_annotations(installed, escalated)) == written


def test_an_old_version_is_refused_by_the_server(installed: Sandbox, escalated: str) -> None:
    """The resourceVersion in a merge patch is a precondition: this is what `repaired` and `cancel` rest on."""
    seen = json.loads(installed.admin.get(paths.remediation(escalated)))["metadata"]["resourceVersion"]
    installed.admin.patch(
        paths.remediation_status(escalated), {"status": {"phase": "Revalidating"}}, PatchType.MERGE
    )
    body = {"metadata": {"resourceVersion": seen, "annotations": {REPAIRED: "2026-11-29T03:00:00Z"}}}
    with pytest.raises(Conflict):
        installed.admin.patch(paths.remediation(escalated), body, PatchType.MERGE)


def test_an_operator_can_change_no_evidence(on_call: OnCall, escalated: str) -> None:
    """What the role allows beside the annotations is refused by the schema: the latched evidence never changes."""
    api = connect(kubeconfig=on_call.kubeconfig, user_agent="t")
    with pytest.raises(ApiError, match="never changes"):
        api.patch(paths.remediation(escalated), {"spec": {"nodeName": "other"}}, PatchType.MERGE)


def test_who_may_not_read_is_told_so(installed: Sandbox, namespace: str) -> None:
    """An account without the role gets one sentence that names the role."""
    answer = OnCall(installed, namespace, "stranger", bound=False).type("status")
    assert (answer.returncode, answer.stdout, answer.stderr.count("\n")) == (3, "", 1)
    assert "not allowed to list nodes" in answer.stderr
    assert "nodemend-operator" in answer.stderr


def test_a_cluster_that_does_not_answer_is_exit_code_3(on_call: OnCall, tmp_path: Path) -> None:
    """A kubeconfig that leads nowhere ends in one sentence, within the time limits."""
    config = json.loads(on_call.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    on_call.kubeconfig = tmp_path / "nowhere.json"
    on_call.kubeconfig.write_text(json.dumps(config))
    answer = on_call.type("status")
    assert (answer.returncode, answer.stderr.count("\n")) == (3, 1)
    assert "no answer from the cluster" in answer.stderr


def test_kubectl_finds_the_plugin(on_call: OnCall, installed: Sandbox, escalated: str) -> None:
    """`kubectl nodemend explain NODE` is this program."""
    environment = {**on_call.environment, "KUBECONFIG": str(on_call.kubeconfig)}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    command = [str(installed.programs["kubectl"]), "nodemend", "explain", "cli-node-1", "-o", "json"]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert json.loads(answer.stdout)["incidents"][0]["name"] == escalated
