"""`repaired` and `cancel`: written once, on the right incident, under the version that was judged, or refused."""

from collections.abc import Mapping
from typing import Any

import pytest

from kube import paths
from kube.api import Conflict, Forbidden, PatchType
from kube.remediation import CANCEL, REPAIRED
from tests.cli.objects import Cluster, node, remediation
from tests.fakes import FakeApi, request_to

NOW_TEXT = "2026-11-29T03:00:00.000000Z"


def _cluster(*remediations: dict[str, Any]) -> Cluster:
    return Cluster().add(nodes=[node("gpu-1"), node("gpu-2")], remediations=remediations)


GIVEN = [
    pytest.param("repaired", "Escalated", REPAIRED, id="repaired on an escalated incident"),
    pytest.param("cancel", "Suspected", CANCEL, id="cancel before anything was done"),
    pytest.param("cancel", "Draining", CANCEL, id="cancel in the middle of a drain"),
    pytest.param("cancel", "Escalated", CANCEL, id="cancel on an escalated incident"),
]


@pytest.mark.parametrize(("command", "phase", "annotation"), GIVEN)
def test_a_word_is_written(command: str, phase: str, annotation: str) -> None:
    """One merge patch of one annotation, under the resourceVersion that was read; nothing is asked."""
    cluster = _cluster(remediation("inc-1", "gpu-1", phase))
    version = cluster.api.read(paths.remediation("inc-1"))["metadata"]["resourceVersion"]
    answer = cluster.run(command, "gpu-1")
    assert (answer.code, answer.err) == (0, "")
    assert f"`{command}` is written on incident inc-1 (was {phase})" in answer.out
    (patch,) = cluster.api.writes()
    assert (patch.path, patch.patch_type) == (paths.remediation("inc-1"), PatchType.MERGE)
    assert patch.body == {"metadata": {"resourceVersion": version, "annotations": {annotation: NOW_TEXT}}}


def test_json_tells_what_was_written() -> None:
    """Scripts read the same facts."""
    answer = _cluster(remediation("inc-1", "gpu-1", "Escalated")).run("repaired", "gpu-1", "-o", "json")
    told = answer.json()
    assert (told["incident"], told["annotation"], told["already_given"]) == ("inc-1", REPAIRED, False)
    assert told["at"] == "2026-11-29T03:00:00Z"


def test_a_word_given_twice_is_written_once() -> None:
    """The second call finds what it asks for and says so."""
    cluster = _cluster(remediation("inc-1", "gpu-1", "Escalated"))
    cluster.run("repaired", "gpu-1")
    answer = cluster.run("repaired", "gpu-1")
    assert (answer.code, len(cluster.api.writes())) == (0, 1)
    assert "already said at 2026-11-29 03:00:00Z" in answer.out


def test_a_word_of_an_earlier_escalation_is_written_anew() -> None:
    """After a second escalation the old annotation is used up."""
    old = {REPAIRED: "2026-11-29T01:00:00.000000Z"}
    cluster = _cluster(remediation("inc-1", "gpu-1", "Escalated", annotations=old))
    assert cluster.run("repaired", "gpu-1").code == 0
    assert cluster.annotations("inc-1") == {REPAIRED: NOW_TEXT}


def test_a_word_from_a_fast_clock_that_was_acted_on_is_written_anew() -> None:
    """It still lies ahead when the incident escalates again, and the controller counts it once."""
    ahead = "2026-11-29T05:00:00Z"
    old = remediation("inc-1", "gpu-1", "Escalated", annotations={REPAIRED: ahead}, repairedAt=ahead)
    cluster = _cluster(old)
    assert cluster.run("repaired", "gpu-1").code == 0
    assert cluster.annotations("inc-1") == {REPAIRED: NOW_TEXT}


def test_an_unreadable_annotation_is_replaced() -> None:
    """A hand-written annotation that is no time does not count as given."""
    cluster = _cluster(remediation("inc-1", "gpu-1", "Draining", annotations={CANCEL: "yes please"}))
    assert cluster.run("cancel", "gpu-1").code == 0
    assert cluster.annotations("inc-1") == {CANCEL: NOW_TEXT}


def test_a_slow_clock_does_not_date_the_word_before_its_phase() -> None:
    """The controller would take an older word for one of an earlier phase."""
    cluster = _cluster(remediation("inc-1", "gpu-1", "Escalated", phaseSince="2026-11-29T03:05:00Z"))
    cluster.run("repaired", "gpu-1")
    assert cluster.annotations("inc-1") == {REPAIRED: "2026-11-29T03:05:00.000000Z"}


TWO_OPEN = (remediation("inc-1", "gpu-1", "Draining"), remediation("inc-2", "gpu-1", "Escalated"))
REFUSED = [
    pytest.param(
        ("repaired", "gpu-1"),
        (remediation("inc-1", "gpu-1", "Repairing"),),
        1,
        "gpu-1: the incident is Repairing, not Escalated",
        id="repaired while nodemend is still at it",
    ),
    pytest.param(("repaired", "gpu-1"), (), 1, "gpu-1 has no open incident", id="a healthy node"),
    pytest.param(
        ("cancel", "gpu-1"),
        (remediation("inc-1", "gpu-1", "Returned"),),
        1,
        "gpu-1 has no open incident; the last one, inc-1 ended as Returned",
        id="an incident that is over",
    ),
    pytest.param(("cancel", "gpu-3"), (), 2, "no node is named gpu-3 (is it gpu-", id="a mistyped node"),
    pytest.param(("cancel", "x"), (), 2, "no node is named x\n", id="a node that is like no other"),
    pytest.param(
        ("cancel", "gpu-1"),
        TWO_OPEN,
        2,
        "several open incidents (inc-1, inc-2): name one",
        id="two open incidents",
    ),
    pytest.param(
        ("cancel", "gpu-1", "--incident", "inc-7"),
        TWO_OPEN,
        2,
        "gpu-1 has no incident inc-7",
        id="an unknown incident",
    ),
]


@pytest.mark.parametrize(("argv", "remediations", "code", "words"), REFUSED)
def test_refusals(
    argv: tuple[str, ...], remediations: tuple[dict[str, Any], ...], code: int, words: str
) -> None:
    """Each way of not fitting has its one sentence and its exit code, and writes nothing."""
    cluster = _cluster(*remediations)
    answer = cluster.run(*argv)
    assert (answer.code, answer.out, answer.err.count("\n")) == (code, "", 1)
    assert words in answer.err
    assert cluster.api.writes() == []


def test_incident_chooses_among_several() -> None:
    """The named incident gets the word, the other one is left alone."""
    cluster = _cluster(*TWO_OPEN)
    assert cluster.run("cancel", "gpu-1", "--incident", "inc-2").code == 0
    assert (cluster.annotations("inc-1"), cluster.annotations("inc-2")) == ({}, {CANCEL: NOW_TEXT})


def test_a_node_that_is_gone_can_still_be_cancelled() -> None:
    """The incident is what counts, not the Node object."""
    cluster = Cluster().add(remediations=[remediation("inc-1", "gpu-1", "Escalated")])
    assert cluster.run("cancel", "gpu-1").code == 0


WRITE_ERRORS = [
    pytest.param(
        Conflict("the object has been modified", code=409), 1, "changed in between", id="changed meanwhile"
    ),
    pytest.param(
        Forbidden("remediations is forbidden", code=403),
        3,
        "not allowed to patch remediation",
        id="forbidden",
    ),
]


@pytest.mark.parametrize(("error", "code", "words"), WRITE_ERRORS)
def test_write_errors(error: Exception, code: int, words: str) -> None:
    """A refused write is one sentence, and is not tried again."""
    cluster = _cluster(remediation("inc-1", "gpu-1", "Escalated"))
    cluster.api.fail_next(request_to("PATCH", "/remediations/"), error)
    answer = cluster.run("repaired", "gpu-1")
    assert (answer.code, answer.err.count("\n"), len(cluster.api.writes())) == (code, 1, 1)
    assert words in answer.err


class _Moving(FakeApi):
    """An API whose incident moves on right after it was listed."""

    def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        answer = super().get(path, query)
        self.patch(paths.remediation_status("inc-1"), {"status": {"phase": "Revalidating"}}, PatchType.MERGE)
        return answer


def test_an_incident_that_moved_on_gets_no_word() -> None:
    """The precondition holds on the server: a status written in between makes the patch a conflict."""
    cluster = Cluster(_Moving()).add(
        nodes=[node("gpu-1")], remediations=[remediation("inc-1", "gpu-1", "Escalated")]
    )
    answer = cluster.run("repaired", "gpu-1")
    assert (answer.code, cluster.annotations("inc-1")) == (1, {})
    assert "changed in between" in answer.err
