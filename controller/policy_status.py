"""Policy status: each pool's numbers and limits that hold, and the one page when a breaker trips. Pure.

A limit that holds must be seen (kubernetes-sigs/cluster-api#5451). Words (breaker, budget, problems, pages) are written at
once; numbers alone at most every few seconds, so that a storm of incidents is not a storm of writes here.
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from controller import outbox
from controller.breaker import Burst
from controller.budget import Pool
from controller.incident import is_open
from controller.steps import SavePolicy
from controller.survey import Survey
from controller.terms import Terms
from controller.workload_pages import suspected, told_of_workloads
from kube.policy import Mode, PolicyStatus, PoolStatus, RemediationPolicy
from kube.remediation import Notification

NUMBERS_EVERY = timedelta(seconds=5)
_PROBLEMS_LIMIT = 20
_NAMES_LIMIT = 5
_POOLS_LIMIT = 200
_ROWS_LIMIT = 200  # the schema holds 256: when all pools trip at once, the first hundreds of pages say enough
_TEXT = 512
_DEAD_SHOWN = timedelta(days=1)  # after the end of its incident; its row stays in the Remediation


def policy_statuses(looked: Survey) -> tuple[list[SavePolicy], datetime | None]:
    """Give the policies whose status is to be written, and when numbers that wait are."""
    steps = []
    times = []
    pools: dict[str, list[Pool]] = {}
    for (governing, _), pool in sorted(looked.pools.items()):
        pools.setdefault(governing, []).append(pool)
    twice = _matched_twice(looked)
    for name, policy in sorted(looked.fleet.policies.items()):
        wanted = _status(looked, policy, pools.get(name, []), twice.get(name, []))
        held = policy.status
        if msgspec.structs.replace(wanted, observed_at=held.observed_at) == held:
            times.append(outbox.next_due(held.notifications, looked.now))
            continue
        due = looked.now if held.observed_at is None else held.observed_at + NUMBERS_EVERY
        if looked.now >= due or _words(wanted) != _words(held):
            version = policy.metadata.resource_version
            steps.append(SavePolicy(node="", name=name, resource_version=version, status=wanted))
        else:
            times.append(due)
    return steps, min((at for at in times if at is not None), default=None)


def _status(
    looked: Survey, policy: RemediationPolicy, pools: Sequence[Pool], twice: Sequence[str]
) -> PolicyStatus:
    terms = looked.terms[policy.metadata.name]
    fleet = looked.fleet
    rows = outbox.settle(policy.status.notifications, fleet.deliveries, fleet.settings.sinks)
    before = {pool.pool: pool for pool in policy.status.pools}
    shown = []
    for pool in pools[:_POOLS_LIMIT]:
        since = before[pool.name].breaker_since if pool.name in before else None
        now_since = (since or looked.now) if pool.burst.nodes else None
        rows = _paged(looked, policy, terms, pool, rows, since, now_since)
        shown.append(_pool(pool, now_since))
    for gone in before.keys() - {pool.name for pool in pools}:
        since = before[gone].breaker_since
        if since is not None:
            owner = _owner(policy, gone, since)
            rows = outbox.resolve(
                rows, owner, f"breaker: pool {gone} is gone", fleet.settings.sinks, looked.now
            )
    workloads = suspected(looked, policy)
    return PolicyStatus(
        observed_generation=policy.metadata.generation,
        pools=tuple(shown),
        problems=_problems(looked, terms, twice, rows),
        workloads=workloads,
        notifications=told_of_workloads(looked, policy, workloads, rows),
        observed_at=looked.now,
    )


def _paged(
    looked: Survey,
    policy: RemediationPolicy,
    terms: Terms,
    pool: Pool,
    rows: tuple[Notification, ...],
    since: datetime | None,
    now_since: datetime | None,
) -> tuple[Notification, ...]:
    """Page once when a breaker trips, and resolve when it lets go.

    Under Observe nobody is paged, since nothing would be held; a breaker that still stands when the mode changes is news.
    """
    schedules = looked.fleet.settings.sinks
    if now_since is not None:
        owner = _owner(policy, pool.name, now_since)
        silent = terms.mode is Mode.OBSERVE or len(rows) >= _ROWS_LIMIT
        if silent or outbox.was_told(rows, owner):
            return rows
        summary = f"{pool.breaker_hold().why}: {_members(pool.burst)}; no drain or repair starts for them"
        return outbox.page(rows, owner, summary, terms.sinks, schedules, looked.now)
    if since is not None:
        owner = _owner(policy, pool.name, since)
        summary = f"breaker: pool {pool.name} is let go: the burst is over or was acknowledged"
        return outbox.resolve(rows, owner, summary, schedules, looked.now)
    return rows


def _pool(pool: Pool, since: datetime | None) -> PoolStatus:
    size, out = len(pool.nodes), len(pool.out)
    most = pool.terms.max_unavailable.of(size)
    breaker = f"{pool.breaker_hold().why}: {_members(pool.burst)}" if since is not None else ""
    full = pool.held - pool.burst.nodes
    budget = ""
    if out >= most or full:
        waiting = f"; {len(full)} waiting" if full else ""
        budget = f"budget: {out} of {size} nodes are out of service, at most {most} may be{waiting}"
    return PoolStatus(
        pool=pool.name,
        nodes=size,
        out_of_service=out,
        quarantined=len(pool.ours),
        repairs_in_flight=len(pool.repairing),
        breaker=breaker[:_TEXT],
        breaker_since=since,
        budget=budget,
    )


def _members(burst: Burst) -> str:
    names = sorted(burst.nodes)
    more = len(names) - _NAMES_LIMIT
    return ", ".join(names[:_NAMES_LIMIT]) + (f" and {more} more" if more > 0 else "")


def _owner(policy: RemediationPolicy, pool: str, since: datetime) -> str:
    """Name one tripping of a breaker for its messages, the same under every leader."""
    words = f"{policy.metadata.name}|{policy.metadata.uid}|{pool}|{since.isoformat()}"
    return f"breaker-{hashlib.sha256(words.encode()).hexdigest()[:12]}"


def _problems(
    looked: Survey, terms: Terms, twice: Sequence[str], own_rows: Sequence[Notification]
) -> tuple[str, ...]:
    problems = [*terms.problems, *terms.warnings]
    if twice:
        more = len(twice) - _NAMES_LIMIT
        names = ", ".join(twice[:_NAMES_LIMIT]) + (f" and {more} more" if more > 0 else "")
        problems.append(
            f"another policy of the same priority selects the same nodes, which are left alone: {names}"
        )
    recent = looked.now - _DEAD_SHOWN
    dead = [row for row in own_rows if row.dead and row.created_at > recent]
    dead += [
        row
        for one in looked.fleet.remediations.values()
        if one.spec.policy == terms.name
        for row in one.status.notifications
        if row.dead and (is_open(one) or row.created_at > recent)
    ]
    if dead:
        newest = max(dead, key=lambda row: (row.created_at, row.id))
        problems.append(
            f"messages could not be delivered, the newest to sink {newest.sink} ({newest.id}): {newest.error}"
        )
    return tuple(problem[:_TEXT] for problem in problems[:_PROBLEMS_LIMIT])


def _matched_twice(looked: Survey) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in sorted(looked.left_alone):
        node = looked.fleet.nodes[name]
        matching = [one for one in looked.terms.values() if one.selects(node)]
        top = max((one.priority for one in matching), default=0)
        first = [one.name for one in matching if one.priority == top]
        if len(first) > 1:
            for policy in first:
                found.setdefault(policy, []).append(name)
    return found


def _words(status: PolicyStatus) -> tuple[object, ...]:
    """Give what is written at once when it changes."""
    pools = tuple((p.pool, bool(p.breaker), p.breaker_since, bool(p.budget)) for p in status.pools)
    return (status.observed_generation, status.problems, status.notifications, status.workloads, pools)
