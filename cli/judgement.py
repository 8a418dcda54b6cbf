"""The controller's own judgement, asked here: the same pure functions, over what this program could read.

What only a running controller knows (its configuration, answers to its last requests) is taken at its defaults; what it
decided stands in the objects and is shown from there.
"""

from collections.abc import Mapping
from datetime import datetime

from cli.cluster import Reading
from controller import repairs
from controller.config import SinkSection
from controller.explain import explain
from controller.plan import plan
from controller.view import Fleet, Settings, build


def judge_fleet(reading: Reading, now: datetime) -> Mapping[str, str]:
    """Say for each node without an open incident that is not simply well why nothing, or what, is going to be done."""
    return plan(fleet_of(reading), now).explanations


def judge_node(reading: Reading, node: str, now: datetime) -> tuple[str, ...]:
    """Tell what holds a node and what comes next; nothing where too little could be read to say so."""
    if reading.leases is None or reading.pods is None or reading.jobs is None or reading.daemonsets is None:
        return ()
    return explain(fleet_of(reading), node, now)


def fleet_of(reading: Reading) -> Fleet:
    """Make the controller's view of what was read."""
    return build(
        nodes=reading.nodes,
        healths=reading.healths,
        remediations=reading.remediations,
        policies=reading.policies,
        leases=reading.leases or (),
        pods=reading.pods or (),
        pods_synced=reading.pods is not None,
        jobs=reading.jobs or (),
        daemonsets=reading.daemonsets or (),
        settings=_settings(reading),
    )


def _settings(reading: Reading) -> Settings:
    sinks = {sink for policy in reading.policies for sink in policy.spec.sinks}
    sinks |= {row.sink for one in reading.remediations for row in one.status.notifications}
    return Settings(
        repairs=frozenset(repair.name for repair in repairs.ladder()),
        sinks=dict.fromkeys(sorted(sinks), SinkSection().retries),
    )
