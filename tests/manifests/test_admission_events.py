"""The admission policy for agents' Events on the real API server, for an account that RBAC hinders nowhere."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from agent.events import AGENT, event
from checks.finding import Part, PartKind
from checks.reason_rows import warning
from kube import paths
from kube.session import Session
from sandbox.cluster import Sandbox
from sandbox.identities import AgentIdentities
from tests.manifests.admission import OTHER, OWN, refusal, table
from tests.manifests.deeds import Deed, create, delete, merge, named

NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
EVENTS = paths.events("default")
FOREIGN = paths.member(EVENTS, "adm-foreign")
POLICY = "nodemend-agent-event"


def told(node: str, by: str = AGENT, name: str = "adm-event") -> dict[str, Any]:
    part = Part(kind=PartKind.GPU, index=0)
    odd = warning("Odd", "odd", "odd").found_on(part, "b", first_seen=NOON, last_seen=NOON)
    made = event(odd, node, "u", NOON)
    return {**made, "reportingController": by, "metadata": {"name": name}}


SERIES = {"series": {"count": 2, "lastObservedTime": "2026-05-04T12:00:00.000000Z"}}
CORE_EVENT = named(
    "adm-core",
    "Event",
    "v1",
    involvedObject={"apiVersion": "v1", "kind": "Node", "name": OTHER},
    reportingComponent=AGENT,
    reportingInstance=OWN,
)
ON_ITS_EVENTS: list[tuple[Deed, str, str]] = [
    (create(EVENTS, told(OTHER)), "its own Node only", "an Event about another node"),
    (
        create("/api/v1/namespaces/default/events", CORE_EVENT),
        "its own Node only",
        "the same in the core group",
    ),
    (create(EVENTS, told(OWN, "kubelet")), "in its own name", "an Event in another's name"),
    (
        merge(FOREIGN, SERIES),
        "of others",
        "another's Event",
    ),
    (delete(FOREIGN), "deletes no Event", "deleting an Event"),
]


@pytest.fixture(scope="module")
def agent(agents: AgentIdentities, installed: Sandbox) -> Iterator[Session]:
    """The agent of a node, and an Event of somebody else about that node."""
    installed.admin.create(EVENTS, told(OWN, "kubelet", "adm-foreign"))
    yield agents.of(OWN)
    installed.admin.delete(FOREIGN)


@pytest.mark.parametrize(("policy", "deed", "words"), table(ON_ITS_EVENTS, POLICY))
def test_an_agent_is_refused(agent: Session, policy: str, deed: Deed, words: str) -> None:
    """Whatever its RBAC were, it tells of its own node in its own name."""
    assert words in refusal(agent, deed, policy)


def test_a_token_without_a_node_tells_nothing(agents: AgentIdentities, agent: Session) -> None:
    """A token that was asked for by hand is nobody's."""
    del agent
    assert "carries no node" in refusal(agents.shared, create(EVENTS, told(OWN)), POLICY)


def test_a_warning_is_told_and_counted(agent: Session) -> None:
    """As the agent does it."""
    agent.create(EVENTS, told(OWN))
    merge(paths.member(EVENTS, "adm-event"), SERIES)(agent)
