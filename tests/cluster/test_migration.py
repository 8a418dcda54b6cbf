"""From KAI Scheduler to nodemend and back, by the commands of docs/migration-kai.md, on the real API server."""

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from kube import paths
from kube.api import ApiError
from sandbox.actors import start_scheduler
from sandbox.cluster import Sandbox
from sandbox.install import install, install_scheduler
from tests.cluster.kai_cluster import KAI, RESERVATIONS, KaiCluster, blocks, kai_on
from tests.cluster.scheduler_stage import QUICK_LEASE, SchedulerStage, standing
from tests.scheduler_shell.kai_words import KAI_NAMESPACE

pytestmark = pytest.mark.timeout(600)
OURS = "nodemend"


@pytest.fixture(scope="module", autouse=True)
def installed(sandbox: Sandbox) -> None:
    install(sandbox, "observe")
    install_scheduler(sandbox)


@pytest.fixture
def kai(sandbox: Sandbox, namespace: str) -> Iterator[KaiCluster]:
    with standing(sandbox, namespace) as stage, kai_on(stage) as made:
        yield made


class Nodemend:
    """The real process under KAI's name."""

    def __init__(self, stage: SchedulerStage) -> None:
        self._stage = stage
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self._address = f"127.0.0.1:{one.getsockname()[1]}"
        settings = {
            "scheduler_name": KAI,
            "pool": stage.pool,
            "listen": self._address,
            "leader": QUICK_LEASE,
        }
        stage.actors = start_scheduler(stage.sandbox, settings=settings)

    def why_not_ready(self) -> str:
        """Give what /readyz says; "" = ready."""
        try:
            with urllib.request.urlopen(f"http://{self._address}/readyz", timeout=5):
                return ""
        except urllib.error.HTTPError as refusal:
            return refusal.read().decode()
        except OSError as error:
            return f"no answer: {error}"

    def holds_for(self, *words: str) -> None:
        """Wait until all of these are named as being in the way; the process lives on."""
        self._stage.until(
            lambda: all(word in self.why_not_ready() for word in words), f"it to hold for {words}"
        )
        assert self._stage.actors[0].process.alive

    def no_longer_for(self, word: str) -> None:
        self._stage.until(lambda: word not in self.why_not_ready(), f"{word} to be gone")

    def takes_over(self) -> None:
        self._stage.until(lambda: not self.why_not_ready(), "it to be ready")

    def wrote(self) -> list[str]:
        """Name what its account did to pods and PodGroups of this namespace."""
        done = [
            (verb, one)
            for verb in ("create", "patch", "update", "delete", "deletecollection")
            for one in self._stage.audit(verb)
        ]
        return [
            f"{verb} {one['resource']}/{one.get('subresource', '')} {one.get('name', '')}"
            for verb, one in done
        ]

    def stop(self) -> None:
        self._stage.actors[0].stop()


def test_over_to_nodemend_and_back_by_the_documented_steps(kai: KaiCluster, tmp_path: Path) -> None:
    """It holds until the last step, then places who waits and touches nothing else; back, nothing of ours is in the way."""
    stage = kai.stage
    queue = stage.queue("team", parent=stage.queue("department"))
    kai.place(queue)
    kai.line_up(queue)
    for number in range(len(blocks()["Before, by day"])):
        kai.follow("Before, by day", tmp_path, block=number)
    kai.guard()
    with pytest.raises(ApiError, match="webhook"):
        kai.create(kai.pod("refused", queue))

    nodemend = Nodemend(stage)
    nodemend.holds_for("kai-operator", "kai-scheduler-default", "binder")
    _over(kai, nodemend, tmp_path)
    _nodemend_has_it(kai, nodemend, queue, tmp_path)
    _comes_back_by_mistake(kai, nodemend)
    _back(kai, nodemend, tmp_path)


def _over(kai: KaiCluster, nodemend: Nodemend, cwd: Path) -> None:
    """Go step by step; what is left is named, and nothing is written before the last one."""
    kai.follow("Step 1", cwd)
    kai.follow("Step 2", cwd)
    nodemend.no_longer_for("kai-operator")
    nodemend.no_longer_for("kai-scheduler-default")
    assert set(kai.bind_requests()) == {"trained-0", "queued-0"}
    assert "queued-0" in kai.follow("Step 3", cwd)
    assert kai.bind_requests() == {"trained-0": "Succeeded"}
    kai.follow("Step 4", cwd)
    nodemend.holds_for("mutating-kai-admission", "kai-podgroup-validation-v2alpha2")
    assert kai.follow("Step 5", cwd).count("deleted") == 4
    nodemend.no_longer_for("WebhookConfiguration")
    nodemend.no_longer_for("kai-scheduler/binder")
    nodemend.holds_for("queue-controller")
    assert nodemend.wrote() == []
    assert kai.stage.waiting("queued") == ["queued-0", "queued-1"]
    kai.follow("Step 6", cwd)
    nodemend.takes_over()


def _nodemend_has_it(kai: KaiCluster, nodemend: Nodemend, queue: str, cwd: Path) -> None:
    """See who waited placed beside what runs, whole and shared cards counted right, and the rest as KAI left it."""
    stage = kai.stage
    stage.until(lambda: len(stage.running("queued")) == 2, "the gang to start whole")
    stage.until(lambda: len(stage.running("single")) == 3, "single pods to take what is free")
    assert set(stage.running("queued").values()) == {stage.nodes[1]}
    assert set(stage.running("single").values()) == {stage.nodes[0]}
    stage.until(lambda: "switched off" in stage.why("part"), "the part to say why it waits")
    assert len(stage.waiting("single")) == 1
    stage.check_books()
    stage.until(lambda: _gpus(stage, queue, "allocated") == 15.75, "4 + 0.75 + 8 + 3 GPUs in its status")
    assert _gpus(stage, queue, "requested") == 17.25
    assert f"{queue} " in kai.follow("Step 7", cwd)

    assert {name: kai.seen(name) for name in kai.running} == kai.kept
    assert stage.audit("create", "pods", "eviction") == []
    touched = {line.rpartition(" ")[2] for line in nodemend.wrote() if " pods/" in line}
    assert touched & set(kai.running) == set()
    assert kai.bind_requests() == {"trained-0": "Succeeded"}
    assert len(stage.read(paths.pods(RESERVATIONS))["items"]) == 1
    groups = {one["metadata"]["name"]: one for one in stage.groups()}
    assert groups["pg-queued"]["spec"] == {"queue": queue, "minMember": 2, "priorityClassName": "train"}
    assert "kai.scheduler/top-owner-metadata" in groups["pg-trained"]["metadata"]["annotations"]


def _comes_back_by_mistake(kai: KaiCluster, nodemend: Nodemend) -> None:
    """KAI's binder is started beside us: we stop and say so, and go on when it is gone."""
    stage = kai.stage
    kai.scale(1, "binder")
    nodemend.holds_for("kai-scheduler/binder")
    for name in stage.running("single"):
        stage.admin.delete(paths.pod(stage.namespace, name))
    stage.until(lambda: not stage.running("single"), "room")
    before = nodemend.wrote()
    with pytest.raises(AssertionError, match="waited 8 s"):
        stage.until(lambda: bool(stage.running("single")), "the one that waits", timeout_s=8)
    assert nodemend.wrote() == before
    kai.scale(0, "binder")
    stage.until(lambda: len(stage.running("single")) == 1, "the one that waits to start")


def _back(kai: KaiCluster, nodemend: Nodemend, cwd: Path) -> None:
    stage = kai.stage
    nodemend.stop()
    kai.follow("Back 1", cwd)
    kai.follow("Step 3", cwd, block=1)
    kai.follow("Back 3", cwd)
    kai.scale(1, "--all")  # as its operator does
    stage.sandbox.kubectl("-n", KAI_NAMESPACE, "rollout", "status", "deployment/binder")
    items = []
    for kind in ("pods", "podgroups.scheduling.run.ai", "queues.scheduling.run.ai"):
        found = stage.sandbox.kubectl("get", kind, "-n", stage.namespace, "-o", "json")
        items += json.loads(found)["items"]
    mine = {**stage.running(""), **dict.fromkeys(stage.queues, "")}
    for one in items:
        if one["kind"] == "Queue" and one["metadata"]["name"] not in mine:
            continue
        stage.sandbox.kubectl("replace", "--dry-run=server", "-f", "-", stdin=json.dumps(one))
        meta = one["metadata"]
        assert "finalizers" not in meta, f"{one['kind']} {meta['name']}"
        assert [key for key in {**meta.get("labels", {}), **meta.get("annotations", {})} if OURS in key] == []
    names = {one["metadata"]["name"] for one in items if one["kind"] == "PodGroup"}
    for name in stage.running(""):
        notes = stage.read(paths.pod(stage.namespace, name))["metadata"]["annotations"]
        assert notes["received-resource-type"] in ("Regular", "Fraction"), name
        assert notes["pod-group-name"] in names, name
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        assert OURS not in stage.sandbox.kubectl("get", kind, "-o", "name")
    assert {name: kai.seen(name) for name in kai.running} == kai.kept
    stage.check_books()


def _gpus(stage: SchedulerStage, queue: str, which: str) -> float:
    """Read an amount of GPUs from a queue's status."""
    text = str(stage.queue_status(queue).get(which, {}).get("nvidia.com/gpu", "0"))
    return int(text[:-1]) / 1000 if text.endswith("m") else float(text)


def test_every_step_has_commands() -> None:
    """A step that only says what to do is none that can be followed at night."""
    titles = [f"Step {number}" for number in range(1, 8)] + ["Back 1", "Back 3"]
    assert [title for title in titles if not blocks().get(title)] == []
