"""`uninstall` on a cluster in a dictionary: its order, its waits, and that it can be killed anywhere and run again."""

from typing import Any

import pytest

from cli.uninstall_plan import CRD, PAUSED_BY, PROGRAMS
from kube import paths
from kube.api import Forbidden
from kube.remediation import QUARANTINE
from tests.cli.installed import REPAIRS, RUNS, SYSTEM, Installation, installation, is_clean
from tests.cli.objects import INCIDENT, mark, policy
from tests.fakes import Request, request_to


def position(cluster: Installation, method: str, part: str) -> int:
    """Say where in the order of writes the first such request stands."""
    found = [
        place
        for place, one in enumerate(cluster.api.writes())
        if one.method == method and (part in one.path if part.endswith("/") else one.path.endswith(part))
    ]
    assert found, f"no {method} to {part}"
    return found[0]


def test_everything_goes_in_the_order_that_is_safe() -> None:
    """Paused, cancelled, programs and Jobs ended, rights taken, Nodes cleaned, objects, namespaces, and the CRDs last."""
    cluster = installation()
    cluster.lead()
    answer = cluster.uninstall()
    assert (answer.code, answer.err) == (0, "")
    assert is_clean(cluster)
    steps = [
        ("PATCH", "/remediationpolicies/gpu"),
        ("PATCH", f"/remediations/{INCIDENT}"),
        ("DELETE", "/deployments/"),
        ("DELETE", "/daemonsets/nodemend-agent"),
        ("DELETE", "/jobs/"),
        ("DELETE", "/clusterrolebindings/"),
        ("PATCH", "/nodes/gpu-2/status"),
        ("DELETE", "/clusterroles/"),
        ("DELETE", "/validatingadmissionpolicybindings/"),
        ("DELETE", f"{paths.namespace(SYSTEM)}"),
        ("DELETE", "/customresourcedefinitions/"),
    ]
    order = [position(cluster, *step) for step in steps]
    assert order == sorted(order)
    assert "nothing of nodemend's is left in the cluster" in answer.out


class Killed(Exception):
    """The command is gone, as by kill -9."""


def writes_of_a_whole_run() -> int:
    cluster = installation()
    cluster.lead()
    cluster.uninstall()
    return len(cluster.api.writes())


@pytest.mark.parametrize(
    "after", [pytest.param(False, id="before it arrives"), pytest.param(True, id="right after")]
)
def test_killed_at_any_write_it_goes_on(after: bool) -> None:
    """Whatever write it died at, the same command brings it to the same end."""
    for number in range(writes_of_a_whole_run()):
        cluster = installation()
        cluster.lead()
        seen = iter(range(10_000))

        def is_the_one(request: Request, seen: Any = seen, number: int = number) -> bool:
            return request.method not in ("GET", "LIST") and next(seen) == number

        cluster.api.fail_next(is_the_one, Killed(), after=after)
        with pytest.raises(Killed):
            cluster.uninstall()
        if after:
            cluster.installed.follow(cluster.api.writes()[-1].path)
        assert cluster.uninstall().code == 0
        assert is_clean(cluster)


def test_a_cluster_without_nodemend_is_fine() -> None:
    """NotFound everywhere: nothing is left, exit 0, nothing written."""
    cluster = installation()
    cluster.uninstall()
    written = len(cluster.api.writes())
    answer = cluster.uninstall()
    assert (answer.code, len(cluster.api.writes())) == (0, written)
    assert "nothing of nodemend's was found" in answer.out


def test_dry_run_writes_nothing() -> None:
    """The whole plan is told, incident by incident."""
    cluster = installation("Repairing", attempts=[RUNS])
    answer = cluster.run("uninstall", "--dry-run")
    assert (answer.code, cluster.api.writes()) == (0, [])
    for words in (
        "policy gpu: paused",
        f"incident {INCIDENT} on gpu-1 (Repairing): waited for up to 10m, since reboot-{INCIDENT}-1 runs",
        "conditions are removed: GpuXidError on 2",
        f"gpu-1: cordon, taint, annotation of {INCIDENT} removed",
        "DaemonSet deleted: nodemend-system/nodemend-agent, nodemend-system/nodemend-daem",
        "namespace nodemend-system is deleted with everything in it",
        "are deleted with all their objects",
        "/var/lib/nodemend stays",
    ):
        assert words in answer.out


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        pytest.param((), "nobody can be asked here: give --yes", id="no terminal and no --yes"),
        pytest.param(("--yes", "--wait", "soon"), "--wait 'soon' is no duration", id="no duration"),
    ],
)
def test_bad_use_writes_nothing(argv: tuple[str, ...], words: str) -> None:
    """One sentence, exit code 2."""
    cluster = installation()
    answer = cluster.run("uninstall", *argv)
    assert (answer.code, cluster.api.writes()) == (2, [])
    assert words in answer.err


def test_missing_rights_are_named_before_anything_is_done() -> None:
    """All of them at once, exit code 3."""
    cluster = installation()
    cluster.installed.denied = {("delete", "customresourcedefinitions"), ("patch", "nodes")}
    answer = cluster.uninstall()
    assert (answer.code, answer.err.count("\n"), cluster.api.writes()) == (3, 1, [])
    for right in (
        "patch nodes, ",
        "patch nodes/status",
        "delete customresourcedefinitions.apiextensions.k8s.io",
    ):
        assert right in answer.err
    assert "nothing was changed" in answer.err


def test_a_refusal_on_the_way_names_verb_and_resource() -> None:
    """An admission policy of the user's can still say no."""
    cluster = installation()
    cluster.api.fail_next(request_to("DELETE", "/clusterroles/"), Forbidden("denied by policy", code=403))
    answer = cluster.uninstall()
    assert (answer.code, answer.err.count("\n")) == (3, 1)
    assert (
        "not allowed to delete clusterroles.rbac.authorization.k8s.io nodemend-clus: denied by policy"
        in answer.err
    )


def test_others_crds_stay_even_with_our_label() -> None:
    """KAI's kinds are another API group; so is one that only ends like ours."""
    cluster = installation()
    others = [
        ("queues", "scheduling.run.ai"),
        ("topologies", "kai.scheduler"),
        ("things", "not-nodemend.dev"),
    ]
    for plural, group in others:
        cluster.add_crd(plural, group)
    assert cluster.uninstall().code == 0
    assert cluster.api.names(CRD.collection()) == sorted(f"{plural}.{group}" for plural, group in others)


def test_kept_crds_keep_their_objects_as_they_were_found() -> None:
    """The story stays; the pause that was ours is taken back once nothing acts any more, a pause of others stays."""
    paused = policy("held")
    paused["spec"]["paused"] = True
    cluster = installation().add(policies=[paused])
    cluster.lead()
    answer = cluster.uninstall("--keep-crds")
    assert answer.code == 0
    assert len(cluster.api.names(CRD.collection())) == 3
    assert INCIDENT in cluster.api.names(paths.remediations())
    held = cluster.api.read(paths.policy("gpu"))
    assert (held["spec"]["paused"], PAUSED_BY in held["metadata"].get("annotations", {})) == (False, False)
    assert cluster.api.read(paths.policy("held"))["spec"]["paused"] is True


def test_a_namespace_with_others_work_in_it_stays() -> None:
    """A pod or a volume claim that is not ours would be lost with it: it is named, exit code 1."""
    cluster = installation()
    cluster.api.add(paths.pods(SYSTEM), {"metadata": {"name": "prometheus-0"}})
    claims = paths.collection("", "v1", "persistentvolumeclaims", REPAIRS)
    cluster.api.add(claims, {"metadata": {"name": "data"}})
    cluster.installed.lets_go = False
    cluster.api.remove(paths.pod(SYSTEM, "nodemend-agent-1"))
    answer = cluster.uninstall()
    assert answer.code == 1
    assert "LEFT: Namespace nodemend-system: it holds pod prometheus-0, not nodemend's" in answer.out
    assert "LEFT: Namespace nodemend-repairs: it holds volume claim data, not nodemend's" in answer.out
    assert cluster.api.names(paths.namespaces()) == [REPAIRS, SYSTEM]
    assert cluster.api.names(PROGRAMS[0].collection()) == []


def test_a_namespace_of_the_users_own_is_not_ours_for_being_named() -> None:
    """`--namespace` says where nodemend runs; without the manifests' label the namespace itself is somebody else's."""
    cluster = installation()
    cluster.api.add(paths.namespaces(), {"metadata": {"name": "gpu-ops"}})
    assert cluster.uninstall("--namespace", "gpu-ops").code == 0
    assert cluster.api.names(paths.namespaces()) == ["gpu-ops"]


def test_pods_that_do_not_end_are_named() -> None:
    """On a machine that is away nobody can end them; their rights are gone, so the rest goes on."""
    cluster = installation()
    cluster.installed.lets_go = False
    answer = cluster.uninstall()
    assert "these pods do not end (are their machines away?)" in answer.out
    assert "nodemend-agent-1 on gpu-1" in answer.out
    assert "/status" in str([one.path for one in cluster.api.writes()])


def test_a_node_in_other_hands_is_left_and_named() -> None:
    """Its annotation stays with it, so that `release` can finish when the other automation has."""
    cluster = installation()
    held = cluster.api.read(paths.node("gpu-1"))
    held["metadata"]["labels"] = {"nvidia.com/gpu-driver-upgrade-state": "drain-required"}
    cluster.api.replace(paths.node("gpu-1"), held)
    answer = cluster.uninstall()
    assert answer.code == 1
    assert "LEFT: node gpu-1: taint nodemend.dev/quarantine, annotation nodemend.dev/quarantine" in answer.out
    first = cluster.node("gpu-1")
    assert first["spec"]["unschedulable"] is True
    assert QUARANTINE in first["metadata"]["annotations"]
    assert [c["type"] for c in first["status"]["conditions"]] == ["Ready"]
    assert cluster.api.names(paths.namespaces()) == []
    assert cluster.run("release", "gpu-1", "--force", "--yes").code == 0


def test_an_interrupt_says_how_to_go_on() -> None:
    """Ctrl-C half-way leaves policies paused; the person is told."""
    cluster = installation()
    cluster.api.fail_next(request_to("DELETE", "/daemonsets/"), KeyboardInterrupt())  # type: ignore[arg-type]
    answer = cluster.uninstall()
    assert answer.code == 130
    assert "stopped half-way" in answer.out


def test_json_is_one_document() -> None:
    """What was planned and what is left, for a program; the steps on standard error."""
    answer = installation().uninstall("-o", "json")
    told = answer.json()
    assert told["left"] == []
    assert any("policy gpu: paused" in line for line in told["planned"])
    assert "deleted Deployment" in answer.err


def test_a_cordon_from_before_stays_and_is_told() -> None:
    """The plan and the step say why the node stays cordoned."""
    cluster = installation()
    held = cluster.api.read(paths.node("gpu-1"))
    held["metadata"]["annotations"].update(mark(unschedulableBefore=True, cordoned=False))
    cluster.api.replace(paths.node("gpu-1"), held)
    answer = cluster.uninstall()
    assert answer.code == 0
    assert answer.out.count("it stays cordoned: it was cordoned before nodemend came") == 2
    assert cluster.node("gpu-1")["spec"]["unschedulable"] is True
