"""Whom room is being made for stands on the pod itself, and a leader that begins reads it there. Pure.

The field is Kubernetes' own, `status.nominatedNodeName`: it is for a pod that had others evicted on a node and waits until
they have ended, and it holds nobody to anything. `kubectl get pods -o wide` shows it, and cluster-autoscaler counts such a
pod on its node instead of asking for another (podlistprocessor/filter_out_expendable.go). So the pods of jobs with a promise
(`promises`) show it. Whoever merely waits for what ends anyway shows none, as with kube-scheduler, which nominates a pod
only where it preempted for it: nobody was evicted for such a place, and it is decided anew in each cycle.

A nomination is taken back when its promise ended without a bind; kube-scheduler does so where a pod fits nowhere any more.
Of a pod whose bind is under way it stays (KEP-5278: a scheduler that begins shall find where its volumes are being made).
At the bind a server clears it, by default from Kubernetes 1.35 on (ClearingNominatedNodeNameAfterBinding); before that it
stays on the pod that runs there, and means nothing.

What is read at the beginning are wishes of whoever may patch `pods/status`; who creates a pod cannot set it. As a promise it
is believed for one cycle, and gives nobody more than its limits and quotas do. In each cycle its node is tried first for the
pod itself, as kube-scheduler does (`candidates`): so a gang's pods keep their nodes while victims end one after the other.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from controller.scheduler.model import Job
from controller.scheduler.plan import Plan, Promise
from controller.scheduler.shell.memberships import GroupView
from controller.scheduler.shell.pod_status import nomination_write
from controller.scheduler.shell.reported import Report
from controller.scheduler.shell.status_writes import Write
from controller.scheduler.snapshot import POD_GROUP
from kube.types import Pod

GROUPED_WITHIN_S: Final = 5.0
"""How long a first cycle waits for the groups of nominated pods: owners are read for them, and for others need not be."""


def shown(pods: Iterable[Pod], scheduler_name: str) -> tuple[Promise, ...]:
    """Give the promises that pods show, which carry their groups; by the names of the jobs, since all had room at once."""
    found: dict[str, list[str]] = {}
    for pod in pods:
        group = pod.metadata.annotations.get(POD_GROUP)
        if group and pod.spec.scheduler_name == scheduler_name and _is_nominated(pod):
            nodes = found.setdefault(f"{pod.metadata.namespace}/{group}", [])
            nodes.append(pod.status.nominated_node_name)
    return tuple(Promise(job=job, nodes=tuple(sorted(nodes))) for job, nodes in sorted(found.items()))


class Beginning:
    """Before its first cycle a leader waits for the groups of those whom its predecessor made room for, for some seconds.

    Else somebody whose group is known sooner has the room by then. Times are monotonic seconds.
    """

    def __init__(self, scheduler_name: str) -> None:
        self._scheduler_name = scheduler_name
        self._until: float | None = None
        self._is_over = False

    def why_not(self, pods: Mapping[str, Pod], view: GroupView, at: float) -> str | None:
        """Say what is still waited for; None = nothing, from then on."""
        if self._is_over:
            return None
        if self._until is None:
            self._until = at + GROUPED_WITHIN_S
        waits = (
            key
            for key, pod in pods.items()
            if pod.spec.scheduler_name == self._scheduler_name
            and _is_nominated(pod)
            and not _is_grouped(key, pod, view)
        )
        first = next(waits, None) if at < self._until else None
        if first is None:
            self._is_over = True
            return None
        return f"pod {first} is nominated for a node, and its group is not known yet"


class _Ours(msgspec.Struct, frozen=True):
    uid: str
    job: str


class Nominations:
    """What pods are to show after a cycle. Ours to take back is what we wrote, and what stood there when we began."""

    def __init__(self, scheduler_name: str) -> None:
        self._scheduler_name = scheduler_name
        self._ours: dict[str, _Ours] | None = None

    def writes(self, report: Report, jobs: Mapping[str, Job], pods: Mapping[str, Pod]) -> Iterator[Write]:
        """Give the writes that pods need. `jobs`: those of the report's snapshot, by id."""
        if self._ours is None:
            self._ours = self._taken_over(report, pods)
        wanted = _wanted(report.plan)
        for key, (job, node) in wanted.items():
            pod = pods.get(key)
            if pod is None or not _waits(pod):
                continue
            self._ours[key] = _Ours(pod.metadata.uid, job)
            if pod.status.nominated_node_name != node:
                yield nomination_write(pod, node)
        if self._ours:
            self._ours = {key: one for key, one in self._ours.items() if _is_still(one, pods.get(key))}
            ended = [key for key in self._ours if key not in wanted and _is_nominated(pods[key])]
            for key in self._without_bind(ended, report.plan, jobs, pods):
                yield nomination_write(pods[key], "")

    def _taken_over(self, report: Report, pods: Mapping[str, Pod]) -> dict[str, _Ours]:
        job_of = {key: job for job, keys in report.waiting_pods.items() for key in keys}
        return {
            key: _Ours(pod.metadata.uid, job_of.get(key, ""))
            for key, pod in pods.items()
            if pod.spec.scheduler_name == self._scheduler_name and _is_nominated(pod)
        }

    def _without_bind(
        self, ended: list[str], plan: Plan, jobs: Mapping[str, Job], pods: Mapping[str, Pod]
    ) -> Iterator[str]:
        """Name those of whom neither a bind is under way nor the room is kept, as it is while a job pauses."""
        if not ended or self._ours is None:
            return
        of_jobs = {self._ours[key].job for key in ended}
        under_way = {bind.task for bind in plan.binds}
        under_way |= {task.id for name in of_jobs if name in jobs for task in jobs[name].tasks if task.node}
        promised = {(promise.job, node) for promise in plan.promises for node in promise.nodes}
        for key in ended:
            place = (self._ours[key].job, pods[key].status.nominated_node_name)
            if key not in under_way and place not in promised:
                yield key


def _wanted(plan: Plan) -> dict[str, tuple[str, str]]:
    """Give job and node of each pod that room is being made for."""
    if not plan.promises:
        return {}
    promised = {promise.job for promise in plan.promises}
    return {one.task: (one.job, one.node) for one in plan.pipelined if one.job in promised}


def _waits(pod: Pod) -> bool:
    return not pod.spec.node_name and pod.metadata.deletion_timestamp is None


def _is_nominated(pod: Pod) -> bool:
    return bool(pod.status.nominated_node_name) and _waits(pod)


def _is_still(ours: _Ours, pod: Pod | None) -> bool:
    return pod is not None and pod.metadata.uid == ours.uid and _waits(pod)


def _is_grouped(key: str, pod: Pod, view: GroupView) -> bool:
    """Tell whether a pod's group is known, or why there is none."""
    told = view.members.get(key)
    return (
        POD_GROUP in pod.metadata.annotations
        or key in view.problems
        or (told is not None and told.uid == pod.metadata.uid)
    )
