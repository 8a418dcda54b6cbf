"""A whole replica of the scheduler in this process, over an API server in a dictionary."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
import urllib3

from controller.connections import Apis
from controller.scheduler.shell.config import Config
from controller.scheduler.shell.runtime import Scheduler
from kube import paths
from kube.clock import SYSTEM, Clock
from tests.fakes import FakeApi, wait_until

NS = "team"
QUEUES = paths.collection("scheduling.run.ai", "v2", "queues")
GROUPS = paths.collection("scheduling.run.ai", "v2alpha2", "podgroups", NS)
FREE = {"quota": -1, "limit": -1, "overQuotaWeight": 1}


class Running:
    """What a test does with it; `api` is the server."""

    def __init__(self, api: FakeApi, scheduler: Scheduler, stop: threading.Event) -> None:
        self.api = api
        self._scheduler = scheduler
        self._stop = stop

    def node(self, name: str, gpus: int = 8, **spec: Any) -> None:
        amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
        status = {
            "conditions": [{"type": "Ready", "status": "True"}],
            "allocatable": amounts,
            "capacity": amounts,
        }
        self.api.add(paths.nodes(), {"metadata": {"name": name}, "spec": spec, "status": status})

    def queue(self, name: str, gpus: int = 0, parent: str = "") -> None:
        gpu = {"quota": gpus, "limit": -1, "overQuotaWeight": 1}
        spec: dict[str, Any] = {"resources": {"gpu": gpu, "cpu": FREE, "memory": FREE}}
        if parent:
            spec["parentQueue"] = parent
        self.api.add(QUEUES, {"metadata": {"name": name}, "spec": spec})

    def pod(self, name: str, gpus: int = 1, *, queue: str = "q", group: str = "", **metadata: Any) -> None:
        asked = {"limits": {"nvidia.com/gpu": str(gpus)}, "requests": {"nvidia.com/gpu": str(gpus)}}
        annotations = {**metadata.pop("annotations", {}), **({"pod-group-name": group} if group else {})}
        body = {
            "metadata": {
                "name": name,
                "namespace": NS,
                "labels": {"kai.scheduler/queue": queue},
                "annotations": annotations,
                **metadata,
            },
            "spec": {
                "schedulerName": "nodemend-scheduler",
                "containers": [{"name": "main", "resources": asked}],
            },
            "status": {"phase": "Pending"},
        }
        self.api.add(paths.pods(NS), body)

    def group(self, name: str, least: int, queue: str = "q") -> None:
        self.api.add(
            GROUPS,
            {"metadata": {"name": name, "namespace": NS}, "spec": {"queue": queue, "minMember": least}},
        )

    def on_node(self, name: str) -> str:
        """Say where a pod is; "" = nowhere yet."""
        return str(self.api.read(paths.pod(NS, name))["spec"].get("nodeName", ""))

    def bound(self, *names: str) -> Callable[[], bool]:
        return lambda: all(map(self.on_node, names))

    def binds(self) -> list[str]:
        """Name the pods of which a Binding was sent, in order."""
        writes = [one.path for one in self.api.writes() if one.path.endswith("/binding")]
        return [path.rpartition("/pods/")[2].removesuffix("/binding") for path in writes]

    def page(self, name: str) -> Any:
        _, text = self.probe(name)
        return text if name == "metrics" else msgspec.json.decode(text)

    def probe(self, name: str) -> tuple[int, str]:
        """Give a page's status and text."""
        with urllib3.PoolManager(retries=False, headers={"connection": "close"}) as http:
            answer = http.request("GET", f"http://127.0.0.1:{self._scheduler.port}/{name}", timeout=5)
        return answer.status, answer.data.decode()

    def stop(self) -> None:
        self._stop.set()
        self._scheduler.wake()


@contextmanager
def running(
    *, leads: bool = True, another_leads: bool | None = None, clock: Clock = SYSTEM, **settings: Any
) -> Iterator[Running]:
    """Run one until the block ends; it ends in order and in time. Where it does not lead another one does, unless told."""
    api = FakeApi()
    config = msgspec.structs.replace(Config(), listen="127.0.0.1:0", **settings)
    stop = threading.Event()

    def connect(_config: Config, _guard: Callable[[], float]) -> Apis:
        return Apis(lease=api, reads=api, writes=api)

    scheduler = Scheduler(config, on_lost=lambda why: pytest.fail(why), connect=connect, clock=clock)
    thread = threading.Thread(target=scheduler.run, args=(stop,), daemon=True)
    lease = paths.lease("nodemend-system", "nodemend-scheduler")
    if not leads if another_leads is None else another_leads:
        spec = {"holderIdentity": "another", "leaseDurationSeconds": 3600, "leaseTransitions": 0}
        api.add(paths.leases("nodemend-system"), {"metadata": {"name": "nodemend-scheduler"}, "spec": spec})
    thread.start()
    try:
        if leads:
            wait_until(lambda: "nodemend-scheduler" in api.names(paths.leases("nodemend-system")), 15)
        yield Running(api, scheduler, stop)
    finally:
        stop.set()
        scheduler.wake()
        api.close()
        thread.join(30)
    assert not thread.is_alive()
    if leads:
        assert api.read(lease)["spec"]["holderIdentity"] == ""


def annotations_of(api: FakeApi, name: str) -> Mapping[str, str]:
    """Give a pod's annotations."""
    found: Mapping[str, str] = api.read(paths.pod(NS, name))["metadata"].get("annotations") or {}
    return found
