"""A dry run beside the real scheduler: it decides on the same cluster, writes nothing at all, and never takes the lead."""

import json
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kube import paths
from sandbox.actors import SCHEDULER, SYSTEM_NAMESPACE, start_scheduler
from sandbox.certificates import ADMIN
from tests.cluster.scheduler_stage import QUICK_LEASE, SchedulerStage

LEASE = paths.lease(SYSTEM_NAMESPACE, SCHEDULER)


class DryRun:
    """With the admin's rights, so that RBAC keeps it from nothing and the audit record tells it from the real one."""

    def __init__(self, stage: SchedulerStage) -> None:
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self._listen = f"127.0.0.1:{one.getsockname()[1]}"
        self._stage = stage
        self._began = len(stage.sandbox.audit_events())  # others ran with these rights before
        kube = {
            "server": "",
            "token_file": "",
            "ca_file": "",
            "kubeconfig": str(stage.sandbox.admin_kubeconfig),
        }
        settings = {
            "pool": stage.pool,
            "dry_run": True,
            "listen": self._listen,
            "leader": QUICK_LEASE,
            "kube": kube,
        }
        (self.actor,) = start_scheduler(stage.sandbox, settings=settings)

    def read(self, page: str) -> str:
        with urllib.request.urlopen(f"http://{self._listen}/{page}", timeout=5) as answer:
            text: str = answer.read().decode()
        return text

    def would_bind(self) -> set[str]:
        """Name the pods that it would bind now; none while nobody listens yet."""
        try:
            return {one["task"].partition("/")[2] for one in json.loads(self.read("plan"))["binds"]}
        except OSError:
            return set()

    def writes(self) -> list[dict[str, Any]]:
        """Give what a scheduler wrote, or tried to, since then under the account that only this one has."""
        return [
            event["objectRef"]
            for event in self._stage.sandbox.audit_events()[self._began :]
            if event["user"]["username"] == ADMIN.user and "scheduler" in event.get("userAgent", "")
        ]


@contextmanager
def dry_running(stage: SchedulerStage) -> Iterator[DryRun]:
    one = DryRun(stage)
    try:
        yield one
    finally:
        one.actor.stop()


def lease_names(stage: SchedulerStage) -> set[str]:
    return {one["metadata"]["name"] for one in stage.read(paths.leases(SYSTEM_NAMESPACE))["items"]}


def test_a_dry_run_beside_the_real_scheduler_disturbs_nothing(stage: SchedulerStage) -> None:
    """It stands under the same Lease's name, is there first, and does not take over from one that died."""
    stage.add_nodes(1)
    queue = stage.queue("team", quota=8)
    leases = lease_names(stage)
    with dry_running(stage) as dry:
        stage.create_pod("first", queue)
        stage.until(lambda: dry.would_bind() == {"first"}, "the dry run to plan")
        assert stage.waiting("") == ["first"]
        stage.start(leader=QUICK_LEASE)
        stage.until(lambda: "first" in stage.running(""), "the real one to bind")
        stage.until(lambda: dry.would_bind() == set(), "the dry run to see it")

        (real,) = stage.actors
        real.kill()
        stage.create_pod("second", queue)
        stage.until(lambda: dry.would_bind() == {"second"}, "the dry run to plan the next one")
        holder = stage.read(LEASE)["spec"]["holderIdentity"]
        real.start()
        stage.until(lambda: "second" in stage.running(""), "the real one to bind again")
        assert stage.read(LEASE)["spec"]["holderIdentity"] != holder
        assert "nodemend_leader 0.0" in dry.read("metrics")
        assert stage.metric("nodemend_scheduler_foreign_binds_total") == 0
        assert dry.writes() == []
        assert lease_names(stage) - leases <= {SCHEDULER}
    stage.check_books()
