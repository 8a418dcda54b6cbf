"""The cluster that `scheduler` is measured on: who schedules, who creates, and how it gets empty and quiet again. Shell."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from bench import fleet
from bench import scheduler_requests as requests
from bench.audit import Asked, asked
from bench.bare_plan import EVENT
from bench.hardware import spent_s
from bench.outcome import NotMeasured
from bench.scheduler_figures import OURS
from bench.scheduler_requests import NAMESPACE
from bench.scheduler_sights import Landing
from kube import paths
from kube.api import NotFound, Unavailable
from kube.clock import SYSTEM
from sandbox import certificates
from sandbox.actors import AGENT, SCHEDULER, SYSTEM_NAMESPACE, start_scheduler
from sandbox.cluster import Sandbox
from sandbox.install import install, install_scheduler
from sandbox.processes import Process

_USER: Final = f"system:serviceaccount:{SYSTEM_NAMESPACE}:{SCHEDULER}"
_UP_WITHIN_S: Final = 60.0
_EMPTY_WITHIN_S: Final = 120.0
_CALM_WITHIN_S: Final = 60.0
_CALM_SHARE: Final = 0.15  # of one core, all programs of the control plane together
_CALM_FOR: Final = 2
_QUIET_S: Final = 5.0
_QUIET_WITHIN_S: Final = 90.0
_LOG_END: Final = 1500
_NOW: Final = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}


def prepare(sandbox: Sandbox) -> None:
    """Apply the manifests, make the creator's account, and let nobody schedule or run as a pod besides what is measured."""
    install(sandbox, "observe")
    install_scheduler(sandbox)
    nowhere = {"spec": {"template": {"spec": {"nodeSelector": {fleet.GROUP_LABEL: fleet.NOBODY}}}}}
    patch = f"--patch={json.dumps(nowhere)}"
    sandbox.kubectl("patch", "daemonset", AGENT, f"--namespace={SYSTEM_NAMESPACE}", "--type=merge", patch)
    sandbox.create_namespace(NAMESPACE)
    for collection, body in requests.account():
        sandbox.admin.create(collection, body)
    sandbox.control_plane["kube-scheduler"].stop()


class Stage:
    """Runs the two schedulers in turn and clears up behind them; `landing` is told by a watch of the namespace's pods."""

    def __init__(self, sandbox: Sandbox, landing: Landing) -> None:
        self._sandbox = sandbox
        self._landing = landing
        self._runs = 0

    @contextmanager
    def running(self, who: str) -> Iterator[Process]:
        """Run one of them from its first bind on, which is a pod's that is not measured, until the block ends.

        Raises NotMeasured, in the block too, with the end of its log.
        """
        self._runs += 1
        since = datetime.now(UTC)
        process = self._ours() if who == OURS else self._theirs()
        try:
            self._bind_one(scheduler_name(who))
            if who == OURS:
                self.count(since)
            self.calm()
            yield process
        except NotMeasured as error:
            raise NotMeasured(f"{who}: {error}; the end of its log:\n{self._log_end(process)}") from error
        finally:
            process.stop(grace_s=30)

    def count(self, since: datetime) -> Asked:
        """Count what ours wrote since then, once it has been quiet for a while: some is written after the binds.

        Raises NotMeasured where it does not become quiet.
        """
        deadline = SYSTEM.monotonic() + _QUIET_WITHIN_S
        before = self._asked(since)
        while SYSTEM.monotonic() < deadline:
            SYSTEM.sleep(_QUIET_S)
            after = self._asked(since)
            if after == before:
                return after
            before = after
        raise NotMeasured(f"it still writes after {_QUIET_WITHIN_S:g} s: {before.words()}")

    def clear(self) -> None:
        """Delete the pods and PodGroups; return when they are gone and the machine is calm. Raises NotMeasured."""
        deadline = SYSTEM.monotonic() + _EMPTY_WITHIN_S
        while left := [path for path in _CLEARED if self._items(path)]:
            if SYSTEM.monotonic() > deadline:
                raise NotMeasured(f"there still are objects under {left[0]} after {_EMPTY_WITHIN_S:g} s")
            for path in left:
                with suppress(Unavailable):  # it goes on deleting, and we look again
                    self._sandbox.admin.delete(path, _NOW)
        self.calm()

    def calm(self) -> None:
        """Wait until the control plane has next to nothing to do. Raises NotMeasured."""
        pids = [one.pid for one in self._sandbox.control_plane.values()]
        deadline = SYSTEM.monotonic() + _CALM_WITHIN_S
        calm = 0
        while calm < _CALM_FOR:
            if SYSTEM.monotonic() > deadline:
                raise NotMeasured(f"the control plane has not become calm within {_CALM_WITHIN_S:g} s")
            before = sum(spent_s(pid) for pid in pids)
            SYSTEM.sleep(1.0)
            calm = calm + 1 if sum(spent_s(pid) for pid in pids) - before < _CALM_SHARE else 0

    def _bind_one(self, scheduler: str) -> None:
        name = f"first-{self._runs}"
        self._landing.follow([name])
        self._sandbox.admin.create(paths.pods(NAMESPACE), requests.pod(name, scheduler))
        self._landing.wait(_UP_WITHIN_S)
        with suppress(NotFound):
            self._sandbox.admin.delete(paths.pod(NAMESPACE, name), _NOW)

    def _ours(self) -> Process:
        (actor,) = start_scheduler(self._sandbox)
        return actor.process

    def _theirs(self) -> Process:
        sandbox = self._sandbox
        kubeconfig = sandbox.admin_kubeconfig.with_name(f"{certificates.SCHEDULER.name}.json")
        config = sandbox.state_dir / "bench-kube-scheduler.json"
        config.write_text(json.dumps(requests.their_config(str(kubeconfig))))
        argv = [str(sandbox.programs["kube-scheduler"]), f"--config={config}", "--secure-port=0"]
        return sandbox.spawn(f"{requests.THEIR_NAME}-{self._runs}", argv)

    def _log_end(self, process: Process) -> str:
        return self._sandbox.logs(process.name)[-_LOG_END:]

    def _asked(self, since: datetime) -> Asked:
        written = asked(self._sandbox.audit_events(), _USER, since, datetime.now(UTC))
        return written.beside(EVENT, self._events(since))

    def _events(self, since: datetime) -> int:
        """Count the Events that ours wrote since then; the audit record leaves Events out."""
        first = since.replace(microsecond=0)  # the server keeps whole seconds
        return sum(
            one.get("reportingController") == SCHEDULER
            and datetime.fromisoformat(one["metadata"]["creationTimestamp"]) >= first
            for one in self._items("/apis/events.k8s.io/v1/events")
        )

    def _items(self, path: str) -> list[dict[str, Any]]:
        listed = msgspec.json.decode(self._sandbox.admin.get(path))
        return list(listed["items"])


def scheduler_name(who: str) -> str:
    """Give the schedulerName that a pod of that turn carries; those of the bare client are nobody's."""
    return who if who == OURS else requests.THEIR_NAME


_CLEARED: Final = (paths.pods(NAMESPACE), paths.pod_groups(NAMESPACE))
