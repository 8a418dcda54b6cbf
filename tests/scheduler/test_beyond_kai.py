"""Where KAI Scheduler's rule hurts users, ours does better: the measured cases, in its words and in ours."""

from controller.scheduler.nodes import Gpu, Node, PartHealth
from controller.scheduler.requests import Request
from controller.scheduler.rules import COMPATIBLE, DEFAULT, Rules
from tests.scheduler.words import bound, card, cluster, decide, evicted, job, node, queue

EIGHT = tuple(range(8))


def test_an_old_single_gpu_job_is_taken_rather_than_a_newer_one_of_eight() -> None:
    """One GPU is asked for: one is freed, though the bigger job is the newest (KAI deletes the bigger one)."""
    snapshot = cluster(
        [node("a"), node("b", 1)],
        [queue("lender", 0), queue("owner", 1)],
        [
            job("small", "lender", on=[("b", [0])], age_s=9_000),
            job("big", "lender", gpus=8, on=[("a", EIGHT)], age_s=60),
            job("asks", "owner"),
        ],
    )
    assert evicted(decide(snapshot, COMPATIBLE)) == ["big-0"]
    assert evicted(decide(snapshot)) == ["small-0"]


def test_one_pod_of_a_gang_of_eight_is_spared_where_a_single_one_will_do() -> None:
    """Eight pods would die for one GPU; one that is enough by itself is older, and is taken."""
    snapshot = cluster(
        [node("a"), node("b", 1)],
        [queue("team", 9)],
        [
            job("single", "team", on=[("b", [0])], priority=40, age_s=9_000),
            job("gang", "team", pods=8, on=[("a", [n]) for n in range(8)], priority=40, age_s=60),
            job("asks", "team", priority=60),
        ],
    )
    assert len(evicted(decide(snapshot, COMPATIBLE))) == 8
    assert evicted(decide(snapshot)) == ["single-0"]


def test_a_queue_is_not_thrown_below_its_quota_while_another_choice_exists() -> None:
    """A job of nine holds one GPU over its queue's quota of eight; another queue's single GPU, all surplus, goes first."""
    snapshot = cluster(
        [node("a", 9), node("b", 1)],
        [queue("lender", 8), queue("guest", 0), queue("owner", 1)],
        [
            job("nine", "lender", gpus=9, on=[("a", range(9))], age_s=60),
            job("surplus", "guest", on=[("b", [0])], age_s=90_000),
            job("asks", "owner"),
        ],
    )
    assert evicted(decide(snapshot)) == ["surplus-0"]


def test_a_quota_is_a_promise_even_where_only_a_big_borrower_can_give_it_back() -> None:
    """Nothing else could serve a queue within its quota, so the job that borrowed one GPU by holding nine gives way."""
    snapshot = cluster(
        [node("a", 9)],
        [queue("lender", 8), queue("owner", 1)],
        [job("nine", "lender", gpus=9, on=[("a", range(9))]), job("asks", "owner")],
    )
    assert evicted(decide(snapshot)) == ["nine-0"]


def test_seven_gpus_are_promised_where_one_of_eight_is_sick() -> None:
    """Kubelet gives seven: one half and six whole ones are placed, never eight (KAI places a half and seven whole ones)."""
    eight = tuple(Gpu(uuid=card("a", n), index=n, memory_mib=80_000) for n in range(8))
    small = Node(name="a", cpu_milli=200_000, memory_bytes=1 << 40, gpus=eight, whole_gpus=7)
    half = Request(portion=500, cpu_milli=1000, memory_bytes=1 << 30)
    jobs = [job("half", "team", request=half, age_s=9_000)]
    jobs += [job(f"whole-{n}", "team", age_s=600 - n) for n in range(8)]
    plan = decide(cluster([small], [queue("team", 8)], jobs))
    assert len(plan.binds) == 7
    assert "half-0" in bound(plan)


def test_a_sick_card_is_never_given_and_its_seven_neighbours_are() -> None:
    """The card is named and fenced: seven pods start on the seven others, and the eighth waits for a reason."""
    snapshot = cluster(
        [node("a", sick={3: "Xid79FallenOffBus"})],
        [queue("team", 8)],
        [job(f"pod-{n}", "team") for n in range(8)],
    )
    plan = decide(snapshot)
    given = [uuid for one in plan.binds for uuid in one.gpus]
    assert len(given) == len(set(given)) == 7
    assert card("a", 3) not in given
    assert [wait.job for wait in plan.waits] == ["pod-7"]
    assert snapshot.nodes[0].gpus[3].health is PartHealth.SICK


def test_nothing_of_the_surplus_goes_to_a_lower_priority_while_a_higher_one_wants_it() -> None:
    """Eight GPUs, three queues of priority 2 and one of 1, all wanting five: 3, 3, 2 and nothing (KAI: 2, 2, 2 and 2)."""
    assert sorted(_shares(DEFAULT).values()) == [0, 2_000, 3_000, 3_000]
    assert _shares(DEFAULT)["low"] == 0
    assert set(_shares(COMPATIBLE).values()) == {2_000}


def _shares(rules: Rules) -> dict[str, int]:
    queues = [queue(f"high-{n}", priority=2, created=n) for n in range(3)]
    queues.append(queue("low", priority=1, created=3))
    jobs = [job(f"{one.name}-{n}", one.name) for one in queues for n in range(5)]
    plan = decide(cluster([node("a")], queues, jobs), rules)
    return {share.queue: share.fair_share[0] for share in plan.shares}


def test_a_shortage_is_shared_in_proportion_to_quota() -> None:
    """Six GPUs are left, quotas are eight and four: four and two, not eight and four of six."""
    snapshot = cluster(
        [node("a", 6)],
        [queue("large", 8), queue("small", 4, created=1)],
        [*(job(f"large-{n}", "large") for n in range(8)), *(job(f"small-{n}", "small") for n in range(4))],
    )
    ours = {share.queue: share.fair_share[0] for share in decide(snapshot).shares}
    theirs = {share.queue: share.fair_share[0] for share in decide(snapshot, COMPATIBLE).shares}
    assert ours == {"large": 4_000, "small": 2_000}
    assert theirs == {"large": 8_000, "small": 4_000}


def test_whoever_came_first_gives_back_what_a_shortage_takes_from_it() -> None:
    """One queue runs on all six GPUs that are left; the other, entitled to two of them, gets two."""
    snapshot = cluster(
        [node("a", 6)],
        [queue("large", 8), queue("small", 4, created=1)],
        [
            *(job(f"large-{n}", "large", on=[("a", [n])]) for n in range(6)),
            *(job(f"small-{n}", "small") for n in range(4)),
        ],
    )
    assert len(evicted(decide(snapshot))) == 2
    assert evicted(decide(snapshot, COMPATIBLE)) == []
