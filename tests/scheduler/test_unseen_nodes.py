"""GPU nodes that no agent ever reported: a pool takes them as healthy and says so, or keeps new GPU pods off them."""

from typing import Any

import msgspec
import pytest

from controller.scheduler.model import Snapshot
from controller.scheduler.snapshot import Objects, Options, build
from controller.scheduler.unseen import Unseen
from kube.devices import DeviceClass, ResourceSlice
from kube.nodehealth import NodeHealth
from kube.types import Node, Pod
from tests.scheduler.kube_words import NOW, health, node, pod
from tests.scheduler.object_words import GROUP, ONE_GPU, RUNNING, group, queue
from tests.scheduler.words import bound, decide, evicted

NEVER = "node(s) had GPUs that no agent ever reported"
ADMIT = Options()
REFUSE = Options(unseen=Unseen.REFUSE)
OPEN = {"quota": -1, "limit": -1}
CPU_ONLY = {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}


def without_gpus(name: str) -> Node:
    """Give a node that knows no GPU."""
    kube = node(name)
    status = msgspec.structs.replace(kube.status, capacity={}, allocatable={"cpu": "8", "memory": "8Gi"})
    return msgspec.structs.replace(kube, status=status)


def pool(
    *nodes: Node, told: tuple[NodeHealth, ...] = (), options: Options = ADMIT, **objects: Any
) -> tuple[Snapshot, tuple[str, ...]]:
    """Build a pool of these nodes and this health."""
    return build(Objects(nodes=nodes, health=told, **objects), NOW, options)


def refused(snapshot: Snapshot) -> dict[str, str]:
    """Give why nodes take no new GPU pod."""
    return {one.name: one.no_new_gpu for one in snapshot.nodes if one.no_new_gpu}


def test_a_pool_that_refuses_keeps_new_gpu_pods_off_what_nobody_reported() -> None:
    """Only there, and only where there are GPUs; it says that this is for want of knowledge, and it stays capacity."""
    snapshot, problems = pool(node("n1"), node("n2"), without_gpus("n3"), told=(health(),), options=REFUSE)
    assert refused(snapshot) == {"n2": NEVER}
    assert {one.name: one.unseen for one in snapshot.nodes} == {"n1": (), "n2": ("no_new_gpu",), "n3": ()}
    assert not any(one.out or one.closed for one in snapshot.nodes)
    assert problems == ()


def test_what_another_machine_of_the_same_name_reported_is_no_report() -> None:
    """A node that was replaced is new until its own agent speaks."""
    stranger = health()
    stranger = msgspec.structs.replace(
        stranger, status=msgspec.structs.replace(stranger.status, node_uid="old")
    )
    kube = node()
    new = msgspec.structs.replace(kube, metadata=msgspec.structs.replace(kube.metadata, uid="new"))
    assert refused(pool(new, told=(stranger,), options=REFUSE)[0]) == {"n1": NEVER}


@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        pytest.param("gpu.nvidia.com", {"n3": NEVER}, id="of GPUs"),
        pytest.param("net.example.com", {}, id="of others"),
    ],
)
def test_a_node_whose_devices_only_a_driver_of_claims_gives(driver: str, expected: dict[str, str]) -> None:
    """GPUs of a slice are GPUs too."""
    kind = msgspec.convert(
        {
            "metadata": {"name": driver},
            "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{driver}"'}}]},
        },
        DeviceClass,
    )
    piece = msgspec.convert(
        {
            "metadata": {"name": "s"},
            "spec": {"driver": driver, "nodeName": "n3", "pool": {"name": "n3"}, "devices": [{"name": "d0"}]},
        },
        ResourceSlice,
    )
    snapshot, _ = pool(without_gpus("n3"), options=REFUSE, device_classes=(kind,), slices=(piece,))
    assert refused(snapshot) == expected


@pytest.mark.parametrize(
    ("nodes", "told", "options", "warned"),
    [
        pytest.param((node("n1"), node("n2")), (), Options(), 1, id="nobody reported anything yet"),
        pytest.param((node("n1"), node("n2")), (health(),), Options(), 0, id="the first report ends it"),
        pytest.param(
            (node("n1"),), (health(name="elsewhere"),), Options(), 1, id="a report of another pool does not"
        ),
        pytest.param((without_gpus("n1"),), (), Options(), 0, id="without GPUs there is nothing to report"),
        pytest.param((node("n1"),), (), REFUSE, 0, id="who refuses needs no warning"),
    ],
)
def test_a_pool_that_admits_says_so_until_its_first_report(
    nodes: tuple[Node, ...], told: tuple[NodeHealth, ...], options: Options, warned: int
) -> None:
    """One line for the pool, however many nodes it has."""
    snapshot, problems = pool(*nodes, told=told, options=options)
    assert len(problems) == warned
    assert all(problem.startswith("NodeHealth: ") for problem in problems)
    if options.unseen is Unseen.ADMIT:
        assert refused(snapshot) == {}


def cycle(*pods: Pod, options: Options) -> Snapshot:
    """One GPU on a node that is reported, one on a node that is not."""
    quotas = {"gpu": OPEN, "cpu": OPEN, "memory": OPEN}
    one = {**quotas, "gpu": {"quota": 1, "limit": -1}}
    none = {**quotas, "gpu": {"quota": 0, "limit": -1}}
    snapshot, _ = pool(
        node("n1", 1),
        node("n2", 1),
        told=(health(gpus=1),),
        options=options,
        queues=(queue("research", resources=none), queue("owner", resources=one)),
        pod_groups=(group(), group("owned", queue="owner")),
        pods=pods,
    )
    return snapshot


def test_who_would_have_gone_there_waits_and_nobody_is_evicted_for_it() -> None:
    """The owner of one GPU could take back the guest's, had the other GPU not merely never been reported."""
    guest = pod("guest", meta=GROUP, spec={**ONE_GPU, "nodeName": "n1"}, status=RUNNING)
    asks = pod("asks", meta={"annotations": {"pod-group-name": "owned"}}, spec=ONE_GPU)
    assert bound(decide(cycle(guest, asks, options=Options()))) == {"team/asks": "n2"}
    plan = decide(cycle(guest, asks, options=REFUSE))
    assert (plan.binds, evicted(plan)) == ((), [])
    assert any(NEVER in wait.message for wait in plan.waits)


def test_what_runs_there_stays_and_pods_without_gpus_still_come() -> None:
    """Nothing but new GPU pods is refused."""
    there = pod("there", meta=GROUP, spec={**ONE_GPU, "nodeName": "n2"}, status=RUNNING)
    plain = pod("plain", meta=GROUP, spec={**CPU_ONLY, "nodeSelector": {"zone": "b"}})
    quotas = {"gpu": OPEN, "cpu": OPEN, "memory": OPEN}
    snapshot, _ = pool(
        node("n2", 1, labels={"zone": "b"}),
        options=REFUSE,
        queues=(queue("research", resources=quotas),),
        pod_groups=(group(),),
        pods=(there, plain),
    )
    plan = decide(snapshot)
    assert (bound(plan), evicted(plan)) == ({"team/plain": "n2"}, [])
