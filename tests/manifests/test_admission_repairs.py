"""The admission policies of nodemend-repairs on the real API server: who may start, change, enter and end a repair."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from controller.config import parse
from controller.repairs import JobSettings, Order, discover
from kube import paths
from kube.api import Api, Forbidden
from kube.session import Session
from sandbox.actors import CONTROLLER
from sandbox.cluster import Sandbox
from sandbox.identities import AgentIdentities
from sandbox.install import IMAGE
from tests.fakes import wait_until
from tests.manifests.deeds import REPAIRS, SYSTEM, Deed, create, delete, job, merge, named, session, strategic

RBAC = "/apis/rbac.authorization.k8s.io/v1"
BINDINGS = f"{RBAC}/namespaces/{REPAIRS}/rolebindings"
JOBS, PODS = paths.jobs(REPAIRS), paths.pods(REPAIRS)
JOB = paths.job(REPAIRS, "adm-repair")
NODE = "adm-repaired"
JOBS_POLICY, IMAGE_POLICY, PODS_POLICY, ENTRY_POLICY, SETTINGS_POLICY = (
    f"nodemend-repairs-{subject}" for subject in ("jobs", "image", "pods", "no-entry", "settings")
)
# What a person may be in that namespace, or a program that was taken over.
PEOPLE = ("an admin of the namespace", "its default account", "an agent", "a cluster administrator")


class Scene:
    """A repair whose pod waits for its node, and whoever may come by."""

    def __init__(self, sandbox: Sandbox, controller: Session, agents: AgentIdentities, pod: str) -> None:
        self.controller = controller
        self.pod = paths.pod(REPAIRS, pod)
        self.sandbox = sandbox
        self.people: dict[str, Api] = {
            "an admin of the namespace": session(sandbox, "default", "default"),
            "its default account": session(sandbox, REPAIRS, "default"),
            "an agent": agents.of(NODE),
            "a cluster administrator": sandbox.admin,
        }


@pytest.fixture(scope="module")
def scene(installed: Sandbox) -> Iterator[Scene]:
    admin = installed.admin
    admin.create(paths.nodes(), named(NODE, "Node", "v1"))
    accounts = [("default", "default"), (REPAIRS, "default"), (SYSTEM, "nodemend-agent")]
    binding = named(
        "adm-admins",
        "RoleBinding",
        "rbac.authorization.k8s.io/v1",
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
        subjects=[{"kind": "ServiceAccount", "namespace": space, "name": name} for space, name in accounts],
    )
    admin.create(BINDINGS, binding)
    controller = session(installed, SYSTEM, CONTROLLER)
    agents = AgentIdentities(installed)
    controller.create(JOBS, job("adm-repair"))
    wait_until(lambda: bool(pods_of(admin, "adm-repair")), 30)
    made = Scene(installed, controller, agents, pods_of(admin, "adm-repair")[0])
    wait_until(lambda: all(may_list(api) for api in made.people.values()), 30)
    yield made
    controller.delete(JOB, {"propagationPolicy": "Background"})
    admin.delete(f"{BINDINGS}/adm-admins")
    admin.delete(paths.node(NODE))
    agents.close()
    controller.close()


def pods_of(api: Api, name: str) -> list[str]:
    query = {"labelSelector": f"batch.kubernetes.io/job-name={name}"}
    return [pod["metadata"]["name"] for pod in msgspec.json.decode(api.get(PODS, query))["items"]]


def may_list(api: Api) -> bool:
    try:
        api.get(JOBS)
    except Forbidden:
        return False
    return True


def refused(api: Api, deed: Deed, policy: str) -> str:
    """Give the policy's own words."""
    with pytest.raises(Forbidden) as error:
        deed(api)
    before, _, words = str(error.value).partition("denied request: ")
    assert f"ValidatingAdmissionPolicy '{policy}' with binding '{policy}'" in before
    return words


@pytest.mark.parametrize("who", [pytest.param(name, id=name) for name in PEOPLE])
def test_a_repair_is_started_by_nobody_else(scene: Scene, who: str) -> None:
    """Not even with every right in the namespace, or in the cluster: neither by a Job nor by a pod of one's own."""
    pod = named("adm-pod", "Pod", "v1", spec=job("x")["spec"]["template"]["spec"])
    pretended = {
        "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "adm-repair", "uid": "u", "controller": True}
        ]
    }
    owned = {**pod, "metadata": {**pod["metadata"], **pretended}}

    assert "by nodemend-controller alone" in refused(
        scene.people[who], create(JOBS, job("adm-job")), JOBS_POLICY
    )
    for body in (pod, owned):
        assert "by the Job controller alone" in refused(scene.people[who], create(PODS, body), PODS_POLICY)


SECRET = {"name": "v", "secret": {"secretName": "s"}}
TOKEN = {"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}
MISSHAPEN: list[tuple[dict[str, Any], str, str]] = [
    (job("adm-job", backoffLimit=1), JOBS_POLICY, "tried again"),
    (job("adm-job", pod={"restartPolicy": "OnFailure"}), JOBS_POLICY, "a container that is started again"),
    (job("adm-job", pod={"serviceAccountName": "default"}), JOBS_POLICY, "another account"),
    (job("adm-job", pod={"automountServiceAccountToken": True}), JOBS_POLICY, "with a token"),
    (job("adm-job", pod={"volumes": [SECRET]}), JOBS_POLICY, "with a secret"),
    (job("adm-job", pod={"volumes": [TOKEN]}), JOBS_POLICY, "with a token by another way"),
    (job("adm-job", pod={"initContainers": [{"name": "i", "image": IMAGE}]}), JOBS_POLICY, "with something before it"),
    (job("adm-job", pod={"containers": [{"name": "c", "image": "evil:1"}]}), IMAGE_POLICY, "another image"),
    (
        job("adm-job", pod={"containers": [{"name": "c", "image": IMAGE}, {"name": "d", "image": f"{IMAGE}1"}]}),
        IMAGE_POLICY,
        "another image beside it",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("body", "policy"), [pytest.param(*row[:2], id=row[2]) for row in MISSHAPEN])
def test_the_controller_starts_nothing_of_another_shape(
    scene: Scene, body: dict[str, Any], policy: str
) -> None:
    """One that was taken over runs no image but its own, and takes no credential with it."""
    refused(scene.controller, create(JOBS, body), policy)


def test_every_repair_of_ours_is_admitted(scene: Scene) -> None:
    """Each Job that the product describes passes, with the settings that it ships, but for the sandbox's image."""
    settings = JobSettings(namespace=REPAIRS, service_account="nodemend-repair", image=IMAGE, host_pid=True)
    for repair in discover():
        order = Order(
            job=f"adm-{repair.name}",
            incident="inc-0123456789ab",
            attempt=1,
            node="no-such-node",
            node_uid="u",
            boot_id="b",
            command=repair.command,
            deadline_s=60,
            gpu_resource="nvidia.com/gpu",
            gpus=8,
            uuids=("GPU-3", "GPU-5"),
        )
        scene.controller.create(JOBS, repair.job(order, settings), {"dryRun": "All"})


def test_the_settings_that_ship_are_the_ones_that_are_admitted() -> None:
    """The configuration file gives namespace and account that the policies name."""
    base = Path(__file__).parents[2] / "manifests" / "base" / "config" / "controller.toml"
    jobs = parse(base.read_text(), base.name).jobs

    assert (jobs.namespace, jobs.service_account) == (REPAIRS, "nodemend-repair")


@pytest.mark.parametrize("who", [pytest.param(name, id=name) for name in PEOPLE])
@pytest.mark.parametrize(
    "way",
    [
        pytest.param("exec?command=sh&stdin=true", id="exec"),
        pytest.param("attach?stdin=true", id="attach"),
        pytest.param("portforward?ports=80", id="port-forward"),
        pytest.param("proxy/", id="proxy"),
    ],
)
def test_nobody_enters_a_repair(scene: Scene, who: str, way: str) -> None:
    """A privileged pod is a root shell on its node; whoever needs one has other ways, which have their own guards."""
    assert "nobody enters" in refused(scene.people[who], create(f"{scene.pod}/{way}", {}), ENTRY_POLICY)


def test_nobody_puts_a_container_into_a_repair(scene: Scene) -> None:
    """Neither an ephemeral one, nor by exchanging the image of the one that is there, nor by taking the pod from its Job."""
    debug = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "evil:1"}]}}
    exchange = {"spec": {"containers": [{"name": "c", "image": "evil:1"}]}}
    orphan = {"metadata": {"labels": {"batch.kubernetes.io/job-name": "another"}}}
    person, cluster_admin = scene.people[PEOPLE[0]], scene.people[PEOPLE[-1]]

    refused(cluster_admin, strategic(f"{scene.pod}/ephemeralcontainers", debug), ENTRY_POLICY)
    for api in (person, cluster_admin):
        refused(api, strategic(scene.pod, exchange), PODS_POLICY)
        refused(api, strategic(scene.pod, orphan), PODS_POLICY)
        refused(api, merge(JOB, {"spec": {"activeDeadlineSeconds": 1}}), JOBS_POLICY)


def test_the_settings_of_repairs_are_out_of_reach(scene: Scene) -> None:
    """They name the folder whose library a privileged pod loads: whoever writes them runs code as root on the nodes."""
    settings = f"/api/v1/namespaces/{REPAIRS}/configmaps"
    evil = {"data": {"agent.toml": '[nvml]\ndriver_root = "/driver-root/var/lib/kubelet/pods/evil"\n'}}
    person, cluster_admin = scene.people[PEOPLE[0]], scene.people[PEOPLE[-1]]
    mine = f"{settings}/nodemend-agent"
    for deed in (
        merge(mine, evil),
        create(settings, named("nodemend-agent", "ConfigMap", "v1", **evil)),
        delete(mine),
        delete(settings),
    ):
        assert "takes the right to delete this namespace" in refused(person, deed, SETTINGS_POLICY)

    merge(mine, {"metadata": {"annotations": {"a": "b"}}})(cluster_admin)
    merge(mine, {"metadata": {"annotations": {"a": None}}})(cluster_admin)
    create(settings, named("adm-other", "ConfigMap", "v1"))(person)
    delete(f"{settings}/adm-other")(person)


def test_a_network_plugin_may_annotate_a_pod_of_a_repair(scene: Scene) -> None:
    """Some do before the pod can start, under accounts that no manifest of ours can know."""
    merge(scene.pod, {"metadata": {"annotations": {"example.com/network": "x"}}})(scene.people[PEOPLE[0]])


def test_a_repair_is_ended_by_whoever_may_end_the_namespace(scene: Scene) -> None:
    """An admin of the namespace may not; the cluster's may, as he could anyway, so that `kubectl delete` works in need."""
    pod, name = scene.pod, scene.pod.rpartition("/")[2]
    eviction = named(name, "Eviction", "policy/v1")
    person, cluster_admin = scene.people[PEOPLE[0]], scene.people[PEOPLE[-1]]
    for deed, policy in (
        (delete(JOB), JOBS_POLICY),
        (delete(pod), PODS_POLICY),
        (create(paths.eviction(REPAIRS, name), eviction), PODS_POLICY),
    ):
        assert "called back with `kubectl nodemend cancel" in refused(person, deed, policy)
    scene.controller.create(JOBS, job("adm-ended"))
    cluster_admin.delete(paths.job(REPAIRS, "adm-ended"), {"propagationPolicy": "Foreground"})

    wait_until(lambda: not pods_of(cluster_admin, "adm-ended"), 30)


def test_logs_of_a_repair_may_be_read(scene: Scene) -> None:
    """What is refused is entering it: looking at it is what a person does at night. This one waits, and has said nothing."""
    assert scene.sandbox.kubectl("logs", "-n", REPAIRS, scene.pod.rpartition("/")[2]) == ""
