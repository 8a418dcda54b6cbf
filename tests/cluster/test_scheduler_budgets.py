"""PodDisruptionBudgets on a real control plane: what allows one eviction is not taken to allow each of two."""

from kube import paths
from tests.cluster.scheduler_stage import SchedulerStage

ONE_OF_TWO = "PodDisruptionBudget web allows 1 eviction now, and 2 of its pods would have to leave together"


def budget_for_one(stage: SchedulerStage) -> str:
    """Let one of the pods with label `app: web` go; returns its path once the server counts two healthy ones."""
    collection = paths.collection("policy", "v1", "poddisruptionbudgets", stage.namespace)
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    stage.admin.create(collection, {"metadata": {"name": "web"}, "spec": spec})
    path = paths.member(collection, "web")
    stage.until(
        lambda: stage.read(path).get("status", {}).get("disruptionsAllowed") == 1,
        "one eviction to be allowed",
    )
    return path


def lent(stage: SchedulerStage, web: int, dear: int = 0) -> str:
    """Let two pods of so many GPUs run on what others lent them, and a dearer one; gives the queue that lent it."""
    stage.add_nodes(1)
    lender, borrower = stage.queue("lender", quota=2 * web), stage.queue("borrower", quota=0)
    stage.start()
    for number in range(2):
        stage.create_pod(f"web-{number}", borrower, web, labels={"app": "web"})
    if dear:
        stage.create_pod("dear", borrower, dear)
    stage.until(lambda: len(stage.running("")) == (3 if dear else 2), "the borrowers to run")
    return lender


def test_of_two_victims_under_a_budget_for_one_nobody_leaves_and_another_does(stage: SchedulerStage) -> None:
    """Each of the two may be evicted by itself: the first would leave, and the second would be refused."""
    lender = lent(stage, web=1, dear=6)
    budget_for_one(stage)
    stage.create_pod("owner", lender, 2)
    stage.until(lambda: bool(stage.running("owner")), "the owner to have its quota back")
    assert sorted(stage.running("")) == ["owner", "web-0", "web-1"]
    assert stage.disrupted == {"dear": "EvictionByEvictionAPI"}
    assert [one["name"] for one in stage.audit("create", "pods", "eviction")] == ["dear"]
    assert stage.audit("delete") == []
    stage.until(lambda: bool(stage.notes("EvictionRefused")), "the refusal to be told")
    ((pod, note),) = stage.notes("EvictionRefused").items()
    assert pod in ("Pod/web-0", "Pod/web-1")
    assert ONE_OF_TWO in note
    stage.check_books()


def test_whoever_waits_for_victims_that_a_budget_holds_names_it(stage: SchedulerStage) -> None:
    """There is no other set: nobody leaves, and once the budget is gone both do."""
    lender = lent(stage, web=4)
    budget = budget_for_one(stage)
    stage.create_pod("owner", lender, 8)
    stage.until(lambda: ONE_OF_TWO in stage.why("owner"), "the owner to say why it waits")
    assert "may not be evicted for it" in stage.why("owner")
    assert stage.disrupted == {}
    assert stage.audit("create", "pods", "eviction") == []

    stage.admin.delete(budget)
    stage.until(lambda: bool(stage.running("owner")), "both to leave once nothing holds them")
    assert stage.disrupted == dict.fromkeys(("web-0", "web-1"), "EvictionByEvictionAPI")
    stage.check_books()
