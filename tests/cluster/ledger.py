"""What was really done about a node, counted from outside: the API server's audit record, the receiver, the machine."""

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from kube import paths
from kube.remediation import Remediation
from sandbox.receiver import Message
from sandbox.watching import data_of
from tests.cluster.holds import Case
from tests.cluster.stage import Stage, raw_node

CONTROLLER = "system:serviceaccount:nodemend-system:nodemend-controller"
REPAIRS = "nodemend-repairs"


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """One incident's end: its Jobs that were created, and the distinct messages that arrived, in their order."""

    ended: str
    reboots: int = 0
    validations: int = 0
    told: tuple[str, ...] = ()


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """What one case came to. `evicted` counts accepted evictions by the pod's short name.

    `odd` lists whatever must never be: a message that came twice under two ids or with two contents, a pod that the
    controller deleted, an incident created twice.
    """

    incidents: tuple[Incident, ...]
    machine_reboots: int = 0
    evicted: dict[str, int] = {}
    node_patches: int = 0
    cordons: tuple[bool, ...] = ()
    as_found: bool = True
    odd: tuple[str, ...] = ()


class Audit:
    """The audit record, read once."""

    def __init__(self, stage: Stage) -> None:
        self._events = [
            event for event in stage.sandbox.audit_events() if event["user"]["username"] == CONTROLLER
        ]
        self._namespace = stage.namespace
        standing = json.loads(stage.admin.get(paths.jobs(REPAIRS)))["items"]
        self._jobs: Counter[str] = Counter(job["metadata"]["name"] for job in standing)

    def done(self, verb: str, resource: str, subresource: str = "") -> list[str]:
        """Give the names of the objects with which the controller succeeded to do this, one for each success."""
        return [
            event["objectRef"].get("name", "")
            for event in self._events
            if event["verb"] == verb
            and event["objectRef"]["resource"] == resource
            and event["objectRef"].get("subresource", "") == subresource
            and 200 <= event["responseStatus"].get("code", 0) < 300
            and (resource != "pods" or event["objectRef"].get("namespace") == self._namespace)
        ]

    def jobs(self) -> list[str]:
        """Give the Jobs that were created, a name as often as its creation succeeded.

        A Job that stands was created, even where the record lost the line because its sender was killed meanwhile.
        """
        recorded: Counter[str] = Counter(self.done("create", "jobs"))
        return list((recorded | self._jobs).elements())


def account(stage: Stage, case: Case, audit: Audit) -> Account:
    """Draw up the account of one case."""
    incidents = stage.incidents(case.name)
    pods = {case.work: "work", case.slow: "slow", case.guarded: "guarded"}
    evicted = Counter(pods[name] for name in audit.done("create", "pods", "eviction") if name in pods)
    after = raw_node(stage.admin, case.name)
    return Account(
        incidents=tuple(_incident(stage, one, audit) for one in incidents),
        machine_reboots=case.node.rebooted,
        evicted=dict(sorted(evicted.items())),
        node_patches=audit.done("patch", "nodes").count(case.name),
        cordons=tuple(stage.cordons.get(case.name, ())),
        as_found=after == case.before,
        odd=tuple(_odd(stage, case, incidents, audit, after)),
    )


def _incident(stage: Stage, one: Remediation, audit: Audit) -> Incident:
    name = one.metadata.name
    created = audit.jobs()
    return Incident(
        ended=one.status.phase.value,
        reboots=sum(1 for job in created if job.startswith(f"reboot-{name}-")),
        validations=sum(1 for job in created if job.startswith(f"validate-{name}-")),
        told=tuple(transition for transition, _ in distinct(stage.pages(name)).values()),
    )


def distinct(messages: Iterable[Message]) -> dict[str, tuple[str, str]]:
    """Give transition and summary of each message by its id, in the order in which they first came."""
    found: dict[str, tuple[str, str]] = {}
    for message in messages:
        found.setdefault(message.id, _content(message))
    return found


def _odd(
    stage: Stage, case: Case, incidents: Iterable[Remediation], audit: Audit, after: dict[str, Any]
) -> list[str]:
    found = []
    created = audit.done("create", "remediations")
    for one in incidents:
        name = one.metadata.name
        pages = stage.pages(name)
        contents = distinct(pages)
        found += [f"{m.id} refused: {m.refused}" for m in pages if m.refused]
        found += [f"{m.id} says two things" for m in pages if _content(m) != contents[m.id]]
        found += [f"told twice: {c}" for c, times in Counter(contents.values()).items() if times > 1]
        found += [f"{name} was created {created.count(name)} times"] if created.count(name) > 1 else []
        waiting = [row.id for row in one.status.notifications if row.sent_at is None and not row.dead]
        found += [f"still to be sent: {', '.join(waiting)}"] if waiting else []
    found += [f"deleted pod {name}" for name in audit.done("delete", "pods") if name.startswith(case.name)]
    found += [
        f"{field} of the Node is {after[field]}, and was {case.before[field]}"
        for field in case.before
        if after[field] != case.before[field]
    ]
    return found + ([case.trouble] if case.trouble else [])


def _content(message: Message) -> tuple[str, str]:
    return message.type.rpartition(".")[2], str(data_of(message).get("summary", ""))
