"""ResourceClaims: which devices pods get, and who is refused."""

from typing import Any

import msgspec
import pytest

from controller.scheduler import fit
from controller.scheduler.cycle import open_session, run_cycle
from controller.scheduler.model import Job, Snapshot
from controller.scheduler.nodes import Claim, Device, DeviceRequest, DeviceTaint, Gpu, PartHealth
from controller.scheduler.requests import Request, Toleration
from controller.scheduler.rules import COMPATIBLE, DEFAULT, Rules
from tests.scheduler import words

GPU = "gpu.nvidia.com"
CANNOT = "cannot allocate all claims"
SICK = DeviceTaint(key="gpu.nvidia.com/xid", value="79", effect="NoSchedule")


def device(node: str, index: int, device_class: str = GPU, **changes: Any) -> Device:
    """Give a device by node and number."""
    return Device(id=f"d/{node}/{index}", device_class=device_class, node=node, **changes)


def claim(name: str, count: int = 1, device_class: str = GPU, **changes: Any) -> Claim:
    """Give a claim of queue q for so many devices."""
    request = DeviceRequest(device_class=device_class, count=count)
    return msgspec.structs.replace(Claim(id=name, requests=(request,), queue="q"), **changes)


def pod(name: str, *claims: str, on: str = "", gpus: int = 1) -> Job:
    """Give a job of one pod with claims."""
    asked = Request(claims=claims, dra_gpus=gpus, cpu_milli=1000)
    return words.job(name, "q", request=asked, on=[(on, [])] if on else ())


def world(*jobs: Job, devices: list[Device], claims: list[Claim], **changes: Any) -> Snapshot:
    """Two nodes, n and m, without cards of their own."""
    nodes = [words.node("m", 0), msgspec.structs.replace(words.node("n", 0), **changes)]
    found = words.cluster(nodes, [words.queue("q", 100)], jobs)
    return msgspec.structs.replace(found, devices=tuple(devices), claims=tuple(claims))


def refusal(snapshot: Snapshot, node: str = "n", rules: Rules = DEFAULT, later: bool = False) -> str | None:
    """Ask a node about the pod "new"."""
    session = open_session(snapshot, rules)
    return fit.why_not(session, session.ledger.tasks["new-0"], session.ledger.node_by_name[node], later)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        pytest.param(claim("c", 2), None, id="as many as there are"),
        pytest.param(claim("c", 3), CANNOT, id="more than there are"),
        pytest.param(claim("c", 1, "nic.example.com"), CANNOT, id="of a class that the node lacks"),
        pytest.param(claim("other"), 'resourceclaim "c" not found', id="no such claim"),
        pytest.param(claim("c", why_not="device class x not found"), "device class x not found", id="class"),
        pytest.param(claim("c", queue="p"), 'shared GPU resourceclaim belongs to queue "p"', id="queue"),
        pytest.param(claim("c", queue="", from_template=True), None, id="its own claim needs no queue"),
        pytest.param(
            claim("c", reserved_for=tuple(f"x{index}" for index in range(256))),
            "resourceclaim has its maximum of 256 users",
            id="no place among its users",
        ),
        pytest.param(claim("c", reserved_for=tuple(f"x{i}" for i in range(255))), None, id="the last place"),
        pytest.param(
            claim("c", requests=(DeviceRequest(device_class=GPU, all=True),)), None, id="all of them"
        ),
        pytest.param(
            claim("c", requests=(DeviceRequest(device_class="nic", all=True),)), CANNOT, id="all of none"
        ),
    ],
)
def test_a_claim_on_an_empty_node(asked: Claim, why: str | None) -> None:
    """Two devices on a node, and a claim of each kind."""
    expected = why and why.replace('"c"', '"/c"')
    snapshot = world(pod("new", "c"), devices=[device("n", 0), device("n", 1)], claims=[asked])
    assert refusal(snapshot) == expected


def test_taken_devices_are_not_given_again() -> None:
    """A claim that a running pod holds takes its device; All then finds one missing."""
    runs = pod("old", "held", on="n")
    devices = [device("n", 0), device("n", 1)]
    held = claim("held", devices=("d/n/0",), reserved_for=("old-0",))
    assert refusal(world(runs, pod("new", "c"), devices=devices, claims=[held, claim("c")])) is None
    assert refusal(world(runs, pod("new", "c"), devices=devices, claims=[held, claim("c", 2)])) == CANNOT
    whole = claim("c", requests=(DeviceRequest(device_class=GPU, all=True),))
    assert refusal(world(runs, pod("new", "c"), devices=devices, claims=[held, whole])) == CANNOT


def test_a_shared_claim_binds_to_its_node() -> None:
    """Who shares an allocated claim goes where its devices are."""
    held = claim("held", devices=("d/n/0",), reserved_for=("old-0",))
    snapshot = world(
        pod("old", "held", on="n"),
        pod("new", "held"),
        devices=[device("n", 0), device("m", 0)],
        claims=[held],
    )
    assert refusal(snapshot, "n") is None
    assert refusal(snapshot, "m") == "node(s) didn't have the devices of an allocated resourceclaim"


def test_a_pod_goes_where_its_own_claim_holds_devices_already() -> None:
    """A bind was prepared and came to nothing: the node seems full, yet it is this pod that fills it."""
    mine = claim("mine", devices=("d/n/0",), reserved_for=("new-0",), from_template=True)
    snapshot = world(pod("new", "mine"), devices=[device("m", 0), device("n", 0)], claims=[mine])
    (bind,) = run_cycle(snapshot).binds
    assert (bind.node, bind.devices) == ("n", (("mine", ("d/n/0",)),))


def test_devices_of_strangers_stay_taken() -> None:
    """A claim whose users are not in the snapshot keeps its devices."""
    held = claim("held", devices=("d/n/0",), reserved_for=("who",))
    assert refusal(world(pod("new", "c"), devices=[device("n", 0)], claims=[held, claim("c")])) == CANNOT


@pytest.mark.parametrize(
    ("taint", "tolerations", "rules", "why"),
    [
        pytest.param(SICK, (), DEFAULT, CANNOT, id="a sick device is given to nobody"),
        pytest.param(SICK, (), COMPATIBLE, None, id="KAI gives it"),
        pytest.param(
            SICK, (Toleration(key=SICK.key, operator="Exists"),), DEFAULT, None, id="but to who tolerates it"
        ),
        pytest.param(
            DeviceTaint(key="x", effect="NoExecute"), (), DEFAULT, CANNOT, id="NoExecute keeps off too"
        ),
        pytest.param(DeviceTaint(key="x", effect="None"), (), DEFAULT, None, id="effect None says nothing"),
    ],
)
def test_device_taints(
    taint: DeviceTaint, tolerations: tuple[Toleration, ...], rules: Rules, why: str | None
) -> None:
    """Rule device_taints."""
    asked = claim("c", requests=(DeviceRequest(device_class=GPU, tolerations=tolerations),))
    snapshot = world(pod("new", "c"), devices=[device("n", 0, taints=(taint,))], claims=[asked])
    assert refusal(snapshot, rules=rules) == why


@pytest.mark.parametrize("health", [PartHealth.SICK, PartHealth.UNKNOWN])
@pytest.mark.parametrize("rules", [DEFAULT, COMPATIBLE], ids=["ours", "KAI's"])
def test_a_card_that_its_agent_doubts_is_not_given(health: PartHealth, rules: Rules) -> None:
    """A device whose GPU is sick or Unknown takes no new pod, tainted or not."""
    card = Gpu(uuid="GPU-1", health=health, offered=False)
    snapshot = world(
        pod("new", "c"), devices=[device("n", 0, gpu="GPU-1")], claims=[claim("c")], gpus=(card,)
    )
    assert refusal(snapshot, rules=rules) == CANNOT


def test_a_closed_device_is_not_given() -> None:
    """A device that the builder closed takes nothing new."""
    snapshot = world(pod("new", "c"), devices=[device("n", 0, closed="Unknown")], claims=[claim("c")])
    assert refusal(snapshot) == CANNOT


def test_two_pods_get_two_devices_and_the_third_waits() -> None:
    """Within a cycle a device is given once, and the plan names it."""
    jobs = [pod(name, f"c{name}") for name in ("a", "b", "c")]
    claims = [claim(f"c{name}") for name in ("a", "b", "c")]
    plan = run_cycle(world(*jobs, devices=[device("n", 0), device("m", 0)], claims=claims))
    assert {one.task: (one.node, one.devices) for one in plan.binds} == {
        "a-0": ("m", (("ca", ("d/m/0",)),)),
        "b-0": ("n", (("cb", ("d/n/0",)),)),
    }


def test_an_evicted_pod_leaves_its_devices_for_later() -> None:
    """What is being released is free later and not now, and an undo gives it back."""
    held = claim("held", devices=("d/n/0",), reserved_for=("old-0",))
    snapshot = world(
        pod("old", "held", on="n"), pod("new", "c"), devices=[device("n", 0)], claims=[held, claim("c")]
    )
    session = open_session(snapshot, DEFAULT)
    ledger, node = session.ledger, session.ledger.node_by_name["n"]
    task = ledger.tasks["new-0"]
    mark = ledger.mark()
    ledger.evict(ledger.tasks["old-0"], "for new")
    assert fit.why_not(session, task, node, False) == CANNOT
    assert fit.why_not(session, task, node, True) is None
    ledger.pipeline(task, node)
    assert session.fit.claims.take(task, node, later=True)
    assert dict(task.claim_devices) == {"c": ("d/n/0",)}
    ledger.undo_to(mark)
    assert task.claim_devices == ()
    assert fit.why_not(session, task, node, True) == CANNOT


def test_claims_are_packed() -> None:
    """Of two nodes the one with fewer free devices comes first, and a full one not at all."""
    held = claim("held", devices=("d/n/0",), reserved_for=("old-0",))
    own = claim("c", from_template=True)
    devices = [device("m", 0), device("m", 1), device("n", 0), device("n", 1)]
    snapshot = world(pod("old", "held", on="n"), pod("new", "c"), devices=devices, claims=[held, own])
    session = open_session(snapshot, DEFAULT)
    found = session.candidates.best(session.ledger.tasks["new-0"], False, None)
    assert [node.name for node in found] == ["n", "m"]
    session = open_session(msgspec.structs.replace(snapshot, devices=tuple(devices[:3])), DEFAULT)
    found = session.candidates.best(session.ledger.tasks["new-0"], False, None)
    assert [node.name for node in found] == ["m"]
