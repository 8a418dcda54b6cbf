"""The public suite's records about pod groups and GPU requests, where a folder with them is named."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from controller.scheduler.conformance import run_folder
from controller.scheduler.fn_grouper import RECORDED, RUNNERS
from controller.scheduler.rules import COMPATIBLE, DEFAULT

OUTSIDE_CASES = os.environ.get("NODEMEND_OUTSIDE_CASES", "")
FOLDER = Path(OUTSIDE_CASES) / "kai-cases"

pytestmark = pytest.mark.skipif(
    not OUTSIDE_CASES or not FOLDER.is_dir(), reason="NODEMEND_OUTSIDE_CASES names no folder with kai-cases"
)


def records(stem: str) -> list[dict[str, Any]]:
    found = json.loads((FOLDER / f"{stem}.json").read_bytes())
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("rules", [COMPATIBLE, DEFAULT], ids=["compatible", "default"])
@pytest.mark.parametrize("stem", RUNNERS)
def test_every_record_comes_out_as_recorded(stem: str, rules: Any) -> None:
    """In both modes: no rule of ours touches grouping."""
    verdicts = run_folder(FOLDER, rules, f"{stem}.json")[f"{stem}.json"]
    assert verdicts.passed
    assert not verdicts.failed, verdicts.lines


def test_the_outcome_gives_away_nothing_but_the_cluster() -> None:
    """Without it nine records in ten come out the same, so little of their clusters is left out of them."""
    wanted = records("fn-pod-grouper")
    same = sum(
        RUNNERS["fn-pod-grouper"](record["input"], COMPATIBLE) == record["output"] for record in wanted
    )
    assert same * 10 >= 9 * len(wanted)


def test_a_wrong_outcome_is_not_believed() -> None:
    """What the outcome says of members, names, queues and subgroups is judged, not taken over."""
    run = RECORDED["fn-pod-grouper"]
    for record in records("fn-pod-grouper"):
        output = record["output"]
        if output.get("error") is not False:
            continue
        for field, wrong in (
            ("min_available", 99),
            ("queue", "no-such"),
            ("namespace", "no-such"),
            ("labels", {"a": "b"}),
        ):
            forged = output | {field: wrong}
            assert run(record["input"], COMPATIBLE, forged) != forged, (record["id"], field)
