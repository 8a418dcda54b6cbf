"""Which devices of a node claims get where requests compete, have constraints, or name alternatives."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.scheduler.claims import MOST_STEPS_OF_A_CYCLE
from controller.scheduler.cycle import open_session, run_cycle
from controller.scheduler.device_search import FEW_STEPS, MOST_OF_A_POD, MOST_STEPS, DeviceSearch
from controller.scheduler.model import Snapshot
from controller.scheduler.nodes import Claim, Device, DeviceConstraint, DeviceRequest
from controller.scheduler.requests import Request
from controller.scheduler.rules import DEFAULT
from tests.scheduler import words

ROOT = "resource.kubernetes.io/pcieRoot"
CANNOT = "cannot allocate all claims"
SAME = DeviceConstraint(attribute=ROOT)
OTHER = DeviceConstraint(attribute=ROOT, distinct=True)


def device(index: int, *kinds: str, root: str = "", **more: Any) -> Device:
    """Give a device of node n by number; `kinds` beside gpu."""
    values = ((ROOT, f"string {root}"),) if root else ()
    return Device(
        id=f"d/n/{index:02}", device_class="gpu", node="n", kinds=("gpu", *kinds), attributes=values, **more
    )


def wants(name: str, kind: str = "gpu", count: int = 1, **more: Any) -> DeviceRequest:
    return DeviceRequest(name=name, device_class="gpu", kind=kind, count=count, **more)


def first_of(name: str, *alternatives: DeviceRequest) -> DeviceRequest:
    named = (msgspec.structs.replace(one, name=f"{name}/{one.name}") for one in alternatives)
    return DeviceRequest(name=name, alternatives=tuple(named))


def claim(name: str, *requests: DeviceRequest, constraints: tuple[DeviceConstraint, ...] = ()) -> Claim:
    return Claim(id=f"team/{name}", requests=requests, constraints=constraints, queue="q", from_template=True)


def world(devices: list[Device], *claims: Claim) -> Snapshot:
    """One pod with all the claims, and one node."""
    asked = Request(claims=tuple(one.id for one in claims), dra_gpus=1, cpu_milli=1000)
    job = words.job("new", "q", request=asked)
    found = words.cluster([words.node("n", 0)], [words.queue("q", 100)], [job])
    return msgspec.structs.replace(found, devices=tuple(devices), claims=claims)


def given_in(snapshot: Snapshot) -> list[str] | str:
    """Give what the cycle gives, as request=number, or why the job waits."""
    plan = run_cycle(snapshot)
    if not plan.binds:
        return plan.waits[0].reasons[0].text
    (bind,) = plan.binds
    return [
        f"{name}={int(one.rpartition('/')[2])}"
        for (_, devices), names in zip(bind.devices, bind.requests, strict=True)
        for one, name in zip(devices, names, strict=True)
    ]


A, B, AB = ("a",), ("b",), ("a", "b")


@pytest.mark.parametrize(
    ("devices", "claims", "expected"),
    [
        pytest.param(
            [device(0, *AB), device(1, *A)],
            [claim("c", wants("x", "a"), wants("y", "b"))],
            ["x=1", "y=0"],
            id="the first request gives way where the second has no other choice",
        ),
        pytest.param(
            [device(0, *AB), device(1, *A)],
            [claim("c", wants("x", "a")), claim("d", wants("y", "b"))],
            ["x=1", "y=0"],
            id="and so does the first claim of a pod",
        ),
        pytest.param(
            [device(0, *A), device(1, *A)],
            [claim("c", wants("x", "a"), wants("y", "b"))],
            CANNOT,
            id="nobody has what the second asks for",
        ),
        pytest.param(
            [device(index, root="pq"[index % 2]) for index in range(5)],
            [claim("c", wants("x", count=3), constraints=(SAME,))],
            ["x=0", "x=2", "x=4"],
            id="all below one root",
        ),
        pytest.param(
            [device(0, root="p"), device(1, root="q"), device(2, root="q")],
            [claim("c", wants("x", count=2), constraints=(SAME,))],
            ["x=1", "x=2"],
            id="the first root has too few",
        ),
        pytest.param(
            [device(0, root="p"), device(1, root="q")],
            [claim("c", wants("x", count=2), constraints=(SAME,))],
            CANNOT,
            id="no root has enough",
        ),
        pytest.param(
            [device(0), device(1)],
            [claim("c", wants("x", count=2), constraints=(SAME,))],
            CANNOT,
            id="without the attribute none matches",
        ),
        pytest.param(
            [device(0, "nic", root="q"), device(1, root="p"), device(2, root="q")],
            [claim("c", wants("g"), wants("n", "nic"), constraints=(SAME,))],
            ["g=2", "n=0"],
            id="a GPU beside its network card, though another GPU comes first",
        ),
        pytest.param(
            [device(0, root="p"), device(1, root="p"), device(2, root="q")],
            [
                claim(
                    "c",
                    wants("x"),
                    wants("y"),
                    wants("z"),
                    constraints=(DeviceConstraint(attribute=ROOT, requests=("x", "z")),),
                )
            ],
            ["x=0", "y=2", "z=1"],
            id="a constraint on two of three requests",
        ),
        pytest.param(
            [device(0, root="p"), device(1, root="p"), device(2, root="q")],
            [claim("c", wants("x", count=2), constraints=(OTHER,))],
            ["x=0", "x=2"],
            id="each below a root of its own",
        ),
        pytest.param(
            [device(0, root="p"), device(1, root="p")],
            [claim("c", wants("x", count=2), constraints=(OTHER,))],
            CANNOT,
            id="and there is only one",
        ),
        pytest.param(
            [device(0, "a100"), device(1, "a100"), device(2, "h100")],
            [claim("c", first_of("g", wants("one", "h100"), wants("two", "a100", 2)))],
            ["g/one=2"],
            id="the first alternative where it can be had",
        ),
        pytest.param(
            [device(0, "a100"), device(1, "a100")],
            [claim("c", first_of("g", wants("one", "h100"), wants("two", "a100", 2)))],
            ["g/two=0", "g/two=1"],
            id="else the second",
        ),
        pytest.param(
            [device(0, "a100")],
            [claim("c", first_of("g", wants("one", "h100"), wants("two", "a100", 2)))],
            CANNOT,
            id="else none",
        ),
        pytest.param(
            [device(0, "h100"), device(1, "a100")],
            [claim("c", first_of("g", wants("one", "h100"), wants("two", "a100")), wants("x", "h100"))],
            ["g/two=1", "x=0"],
            id="a later request needs what the first alternative takes",
        ),
        pytest.param(
            [device(0, "h100", root="p"), device(1, "a100", root="q"), device(2, "nic", root="q")],
            [
                claim(
                    "c",
                    first_of("g", wants("one", "h100"), wants("two", "a100")),
                    wants("n", "nic"),
                    constraints=(DeviceConstraint(attribute=ROOT, requests=("g", "n")),),
                )
            ],
            ["g/two=1", "n=2"],
            id="a constraint that names the request counts for each alternative",
        ),
        pytest.param(
            [device(0, "h100", root="p"), device(1, "nic", root="q")],
            [
                claim(
                    "c",
                    first_of("g", wants("one", "h100"), wants("two", "a100")),
                    wants("n", "nic"),
                    constraints=(DeviceConstraint(attribute=ROOT, requests=("g/two", "n")),),
                )
            ],
            ["g/one=0", "n=1"],
            id="one that names another alternative does not",
        ),
        pytest.param(
            [device(0, *A), device(1), device(2, *A)],
            [claim("c", wants("x", "a", all=True), wants("y", all=True))],
            CANNOT,
            id="all of a kind, and then all of another one that has them in it",
        ),
        pytest.param(
            [device(0, *A), device(1, *B), device(2, *A)],
            [claim("c", wants("x", "a", all=True), wants("y", "b", all=True))],
            ["x=0", "x=2", "y=1"],
            id="all of two kinds",
        ),
        pytest.param(
            [device(index) for index in range(40)],
            [claim("c", wants("x", count=32))],
            [f"x={index}" for index in range(32)],
            id="as many as a claim can have",
        ),
        pytest.param(
            [device(index) for index in range(40)],
            [claim("c", wants("x", count=20), wants("y", count=13))],
            CANNOT,
            id="more than a claim can have",
        ),
        pytest.param(
            [device(0), device(1, unanswered=(("a", "no such key: x"),)), device(2, *A)],
            [claim("c", wants("x", "a"))],
            "request x: the selectors fail on a device: no such key: x",
            id="a selector without a value for a device ends the search that comes to it",
        ),
        pytest.param(
            [device(0, *A), device(1, unanswered=(("a", "no such key: x"),))],
            [claim("c", wants("x", "a"))],
            ["x=0"],
            id="and none that ends before",
        ),
        pytest.param(
            [device(0, *A), device(1, unanswered=(("a", "no such key: x"),))],
            [claim("c", wants("x", "a", all=True))],
            "request x: the selectors fail on a device: no such key: x",
            id="all of them cannot be known",
        ),
    ],
)
def test_what_is_given(devices: list[Device], claims: list[Claim], expected: list[str] | str) -> None:
    assert given_in(world(devices, *claims)) == expected


def test_a_search_that_would_never_end_is_given_up() -> None:
    """Thirty devices, each of a look of its own, and a request that nobody can serve at the end."""
    devices = [device(index, root=f"r{index}") for index in range(30)]
    hopeless = claim("c", wants("x", count=15), wants("y", "none"), constraints=(OTHER,))
    assert given_in(world(devices, hopeless)) == f"{CANNOT}: the search was given up after {MOST_STEPS} steps"


def test_a_pod_that_asks_for_very_many_is_told() -> None:
    """Of shared devices there is no end; the search goes deeper with each, and must not fail for everybody."""
    asked = [claim(f"c{at}", *(wants(f"r{number}") for number in range(32))) for at in range(40)]
    search = DeviceSearch(asked, lambda _: [device(0, shared=True)], lambda *_: True, set())
    assert search.run() == f"{CANNOT}: more than {MOST_OF_A_POD} devices for one pod"


def test_a_cycle_has_an_end_though_every_search_is_given_up() -> None:
    """What has used up the cycle's steps is looked for in a few on every node more; others need no more than those."""
    devices = [device(index, root=f"r{index}") for index in range(30)]
    hopeless = claim("c", wants("x", count=15), wants("y", "none"), constraints=(OTHER,))
    session = open_session(world(devices, hopeless), DEFAULT)
    task, node = session.ledger.tasks["new-0"], session.ledger.node_by_name["n"]
    told = [
        session.fit.claims.why_not(task, node, False) for _ in range(MOST_STEPS_OF_A_CYCLE // MOST_STEPS + 10)
    ]
    assert told[0] == f"{CANNOT}: the search was given up after {MOST_STEPS} steps"
    assert told[-1] == f"{CANNOT}: the search was given up after {FEW_STEPS} steps"


def test_equal_devices_cost_no_time() -> None:
    """Of those that nothing tells apart one is tried."""
    devices = [device(index) for index in range(30)]
    assert given_in(world(devices, claim("c", wants("x", count=15), wants("y", "none")))) == CANNOT


NUMBERS = st.integers(0, 2)
DEVICES = st.lists(
    st.builds(
        lambda kinds, root: (kinds, root),
        st.sets(st.sampled_from(["a", "b", "c"])),
        st.sampled_from(["", "p", "q"]),
    ),
    min_size=1,
    max_size=7,
)
REQUESTS = st.builds(
    lambda kind, count, every: wants("", kind, count, all=every),
    st.sampled_from(["gpu", "a", "b", "c"]),
    st.integers(1, 3),
    st.sampled_from([False] * 7 + [True]),
)
CONSTRAINTS = st.lists(
    st.builds(
        lambda names, distinct: DeviceConstraint(
            attribute=ROOT, requests=tuple(sorted(names)), distinct=distinct
        ),
        st.sets(st.sampled_from(["r0", "r1", "r1/1"])),
        st.booleans(),
    ),
    max_size=2,
)


@st.composite
def claims_of_a_pod(draw: st.DrawFn) -> list[Claim]:
    found = []
    for name in ("c", "d")[: draw(st.integers(1, 2))]:
        requests = []
        for at in range(draw(st.integers(1, 3))):
            several = draw(st.lists(REQUESTS, min_size=1, max_size=3))
            named = [msgspec.structs.replace(one, name=f"{index}") for index, one in enumerate(several)]
            alone = msgspec.structs.replace(several[0], name=f"r{at}")
            requests.append(alone if len(several) == 1 else first_of(f"r{at}", *named))
        found.append(claim(name, *requests, constraints=tuple(draw(CONSTRAINTS))))
    return found


@settings(max_examples=300, deadline=None)
@given(DEVICES, claims_of_a_pod(), st.randoms(use_true_random=False))
def test_whatever_is_given_is_what_was_asked_for(
    seeds: list[tuple[set[str], str]], claims: list[Claim], order: Any
) -> None:
    """No device twice, counts and constraints kept, the same for inputs in another order, and an undo leaves nothing."""
    devices = [device(index, *sorted(kinds), root=root) for index, (kinds, root) in enumerate(seeds)]
    snapshot = world(devices, *claims)
    plan = run_cycle(snapshot)
    mixed = list(devices)
    order.shuffle(mixed)
    again = msgspec.structs.replace(snapshot, devices=tuple(mixed), claims=tuple(reversed(claims)))
    assert run_cycle(again).binds == plan.binds
    known = {one.id: one for one in devices}
    for bind in plan.binds:
        every = [one for _, given_devices in bind.devices for one in given_devices]
        assert len(every) == len(set(every))
        for asked, (_, chosen), names in zip(claims, bind.devices, bind.requests, strict=True):
            _check(asked, [(known[one], name) for one, name in zip(chosen, names, strict=True)])
    session = open_session(snapshot, DEFAULT)
    task, node = session.ledger.tasks["new-0"], session.ledger.node_by_name["n"]
    mark = session.ledger.mark()
    session.ledger.allocate(task, node)
    assert session.fit.claims.take(task, node, later=False) is bool(plan.binds)
    session.ledger.undo_to(mark)
    assert (task.claim_devices, session.fit.claims.free_gpus(node)) == ((), len(devices))


def _check(asked: Claim, chosen: list[tuple[Device, str]]) -> None:
    for request in asked.requests:
        names = {name for _, name in chosen if name.partition("/")[0] == request.name}
        (name,) = names
        (variant,) = [one for one in request.alternatives or (request,) if one.name == name]
        mine = [one for one, of in chosen if of == name]
        assert all(variant.kind in one.kinds for one in mine)
        assert variant.all or len(mine) == variant.count
    for constraint in asked.constraints:
        about = [
            dict(one.attributes).get(ROOT)
            for one, name in chosen
            if not constraint.requests or {name, name.partition("/")[0]} & set(constraint.requests)
        ]
        assert None not in about
        assert len(set(about)) == (len(about) if constraint.distinct else min(len(about), 1))


def test_shared_devices_may_be_given_to_both_requests() -> None:
    """Several may hold such a device, each with a share of its own."""
    asked = claim("c", wants("x"), wants("y"))
    search = DeviceSearch([asked], lambda _: [device(0, shared=True)], lambda *_: True, set())
    assert search.run() == ((("d/n/00", "x"), ("d/n/00", "y")),)
