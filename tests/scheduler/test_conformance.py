"""Cases of the conformance suite: what they describe, how they are run and judged, what garbage gets to hear."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from controller.scheduler.__main__ import main
from controller.scheduler.casecards import first_standings
from controller.scheduler.casefile import read, snapshot_of
from controller.scheduler.conformance import run_case
from controller.scheduler.fn_grouper import RUNNERS
from controller.scheduler.model import TaskStatus
from controller.scheduler.rules import COMPATIBLE, DEFAULT
from tests.scheduler.case_words import Json, case, expect, job, queue, task

OUTSIDE_CASES = os.environ.get("NODEMEND_OUTSIDE_CASES", "")
FOLDER = "kai-cases"

WAITS, RUNS = task(), task(node="n1")


def cards(*tasks: Json, gpus: int = 4) -> list[tuple[str, ...]]:
    """Give the cards that these pods of one job hold at first."""
    stand = first_standings(read(case(job("j", *tasks), expected={}, gpus=gpus)))
    return [stand[f"j-{index}"].gpus for index in range(len(tasks))]


def test_equal_groups_are_one_card() -> None:
    """Labels of a node, not indexes: equal ones share a card, and nobody else sits on it."""
    first, second, third = cards(task(0.5, "n1", "x"), task(0.5, "n1", "x"), task(0.5, "n1", "y"))
    assert first == second
    assert first != third


def test_a_part_without_a_group_has_a_card_of_its_own() -> None:
    """The suite's rule for running pods."""
    first, second, whole = cards(task(0.5, "n1"), task(0.5, "n1"), task(2, "n1"))
    assert len({*first, *second, *whole}) == 4


def test_who_waits_holds_nothing() -> None:
    """Not even where a group is written beside it."""
    assert cards(task(0.5, "", "x")) == [()]


def test_ages_and_quotas() -> None:
    """Ages run back from now; GPUs become milli-GPU, memory of a queue 10^6 bytes."""
    raw = case(job("j", RUNS, age_minutes=3, stale_for_seconds=5), expected={})
    raw["queues"][0]["memory"] = {"deserved": 2, "limit": -1, "over_quota_weight": 1}
    snapshot = snapshot_of(read(raw))
    (made,) = snapshot.jobs
    assert made.started_at is not None
    assert made.stale_since is not None
    assert [
        (snapshot.now - at).total_seconds() for at in (made.created_at, made.started_at, made.stale_since)
    ] == [
        180,
        60,
        5,
    ]
    research = next(one for one in snapshot.queues if one.name == "research")
    assert [quota.deserved for quota in research.quotas] == [4000, -1, 2_000_000]
    assert snapshot.settings.predicates


def test_a_case_without_bounds_on_calls_has_no_predicates() -> None:
    """The suite ran it so."""
    raw = case(expected={})
    del raw["max_calls"]
    assert not snapshot_of(read(raw)).settings.predicates


def test_levels_go_by_the_label_behind_their_alias() -> None:
    """A constraint may name either."""
    tree = {
        "pod_sets": [{"name": "default", "min_available": 1}],
        "topology": {"topology": "net", "required": "rack"},
    }
    topologies = [{"name": "net", "levels": [{"node_label": "example.com/rack", "alias": "rack"}]}]
    (made,) = snapshot_of(
        read(case(job("j", WAITS, sub_groups=tree), expected={}, topologies=topologies))
    ).jobs
    assert made.root.topology is not None
    assert made.root.topology.required == "example.com/rack"
    assert made.tasks[0].pod_set == "default"


FITS = case(job("a", WAITS), expected={"jobs": {"a": expect("Binding", node="n1")}})
FULL = job("a", task(2, "n1"))


@pytest.mark.parametrize(
    ("raw", "outcome", "words"),
    [
        pytest.param(FITS, "passed", "", id="what is expected comes"),
        pytest.param(
            case(job("a", WAITS), expected={"jobs": {"a": expect("Pending")}}),
            "failed",
            "a-0 is Binding on n1 instead of Pending",
            id="another status",
        ),
        pytest.param(
            case(job("a", WAITS), expected={"jobs": {"a": expect("Binding", node="n2")}}),
            "failed",
            "a-0 is Binding on n1 instead of on n2",
            id="another node",
        ),
        pytest.param(
            case(job("a", WAITS), expected={"jobs": {"a": expect("Binding", gpus=2)}}),
            "failed",
            "a asks for 1 GPUs instead of 2",
            id="a case that contradicts itself",
        ),
        pytest.param(
            case(job("a", WAITS, WAITS), expected={"tasks": {"a-1": expect("Pending")}}),
            "failed",
            "a-1 is Binding",
            id="one pod of a job",
        ),
        pytest.param(
            case(job("a", WAITS), expected={"jobs": {"b": expect("Pending")}}),
            "failed",
            "job b is expected and not there",
            id="a job that is not there",
        ),
        pytest.param(
            case(job("a", WAITS), expected={}, max_calls={"binds": 0, "evictions": 0, "pipelines": 0}),
            "failed",
            "1 binds instead of at most 0",
            id="more calls than allowed",
        ),
        pytest.param(
            case(
                job("a", task(2, "n1"), started_seconds_ago=None),
                expected={"jobs": {"a": expect("Running", gpus=2)}},
            ),
            "failed",
            "a has no start time",
            id="a job that runs and never started",
        ),
        pytest.param(
            case(FULL, job("b", WAITS), expected={"jobs": {"b": expect("Pending", has_fit_error=True)}}),
            "passed",
            "",
            id="a job that waits has a reason",
        ),
        pytest.param(
            case(FULL, expected={"nodes": {"n1": {"idle_gpus": 1, "releasing_gpus": 0}}}),
            "failed",
            "node n1 has 0 idle and 0 releasing GPUs instead of 1 and 0",
            id="what is left of a node",
        ),
        pytest.param(
            case(
                job("a", task(0.5, "n1", "x")),
                job("b", task(0.5)),
                expected={"jobs": {"a": expect("Running", 0.5), "b": expect("Binding", 0.5)}},
                observed={
                    "a": {"a-0": {"status": "Running", "node": "n1", "gpu_groups": ["x"]}},
                    "b": {"b-0": {"status": "Binding", "node": "n1", "gpu_groups": ["new"]}},
                },
            ),
            "failed",
            "a-0 and b-0 share 1 GPUs instead of 0",
            id="who shares a card",
        ),
        pytest.param(
            {**FITS, "nodes": [{**FITS["nodes"][0], "numa": {"policy": "strict"}}]},
            "failed",
            "Invalid enum value 'strict' - at `$.nodes[0].numa.policy`",
            id="no such NUMA policy",
        ),
        pytest.param(
            {**FITS, "actions": ["dance"]},
            "failed",
            "'dance' is none of allocate",
            id="an action nobody knows",
        ),
        pytest.param(
            {**FITS, "jobs": [{"name": "a"}]},
            "failed",
            "missing required field `queue` - at `$.jobs[0]`",
            id="a field is missing",
        ),
        pytest.param(
            {**FITS, "jobs": [job("a", {**WAITS, "state": "Dancing"})]},
            "failed",
            "state is 'Dancing'",
            id="no such status",
        ),
    ],
)
def test_judgement(raw: Json, outcome: str, words: str) -> None:
    """The suite's own rules of judgement, with words that say what is wrong."""
    verdict = run_case(raw, COMPATIBLE)
    assert verdict.outcome == outcome
    assert words in verdict.why


def rounds(until: int, after: int = 1) -> Json:
    """Give the fields of a case that runs for rounds."""
    actions = ["allocate", "consolidation", "reclaim", "preempt", "stalegangeviction"]
    counted = {"until_match": until, "after_match": after, "delay_seconds": 0}
    return {"kind": "cycle", "actions": actions, "rounds": counted}


HIGH = job("b", task(2), priority=100)


def test_rounds() -> None:
    """What was evicted is pending and what waited for it runs, one round later each."""
    expected = {"jobs": {"a": expect("Pending", 2), "b": expect("Running", 2, node="n1")}}
    assert run_case(case(FULL, HIGH, expected=expected, **rounds(2)), COMPATIBLE).outcome == "passed"
    early = run_case(case(FULL, HIGH, expected=expected, **rounds(1)), COMPATIBLE)
    assert early.why.startswith("after round 1: b-0 is Pending")


def test_what_stays_releasing_keeps_its_place() -> None:
    """A pod that takes its time to end gives nothing away meanwhile."""
    stays = job("a", task(2, "n1"), stays_releasing_between_rounds=True)
    expected = {"jobs": {"a": expect("Releasing", 2, node="n1"), "b": expect("Pending", 2)}}
    assert run_case(case(stays, HIGH, expected=expected, **rounds(3, 2)), COMPATIBLE).outcome == "passed"


def test_a_difference_names_its_rule() -> None:
    """Of two victims KAI takes the newest, whatever it costs; ours is explained by the one rule that makes it."""
    big = job("big", task(8, "n1"), age_minutes=1)
    small = job("small", task(1, "n1"), age_minutes=2, started_seconds_ago=30)
    high = job("high", task(1), priority=100)
    expected = {
        "jobs": {"high": expect("Pipelined"), "big": expect("Releasing", 8), "small": expect("Running")}
    }
    raw = case(big, small, high, expected=expected, gpus=9, actions=["preempt"], queues=[queue(gpus=9)])
    assert run_case(raw, COMPATIBLE).outcome == "passed"
    ours = run_case(raw, DEFAULT)
    assert (ours.outcome, ours.why.partition(":")[0]) == ("differs", "victims_by_cost")


def test_a_difference_that_no_rule_explains_is_a_failure() -> None:
    """It comes out so in both modes."""
    assert (
        run_case(case(job("a", WAITS), expected={"jobs": {"a": expect("Pending")}}), DEFAULT).outcome
        == "failed"
    )


# --- the program -----------------------------------------------------------------------------------------------------


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
