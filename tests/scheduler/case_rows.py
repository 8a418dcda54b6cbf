"""Cases of a suite made small, and folders of them."""

from tests.scheduler.case_words import Json, case, expect, job, task

WAITS, RUNS = task(), task(node="n1")


FITS = case(job("a", WAITS), expected={"jobs": {"a": expect("Binding", node="n1")}})


def rounds(until: int, after: int = 1) -> Json:
    """Give the fields of a case that runs for rounds."""
    actions = ["allocate", "consolidation", "reclaim", "preempt", "stalegangeviction"]
    counted = {"until_match": until, "after_match": after, "delay_seconds": 0}
    return {"kind": "cycle", "actions": actions, "rounds": counted}
