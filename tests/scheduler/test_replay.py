"""Saved snapshots: read back as they were, planned and told; garbage is told what would be right."""

import json
from pathlib import Path
from typing import Any

import pytest

from controller.scheduler.__main__ import main
from controller.scheduler.casefile import read, snapshot_of
from controller.scheduler.replay import load, save
from tests.scheduler.case_words import case, expect, job, task

WAITS = task()
FITS = case(job("a", WAITS), expected={"jobs": {"a": expect("Binding")}})


def test_replay_of_a_case(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The plan in words: who is bound where, who waits and why."""
    cases = [case(job("a", task(2, "n1")), job("b", WAITS), expected={}, gpus=3), {**FITS, "id": "mine-002"}]
    path = tmp_path / "cases.json"
    path.write_text(json.dumps(cases))
    assert main(["replay", str(path), "--case", "mine-001"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("total: GPU 3,")
    assert "bind b-0 to n1" in [line.partition(" (")[0] for line in lines]


def test_replay_of_a_snapshot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A saved snapshot is read back as it was, and planned alike."""
    snapshot = snapshot_of(read(FITS))
    path = tmp_path / "snapshot"
    path.write_bytes(save(snapshot))
    assert load(path) == snapshot
    assert main(["replay", str(path), "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert [bind["task"] for bind in plan["binds"]] == ["a-0"]


def changed(**fields: Any) -> str:
    """Give the file of a snapshot with a pod changed."""
    raw = json.loads(save(snapshot_of(read(FITS))))
    raw["jobs"][0]["tasks"][0] |= fields
    return json.dumps(raw)


def twice_a_pod_set() -> str:
    """Give the file of a snapshot in which a job has two pod sets of one name."""
    raw = json.loads(save(snapshot_of(read(FITS))))
    raw["jobs"][0]["root"]["pod_sets"] *= 2
    return json.dumps(raw)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("{", "is no JSON", id="no JSON"),
        pytest.param("[" * 100_000, "is no JSON", id="deeper than anybody reads"),
        pytest.param(
            json.dumps({**FITS, "jobs": [job("a", WAITS, age_minutes=10**12)]}),
            "date value out of range",
            id="older than time",
        ),
        pytest.param(
            twice_a_pod_set(),
            "job a: pod sets: '' is there 2 times: each name must be there once",
            id="pod sets",
        ),
        pytest.param("7", "holds 7: must be an object", id="no object"),
        pytest.param("[]", "holds 0 cases: name one with --case", id="a list"),
        pytest.param("{}", "Object missing required field `now`", id="nothing in it"),
        pytest.param(
            changed(status="Dancing"),
            'field jobs.0.tasks.0.status is "Dancing": Invalid enum value',
            id="no such status",
        ),
        pytest.param(
            changed(node="n9"), "task a-0: node is 'n9': must be the name of a node", id="no such node"
        ),
        pytest.param(changed(job="z"), "task a-0: job is 'z': must be 'a'", id="another job's pod"),
        pytest.param(
            changed(request={"portion": 1200}),
            "request.portion is 1200: must be between 0 and 1000",
            id="more than a card",
        ),
    ],
)
def test_files_that_are_no_snapshot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    """Bad input is 2; one line names the file, the field, its value and what would be right."""
    path = tmp_path / "snapshot.json"
    path.write_text(text)
    assert main(["replay", str(path)]) == 2
    said = capsys.readouterr().err
    assert str(path) in said
    assert words in said
    assert said.count("\n") == 1
