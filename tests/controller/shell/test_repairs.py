"""controller.repairs: what every Job must hold stands in every Job, and a repair that cannot prove itself describes none."""

import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from checks.finding import Action
from controller import repairs
from controller.repairs import JobSettings, Order, Repair, reboot, reset_gpu, revalidate
from tests.controller.shell.samples import INCIDENT, NODE, UID

SETTINGS = JobSettings(
    namespace="nodemend-repairs", service_account="nodemend-repair", image="nodemend@sha256:0", host_pid=True
)
ORDER = Order(
    job=f"{INCIDENT}-reboot-1",
    incident=INCIDENT,
    attempt=1,
    node=NODE,
    node_uid=UID,
    boot_id="boot-1",
    command=("nodemend-agent", "x"),
    deadline_s=900,
    gpu_resource="nvidia.com/gpu",
    gpus=8,
    uuids=("GPU-3", "GPU-5"),
)
ALL = [pytest.param(repair, id=repair.name) for repair in repairs.discover()]


def test_every_module_is_found_and_a_ladder_holds_only_what_changes_something() -> None:
    """Revalidation proves; it is no rung."""
    assert [repair.name for repair in repairs.discover()] == ["reboot", "reset-gpu", "revalidate"]
    assert [(repair.name, repair.action) for repair in repairs.ladder()] == [
        ("reboot", Action.REBOOT),
        ("reset-gpu", Action.RESET_GPU),
    ]


@pytest.mark.parametrize("repair", ALL)
def test_every_job_is_bounded_bound_to_its_node_and_without_a_token(repair: Repair) -> None:
    """One try, a deadline, clean-up, no rights at the API server, this node only."""
    job = repair.job(ORDER, SETTINGS)
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"], spec["ttlSecondsAfterFinished"]) == (
        0,
        900,
        86_400,
    )
    assert (spec["completions"], spec["parallelism"]) == (1, 1)
    assert (pod["restartPolicy"], pod["automountServiceAccountToken"]) == ("Never", False)
    assert pod["serviceAccountName"] == "nodemend-repair"
    terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert terms == [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [NODE]}]}]
    assert "nodeName" not in pod


@pytest.mark.parametrize("repair", ALL)
def test_every_job_tolerates_exactly_our_own_taint_and_the_cordon(repair: Repair) -> None:
    """A node that another incident or another reason keeps empty is not entered."""
    assert repair.job(ORDER, SETTINGS)["spec"]["template"]["spec"]["tolerations"] == [
        {"key": "nodemend.dev/quarantine", "operator": "Equal", "value": INCIDENT, "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"},
    ]


@pytest.mark.parametrize("repair", ALL)
def test_every_job_and_its_pod_say_whose_they_are(repair: Repair) -> None:
    """Label and UID together tell our Job from one that merely has its name."""
    job = repair.job(ORDER, SETTINGS)
    assert job["metadata"]["labels"]["nodemend.dev/incident"] == INCIDENT
    assert job["spec"]["template"]["metadata"]["labels"]["nodemend.dev/incident"] == INCIDENT
    assert job["metadata"]["annotations"] == {"nodemend.dev/node-uid": UID, "nodemend.dev/attempt": "1"}
    assert (job["metadata"]["name"], job["metadata"]["namespace"]) == (
        f"{INCIDENT}-reboot-1",
        "nodemend-repairs",
    )


def container(job: dict[str, Any]) -> dict[str, Any]:
    """Take the one container out of a Job."""
    (only,) = job["spec"]["template"]["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def test_a_reboot_is_told_which_boot_it_must_end() -> None:
    """So that a pod that starts late finds another boot id and does nothing."""
    assert container(reboot.job(ORDER, SETTINGS))["command"] == ["nodemend-agent", "x", "--boot-id", "boot-1"]
    assert container(reboot.job(ORDER, SETTINGS))["securityContext"] == {"privileged": True}


def test_a_reset_names_its_gpus_and_ends_before_its_job_does() -> None:
    """Without one it would reset all of them; persistence mode has to be put back before the Job is killed."""
    told = container(reset_gpu.job(ORDER, SETTINGS))
    assert told["command"] == [
        *("nodemend-agent", "x", "--uuid", "GPU-3", "--uuid", "GPU-5", "--boot-id", "boot-1"),
        *("--timeout-s", "870", "--termination-message-path", "/dev/termination-log"),
    ]
    assert reset_gpu.REPAIR.command == ("nodemend-agent", "reset-gpu", "--driver-root", "/driver-root")
    assert {"name": "driver-root", "mountPath": "/driver-root", "readOnly": True} in told["volumeMounts"]


@pytest.mark.parametrize("host_pid", [True, False])
def test_the_hosts_processes_are_seen_only_where_configured(host_pid: bool) -> None:
    """A sandbox's repairs get no host PIDs."""
    settings = msgspec.structs.replace(SETTINGS, host_pid=host_pid)
    assert reboot.job(ORDER, settings)["spec"]["template"]["spec"]["hostPID"] is host_pid


def test_a_revalidation_reserves_every_gpu_of_the_hardware() -> None:
    """It can only start when all are offered and free; then it is told how many it must find."""
    told = container(revalidate.job(ORDER, SETTINGS))
    assert told["resources"] == {"limits": {"nvidia.com/gpu": "8"}, "requests": {"nvidia.com/gpu": "8"}}
    assert told["command"][-4:] == ["--gpus", "8", "--termination-message-path", "/dev/termination-log"]
    assert told["terminationMessagePath"] == "/dev/termination-log"
    assert all(mount["readOnly"] for mount in told["volumeMounts"])


@pytest.mark.parametrize(
    "repair", [pytest.param(reset_gpu, id="reset-gpu"), pytest.param(revalidate, id="revalidate")]
)
def test_what_asks_the_driver_finds_it_where_the_agent_s_settings_say(repair: Any) -> None:
    """The Job is given the agent's own configuration, and so needs the mount that it names."""
    settings = tomllib.loads((Path(__file__).parents[3] / "manifests/base/config/agent.toml").read_text())
    mounts = container(repair.job(ORDER, SETTINGS))["volumeMounts"]
    assert {"name": "driver-root", "mountPath": settings["nvml"]["driver_root"], "readOnly": True} in mounts


@pytest.mark.parametrize(
    ("repair", "changes"),
    [
        pytest.param(reboot, {"boot_id": ""}, id="a reboot of an unknown boot"),
        pytest.param(reset_gpu, {"boot_id": ""}, id="a reset in an unknown boot"),
        pytest.param(reset_gpu, {"uuids": ()}, id="a reset of no GPU"),
        pytest.param(reset_gpu, {"uuids": ("GPU-3", "")}, id="a reset of a GPU without UUID"),
        pytest.param(revalidate, {"gpus": 0}, id="a revalidation of no GPU"),
        pytest.param(revalidate, {"gpu_resource": ""}, id="a revalidation of an unnamed resource"),
    ],
)
def test_what_could_prove_nothing_is_not_described(repair: Any, changes: dict[str, Any]) -> None:
    """An empty value is refused and never means anything."""
    with pytest.raises(ValueError, match="is unknown"):
        repair.job(msgspec.structs.replace(ORDER, **changes), SETTINGS)


def test_a_revalidation_of_a_node_that_mig_cuts_asks_for_its_devices() -> None:
    """The scheduler is asked for the devices, the hardware for its GPUs."""
    cut = msgspec.structs.replace(ORDER, devices={"nvidia.com/mig-1g.10gb": 56})
    told = container(revalidate.job(cut, SETTINGS))
    assert told["resources"]["limits"] == told["resources"]["requests"] == {"nvidia.com/mig-1g.10gb": "56"}
    assert told["command"][-4:-2] == ["--gpus", "8"]
