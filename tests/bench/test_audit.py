"""Counting requests in the API server's audit record."""

from datetime import UTC, datetime, timedelta
from typing import Any

from bench.audit import Asked, Kind, asked

START = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
US = "system:serviceaccount:nodemend-system:nodemend-controller"


def event(
    verb: str = "patch",
    resource: str = "nodes",
    *,
    user: str = US,
    code: int = 200,
    at_s: float = 1.0,
    subresource: str = "",
    stage: str = "ResponseComplete",
) -> dict[str, Any]:
    """One audit.k8s.io/v1 Event, answered 0.1 s after it came in."""

    def text(seconds: float) -> str:
        return (START + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")

    about = {"resource": resource} | ({"subresource": subresource} if subresource else {})
    return {
        "stage": stage,
        "verb": verb,
        "user": {"username": user},
        "objectRef": about,
        "responseStatus": {"code": code},
        "requestReceivedTimestamp": text(at_s),
        "stageTimestamp": text(at_s + 0.1),
    }


def test_what_was_carried_out_is_counted_by_kind() -> None:
    """Subresources are kinds of their own."""
    found = asked(
        [
            event(),
            event(),
            event(resource="remediations", subresource="status"),
            event("create", "remediations", code=201),
        ],
        US,
        START,
        START + timedelta(seconds=2),
    )
    assert found.done == {
        Kind("patch", "nodes"): 2,
        Kind("patch", "remediations/status"): 1,
        Kind("create", "remediations"): 1,
    }
    assert found.total == 4
    assert found.words() == "2 patch nodes, 1 patch remediations/status, 1 create remediations"


def test_only_our_own_within_the_time() -> None:
    """Others' requests, earlier ones and those still without an answer do not count."""
    found = asked(
        [
            event(user="admin"),
            event(at_s=-0.5),
            event(at_s=1.95),
            event(stage="ResponseStarted"),
        ],
        US,
        START,
        START + timedelta(seconds=2),
    )
    assert (dict(found.done), dict(found.refused)) == ({}, {})
    assert found.words() == "nothing"


def test_refusals_are_counted_apart() -> None:
    """What the server refused is no work done."""
    found = asked([event(code=409), event()], US, START, START + timedelta(seconds=2))
    assert found.refused == {Kind("patch", "nodes"): 1}
    assert found.total == 1
    assert found.words() == "1 patch nodes, 1 refused patch nodes"


def test_what_the_audit_record_leaves_out_is_added() -> None:
    """Events are counted by listing them; none are no kind."""
    found = asked([event()], US, START, START + timedelta(seconds=2))
    assert found.beside(Kind("create", "events"), 3).total == 4
    assert found.beside(Kind("create", "events"), 0) == found


def test_what_was_sent_already_is_taken_away() -> None:
    """As far as it is there: nothing is ever sent a negative number of times."""
    found = asked(
        [event(), event(), event("create", "remediations")], US, START, START + timedelta(seconds=2)
    )
    sent = Asked(done={Kind("patch", "nodes"): 1, Kind("create", "remediations"): 5}, refused={})
    assert found.without(sent).done == {Kind("patch", "nodes"): 1, Kind("create", "remediations"): 0}
