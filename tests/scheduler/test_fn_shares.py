"""Single decisions as records of conformance suites tell them: our own few, and those of an outside folder."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from controller.scheduler.conformance import run_case
from controller.scheduler.fn_shares import RUNNERS
from controller.scheduler.rules import COMPATIBLE, DEFAULT

OUTSIDE_CASES = os.environ.get("NODEMEND_OUTSIDE_CASES", "")
FOLDER = "kai-cases"


def test_a_division_is_read_in_gpus_and_told_in_gpus() -> None:
    """Parts of a GPU stay what they are, and no bound stays no bound."""
    ask = {"limit": -1, "over_quota_weight": 1, "priority": 0, "usage": 0, "fair_share_before": 0}
    queues = {
        "x": {**ask, "uid": "x", "deserved": 1.5, "request": 1.25, "creation_rank": 0},
        "y": {**ask, "uid": "y", "deserved": 0, "request": 2, "creation_rank": 1},
    }
    record = {"resource": "GPU", "total": 4, "k_value": 0, "queues": queues}
    wanted = {"fair_share": {"x": 1.25, "y": 2}, "remaining": 0.75}
    assert RUNNERS["fn-fair-share"](record, COMPATIBLE) == wanted
    assert RUNNERS["fn-fair-share"](record, DEFAULT) == wanted


@pytest.mark.skipif(not OUTSIDE_CASES, reason=f"NODEMEND_OUTSIDE_CASES names no folder with {FOLDER}")
@pytest.mark.parametrize("name", sorted(RUNNERS))
def test_every_record_is_decided_as_kai_does(name: str) -> None:
    """In compatible mode, all of them."""
    records: list[dict[str, Any]] = json.loads(
        (Path(OUTSIDE_CASES) / FOLDER / f"{name}.json").read_text("utf-8")
    )
    verdicts = {record["id"]: run_case(record, COMPATIBLE, RUNNERS[name]) for record in records}
    assert {case: verdict.why for case, verdict in verdicts.items() if verdict.outcome != "passed"} == {}
