"""Folders of cases as people run them: what is counted, what garbage gets to hear."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from controller.scheduler.__main__ import main
from controller.scheduler.conformance import run_case
from controller.scheduler.fn_grouper import RUNNERS
from controller.scheduler.model import TaskStatus
from controller.scheduler.rules import COMPATIBLE
from tests.scheduler.case_rows import FITS, WAITS
from tests.scheduler.case_words import Json, case, expect, job

OUTSIDE_CASES = os.environ.get("NODEMEND_OUTSIDE_CASES", "")


FOLDER = "kai-cases"


def folder(tmp_path: Path, **files: Any) -> Path:
    """Give a folder with these files, as JSON, and two that are none of the program's business."""
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (tmp_path / f"{name.replace('_', '-')}.json").write_text(text)
    (tmp_path / "README.md").write_text("not a case")
    return tmp_path


BAD = case(job("a", WAITS), expected={"jobs": {"a": expect("Pending")}}, name="mine-002")


@pytest.mark.parametrize(
    ("files", "code", "counts", "said"),
    [
        pytest.param({"one": [FITS]}, 0, {"passed": 1, "failed": [], "differs": []}, "", id="all pass"),
        pytest.param(
            {"one": [FITS, BAD]},
            1,
            {"passed": 1, "failed": ["mine-002"], "differs": []},
            "one.json: mine-002 failed: a-0 is Binding",
            id="one fails",
        ),
        pytest.param(
            {"one": []}, 0, {"passed": 0, "failed": [], "differs": []}, "0 passed", id="an empty list"
        ),
        pytest.param(
            {"one": "{"},
            1,
            {"passed": 0, "failed": ["one.json"], "differs": []},
            "one.json: failed: Expecting",
            id="no JSON",
        ),
        pytest.param(
            {"one": {}},
            1,
            {"passed": 0, "failed": ["one.json"], "differs": []},
            "is dict: must be a list of cases",
            id="no list",
        ),
        pytest.param(
            {"one": "[" * 100_000},
            1,
            {"passed": 0, "failed": ["one.json"], "differs": []},
            "one.json: failed: maximum recursion depth",
            id="deeper than anybody reads",
        ),
        pytest.param(
            {"one": '[{"id": "\\ud800"}]'},
            1,
            {"passed": 0, "failed": ["\ud800"], "differs": []},
            "one.json: \\ud800 failed: unreadable",
            id="a name that no stream takes",
        ),
        pytest.param(
            {"one": [7, {}, FITS]},
            1,
            {"passed": 1, "failed": ["[0]", "[1]"], "differs": []},
            "one.json: [1] failed: field `id` is missing",
            id="things that are no cases",
        ),
        pytest.param(
            {"one": [{"id": "x", "input": {}, "output": {}}]},
            1,
            {"passed": 0, "failed": ["x"], "differs": []},
            "no function decides one records",
            id="records that nobody decides",
        ),
    ],
)
def test_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], files: Json, code: int, counts: Json, said: str
) -> None:
    """Exit 0 where no case failed, 1 where one did; the counts by file; one clear line for whatever is not well."""
    out = tmp_path / "out"
    out.mkdir()
    report = out / "report.txt"
    assert (
        main(["conformance", str(folder(tmp_path, **files)), "--mode", "compatible", "--json", str(report)])
        == code
    )
    assert json.loads(report.read_text()) == {"files": {"one.json": counts}}
    assert said in capsys.readouterr().out


def test_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A part of the cases, by the beginning of their names."""
    assert main(["conformance", str(folder(tmp_path, one=[FITS, BAD])), "--only", "mine-001"]) == 0
    assert "1 passed" in capsys.readouterr().out


def test_only_what_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A slip in the name must not look like success."""
    assert main(["conformance", str(folder(tmp_path, one=[FITS])), "--only", "nine"]) == 2
    assert "no file and no case" in capsys.readouterr().err


def test_a_folder_within(tmp_path: Path) -> None:
    """What is no file is no case, whatever it is called."""
    (tmp_path / "x.json").mkdir()
    assert main(["conformance", str(folder(tmp_path, one=[FITS]))]) == 0


@pytest.mark.parametrize(
    ("output", "mode", "code"),
    [
        pytest.param("/dev/full", "compatible", 2, id="a full disk"),
        pytest.param("closed pipe", "compatible", 1, id="a reader that left"),
    ],
)
def test_an_output_that_takes_nothing(tmp_path: Path, output: str, mode: str, code: int) -> None:
    """No traceback; the counts are in their file all the same, and a reader that left hides no failure."""
    report = tmp_path / "report"
    files = folder(tmp_path, one=[FITS, BAD])
    command = [sys.executable, "-m", "controller.scheduler", "conformance", str(files), "--mode", mode]
    if output == "closed pipe":
        ours, theirs = os.pipe()
        os.close(ours)
    else:
        theirs = os.open(output, os.O_WRONLY)
    with os.fdopen(theirs, "w") as stream:
        ended = subprocess.run(
            [*command, "--json", str(report)], stdout=stream, stderr=subprocess.PIPE, check=False, text=True
        )
    assert (ended.returncode, "Traceback" in ended.stderr) == (code, False)
    assert json.loads(report.read_text())["files"]["one.json"]["passed"] == 1


def test_what_is_null_is_left_out() -> None:
    """So is whatever else a writer of JSON makes of numbers and empty things."""
    raw = {**FITS, "dra": None, "rounds": None}
    raw["nodes"] = [{**FITS["nodes"][0], "labels": None, "gpus": 2.0}]
    raw["expected"] = {"jobs": None, "nodes": {"n1": {"idle_gpus": 1.0, "releasing_gpus": 0}}}
    assert run_case(raw, COMPATIBLE).outcome == "passed"


def test_a_record_is_not_passed_by_what_its_outcome_alone_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The cluster's default for a kind is no part of a record; whether a class that is named exists may be read off."""
    pod = {"metadata": {"name": "p", "uid": "1", "namespace": "n"}, "spec": {"priorityClassName": "gold"}}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "r", "uid": "2"}}
    given = {"grouper": "DefaultGrouper", "owner": owner, "pod": {"apiVersion": "v1", "kind": "Pod", **pod}}
    plain = RUNNERS["fn-pod-grouper"](given, COMPATIBLE)
    assert plain["priority_class"] == "gold"
    outcomes = {
        "named": plain,
        "not-there": plain | {"priority_class": "train"},
        "default": plain | {"priority_class": "silver"},
        "wrong": plain | {"queue": "other"},
    }
    records = [{"id": name, "input": given, "output": output} for name, output in outcomes.items()]
    report = tmp_path / "report"
    files = folder(tmp_path, fn_pod_grouper=records)
    assert main(["conformance", str(files), "--json", str(report)]) == 1
    assert json.loads(report.read_text())["files"] == {
        "fn-pod-grouper.json": {"passed": 2, "failed": ["wrong"], "differs": ["default"]}
    }
    assert '{"queue": "default-queue"} instead of {"queue": "other"}' in capsys.readouterr().out


def test_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bad use is 2, and says what is wrong."""
    assert main(["conformance", str(tmp_path / "no")]) == 2
    assert "is no folder" in capsys.readouterr().err


@pytest.mark.skipif(not OUTSIDE_CASES, reason=f"NODEMEND_OUTSIDE_CASES names no folder with {FOLDER}")
@pytest.mark.parametrize("mode", ["compatible", "default"])
def test_the_suite(mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Every case that is there passes as KAI's, or differs for a stated reason."""
    code = main(["conformance", str(Path(OUTSIDE_CASES) / FOLDER), "--mode", mode])
    assert code == 0, capsys.readouterr().out


def test_the_statuses_of_the_suite_are_all_known() -> None:
    """Its words are the cycle's own."""
    words = "Pending Gated Allocated Pipelined Binding Bound Running Releasing StuckInReleasing Succeeded Failed Unknown"
    assert set(words.split()) == set(map(str, TaskStatus))
