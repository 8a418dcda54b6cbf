"""Kubelet's last word, which KWOK does not have: a pod for which its node has no GPU left fails for good.

Nothing else keeps two schedulers at once from giving a card away twice: the API server checks no node's books. As kubelet
does, pods are admitted in the order in which they came to the node (pkg/kubelet/lifecycle, `OutOf<resource>`); what was
admitted stays, and one that is ending has its cards until it is gone.
"""

import threading
import time
from collections.abc import Iterator

from kube import paths
from kube.api import ApiError, PatchType
from kube.types import Pod
from tests.cluster.scheduler_ledger import GPUS, gpus_of, has_ended
from tests.cluster.scheduler_stage import SchedulerStage

EVERY_S = 0.1
REASON = "OutOfnvidia.com/gpu"


class Admission:
    """Looks until `close`; `refused` names the pods that it let fail."""

    def __init__(self, stage: SchedulerStage) -> None:
        self.refused: set[str] = set()
        self._stage = stage
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="admission", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(timeout=10)

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S):
            for pod, used in self._too_many():
                self._refuse(pod, used)

    def _too_many(self) -> Iterator[tuple[Pod, int]]:
        stage = self._stage
        on_node: dict[str, list[Pod]] = {}
        for pod in stage.pods.store.values():
            if pod.spec.node_name in stage.nodes and not has_ended(pod):
                on_node.setdefault(pod.spec.node_name, []).append(pod)
        for pods in on_node.values():
            used = 0
            for pod in sorted(pods, key=lambda one: stage.bound_at.get(one.metadata.uid, time.monotonic())):
                if used + gpus_of(pod) <= GPUS:
                    used += gpus_of(pod)
                elif pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None:
                    yield pod, used  # not before KWOK has played its part, which would overwrite ours

    def _refuse(self, pod: Pod, used: int) -> None:
        asked = gpus_of(pod)
        message = (
            "Pod was rejected: Node didn't have enough resource: nvidia.com/gpu, "
            f"requested: {asked}, used: {used}, capacity: {GPUS}"
        )
        status = {"phase": "Failed", "reason": REASON, "message": message, "containerStatuses": None}
        path = paths.pod_status(pod.metadata.namespace, pod.metadata.name)
        try:
            self._stage.admin.patch(
                path, {"metadata": {"uid": pod.metadata.uid}, "status": status}, PatchType.MERGE
            )
        except ApiError:  # it went meanwhile, or the server is away: it is looked at again
            return
        self.refused.add(pod.metadata.name)
