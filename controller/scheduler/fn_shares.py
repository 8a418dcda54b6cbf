"""Single decisions about shares as conformance records tell them: plain values in, plain values out. Pure.

Records hold GPUs, millicores and bytes as JSON numbers, binary fractions among them; decisions are made on integers, so
that results agree with a record to half a thousandth of a GPU.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, TypeAlias

from controller.scheduler import capacity, fairshare, min_runtime, queue_order, reclaim_gates
from controller.scheduler.amounts import NOTHING, RESOURCE_NAMES, UNLIMITED, WHOLE_GPU, Amounts, plus
from controller.scheduler.model import Queue, Quota, Settings
from controller.scheduler.queues import build
from controller.scheduler.rules import Rules
from controller.scheduler.state import QueueState

Record: TypeAlias = Mapping[str, Any]
Runner: TypeAlias = Callable[[Record, Rules], Any]

_SCALES = (WHOLE_GPU, 1, 1)
_WEIGHT = 1000
_USAGE = 1_000_000


def _scaled(number: Any, scale: int) -> int:
    """Take a JSON number into integers, to the nearest; no bound stays no bound."""
    return UNLIMITED if number == UNLIMITED else round(Fraction(str(number)) * scale)


def _plain(amount: int, scale: int) -> int | float:
    return amount // scale if amount % scale == 0 else amount / scale


def _amounts(record: Record) -> Amounts:
    gpu, cpu, memory = (_scaled(record.get(name, 0), _SCALES[r]) for r, name in enumerate(RESOURCE_NAMES))
    return gpu, cpu, memory


def _spec(record: Record, name: str, created: int = 0) -> Queue:
    gpu, cpu, memory = (
        Quota(
            deserved=_scaled(record[resource]["deserved"], _SCALES[r]),
            limit=_scaled(record[resource]["limit"], _SCALES[r]),
            weight=_scaled(record[resource]["over_quota_weight"], _WEIGHT),
        )
        for r, resource in enumerate(RESOURCE_NAMES)
    )
    parent, priority = record["parent"], record["priority"]
    return Queue(name=name, parent=parent, priority=priority, created=created, quotas=(gpu, cpu, memory))


def _fill(state: QueueState, record: Record) -> QueueState:
    """Put a record's numbers on a queue, as they are there and not as its children would add up to."""
    for field, numbers in (
        ("fair_share", state.fair_share),
        ("allocated", state.allocated),
        ("allocated_non_preemptible", state.allocated_np),
        ("request", state.requested),
    ):
        numbers[:] = [_scaled(record[name][field], _SCALES[r]) for r, name in enumerate(RESOURCE_NAMES)]
    return state


def _tree(records: Mapping[str, Record]) -> dict[str, QueueState]:
    """Build a record's queues; a parent that the record leaves out is taken for none."""
    specs = [
        _spec({**record, "parent": record["parent"] if record["parent"] in records else ""}, name)
        for name, record in records.items()
    ]
    states, _problems = build(specs)
    for name, state in states.items():
        _fill(state, records[name])
    return states


def _alone(record: Record, name: str, created: int = 0) -> QueueState:
    return _fill(QueueState(_spec({**record, "parent": ""}, name, created), None), record)


def _fair_share(record: Record, rules: Rules) -> Any:
    scale = _SCALES[RESOURCE_NAMES.index(record["resource"])]
    claimants = {
        name: fairshare.Claimant(
            name,
            request=_scaled(queue["request"], scale),
            deserved=_scaled(queue["deserved"], scale),
            limit=_scaled(queue["limit"], scale),
            weight=_scaled(queue["over_quota_weight"], _WEIGHT),
            priority=queue["priority"],
            created=queue["creation_rank"],
            usage=_scaled(queue["usage"], _USAGE),
        )
        for name, queue in record["queues"].items()
    }
    k_milli = _scaled(record["k_value"], _WEIGHT)
    total = _scaled(record["total"], scale)
    remaining = fairshare.divide_one(claimants.values(), total, whole=scale, k_milli=k_milli, rules=rules)
    shares = {name: _plain(claimant.share, scale) for name, claimant in claimants.items()}
    return {"fair_share": shares, "remaining": _plain(remaining, scale)}


def _queue_order(record: Record, _rules: Rules) -> Any:
    is_older = record["left_created_vs_right"] < 0
    left = _alone(record["left"], "left", 0 if is_older else 1)
    right = _alone(record["right"], "right", 1 if is_older else 0)
    left_victims = right_victims = NOTHING
    for victim in record.get("left_victims", ()):
        left_victims = plus(left_victims, _amounts(victim))
    for victim in record.get("right_victims", ()):
        right_victims = plus(right_victims, _amounts(victim))
    left_job, right_job = _amounts(record.get("left_job", {})), _amounts(record.get("right_job", {}))
    return queue_order.first(
        left, right, left_job, right_job, left_victims, right_victims, _amounts(record["total"])
    )


def _can_reclaim(record: Record, _rules: Rules) -> Any:
    reclaimer = record["reclaimer"]
    queue = _tree(record["queues"])[reclaimer["queue"]]
    return reclaim_gates.may_reclaim(queue, _amounts(reclaimer["resources"]), reclaimer["preemptible"])


def _victim_filter(record: Record, _rules: Rules) -> Any:
    reclaimer, queues = record["reclaimer"], _tree(record["queues"])
    asked, victim = _amounts(reclaimer["resources"]), queues[record["victim_queue"]]
    return reclaim_gates.may_be_victim(queues[reclaimer["queue"]], asked, victim)


def _strategy(record: Record, _rules: Rules) -> Any:
    return reclaim_gates.allows(
        reclaim_gates.Strategy(record["strategy"]),
        _alone(record["reclaimer_queue"], "reclaimer"),
        _amounts(record["reclaimer_resources"]),
        _alone(record["victim_queue"], "victim"),
        _amounts(record["victim_remaining"]),
    )


def _reclaimable(record: Record, rules: Rules) -> Any:
    reclaimer, queues = record["reclaimer"], _tree(record["queues"])
    victims = [(queues[name], [_amounts(job) for job in jobs]) for name, jobs in record["victims"].items()]
    saturation_milli = _scaled(record["saturation_multiplier"], 1000)
    queue, asked, preemptible = (
        queues[reclaimer["queue"]],
        _amounts(reclaimer["resources"]),
        reclaimer["preemptible"],
    )
    return reclaim_gates.scenario_allowed(queue, asked, preemptible, victims, saturation_milli, rules)


def _capacity(record: Record, _rules: Rules) -> Any:
    queue, asked = _tree(record["queues"])[record["queue"]], _amounts(record["requested"])
    refusal = None if record["checks"] == "non_preemptible_quota" else capacity.why_over_limit(queue, asked)
    refusal = refusal or capacity.why_over_quota(queue, asked, record["preemptible"])
    if refusal is None:
        return {"schedulable": True, "reason": ""}
    return {"schedulable": False, "reason": refusal.code, "queue": refusal.queue}


def _min_runtime(record: Record, _rules: Rules) -> Any:
    nothing = Quota()
    specs = [
        Queue(
            name=name,
            parent=queue["parent"],
            quotas=(nothing, nothing, nothing),
            preempt_min_runtime_s=queue.get("preempt_min_runtime_seconds"),
            reclaim_min_runtime_s=queue.get("reclaim_min_runtime_seconds"),
        )
        for name, queue in record["queues"].items()
    ]
    queues, _problems = build(specs)
    settings = Settings(
        preempt_min_runtime_s=record["default_preempt_seconds"],
        reclaim_min_runtime_s=record["default_reclaim_seconds"],
        reclaim_by_lca=record.get("method", "lca") == "lca",
    )
    victim = queues.get(record["victim_queue"])
    reclaimer = queues.get(record["reclaimer_queue"]) if "reclaimer_queue" in record else victim
    if victim is None or reclaimer is None:
        return {"error": True}
    return {"error": False, "seconds": min_runtime.protected_s(record["kind"], victim, reclaimer, settings)}


RUNNERS: dict[str, Runner] = {
    "fn-fair-share": _fair_share,
    "fn-queue-order": _queue_order,
    "fn-can-reclaim": _can_reclaim,
    "fn-reclaim-victim-filter": _victim_filter,
    "fn-reclaim-strategy": _strategy,
    "fn-reclaimable": _reclaimable,
    "fn-capacity": _capacity,
    "fn-min-runtime": _min_runtime,
}
"""What runs the records of each file, by the file's name without its ending."""
