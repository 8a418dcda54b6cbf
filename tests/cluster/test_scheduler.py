"""The scheduler on a real control plane: queues lend and take back, gangs start whole, and nobody is treated as if alone."""

from typing import Any

from tests.cluster.scheduler_stage import SchedulerStage


def test_a_department_lends_its_idle_quota_and_takes_it_back(stage: SchedulerStage) -> None:
    """Surplus goes by eviction, who gains and why this victim is said; what is free again is lent again."""
    stage.add_nodes(2)
    teams = {}
    for name in ("a", "b"):
        department = stage.queue(f"department-{name}", quota=8)
        teams[name] = stage.queue(f"team-{name}", quota=8, parent=department)
    stage.start()
    stage.create_deployment("lent", teams["a"], pods=8, gpus=2)
    stage.until(lambda: len(stage.running("lent")) == 8, "team A to use everything")
    stage.until(lambda: stage.gpus_of(teams["a"]) == (16, 16), "its status to say so")
    stage.until(
        lambda: bool(stage.queue_condition(teams["a"], "OverQuota")), "its status to name the surplus"
    )

    stage.create_job("own", teams["b"], pods=4, gpus=2)
    stage.until(lambda: len(stage.running("own")) == 4, "team B to have its quota back")
    stage.until(lambda: len(stage.running("lent")) == len(stage.waiting("lent")) == 4, "the evicted to wait")
    stage.check_books()
    assert set(stage.disrupted.values()) == {"EvictionByEvictionAPI"}
    assert len(stage.disrupted) == 4
    stage.until(lambda: len(stage.notes("Reclaimed")) == 4, "the evictions to be told")
    told = stage.notes("Reclaimed")
    assert {f"Pod/{name}" for name in stage.disrupted} == set(told)
    for note in told.values():
        assert f"of queue {teams['b']}" in note
        assert f"queue {teams['a']} holds" in note
        assert "with a quota of 8" in note
    assert len(stage.audit("create", "pods", "eviction")) == 4
    assert stage.audit("delete") == []
    stage.until(lambda: stage.gpus_of(teams["a"]) == (8, 16), "what team A has and asks for")
    stage.until(lambda: stage.gpus_of(teams["b"]) == (8, 8), "what team B has and asks for")

    stage.sandbox.kubectl("delete", "job", "own", "-n", stage.namespace, "--wait=false")
    stage.until(lambda: len(stage.running("lent")) == 8, "team A to borrow again")
    assert len(stage.disrupted) == 4
    stage.check_books()


def test_a_gang_of_64_gpus_waits_whole_and_starts_whole(stage: SchedulerStage) -> None:
    """Not one member is bound while one node is missing, and everybody who looks is told why."""
    stage.add_nodes(7)
    queue = stage.queue("research", quota=64)
    stage.start()
    stage.create_job("gang", queue, pods=8, gpus=8, least=8)
    stage.until(lambda: len(stage.waiting("gang")) == 8, "8 members")
    stage.until(lambda: all(stage.why(name) for name in stage.waiting("gang")), "all of them to say why")
    (group,) = stage.groups()
    name = group["metadata"]["name"]
    stage.until(
        lambda: bool(stage.groups()[0].get("status", {}).get("schedulingConditions")), "the group to say why"
    )
    (condition,) = stage.groups()[0]["status"]["schedulingConditions"]
    assert (condition["type"], condition["nodePool"]) == ("UnschedulableOnNodePool", stage.pool)
    for words in (condition["message"], *(stage.why(pod) for pod in stage.waiting("gang"))):
        assert "7 pods found a node where the group needs 8 together" in words
    stage.until(lambda: f"PodGroup/{name}" in stage.notes("FailedScheduling"), "an Event about the group")
    assert stage.bound_to == {}

    stage.add_nodes(1)
    stage.until(lambda: len(stage.running("gang")) == 8, "the gang to start")
    assert sorted(stage.running("gang").values()) == sorted(stage.nodes)
    assert max(stage.bound_at.values()) - min(stage.bound_at.values()) < 2.0
    stage.until(
        lambda: not stage.groups()[0]["status"].get("schedulingConditions"), "the group to have started"
    )
    stage.check_books()


def test_pods_of_kube_scheduler_on_the_same_nodes_are_counted_and_left_alone(stage: SchedulerStage) -> None:
    """GPUs and CPU alike; what they leave is used, what they give back is taken, and none of them is evicted for ours."""
    nodes = stage.add_nodes(2)
    queue = stage.queue("ours", quota=16)
    theirs: dict[str, Any] = {
        "schedulerName": "default-scheduler",
        "nodeSelector": {"kai.scheduler/node-pool": stage.pool},
    }
    stage.start()
    for number in range(6):
        stage.create_pod(f"theirs-{number}", queue, **theirs)
    cpu = [{"name": "main", "image": "example.invalid/work:1", "resources": {"requests": {"cpu": "150"}}}]
    for number, node in enumerate(nodes):
        selector = {"kubernetes.io/hostname": node}
        stage.create_pod(f"cpu-{number}", queue, **{**theirs, "nodeSelector": selector, "containers": cpu})
    stage.until(lambda: len(stage.running("theirs")) == 6 and len(stage.running("cpu")) == 2, "theirs to run")

    for number in range(12):
        stage.create_pod(f"ours-{number:02}", queue)
    stage.until(lambda: len(stage.running("ours")) == 10, "ours to fill the rest")
    stage.until(lambda: all(stage.why(name) for name in stage.waiting("ours")), "the others to say why")
    assert len(stage.running("ours")) == 10
    assert all("Insufficient nvidia.com/gpu" in stage.why(name) for name in stage.waiting("ours"))
    stage.create_pod("much-cpu", queue, containers=cpu)
    stage.until(lambda: "Insufficient cpu" in stage.why("much-cpu"), "a pod of 150 CPUs to find too few")
    stage.check_books()
    assert stage.audit("create", "pods", "eviction") == []

    for number in (0, 1):
        stage.sandbox.kubectl("delete", "pod", f"theirs-{number}", "-n", stage.namespace, "--wait=false")
    stage.until(lambda: len(stage.running("ours")) == 12, "ours to take what theirs gave back")
    stage.create_pod("theirs-late", queue, **theirs)
    stage.until(
        lambda: "Insufficient nvidia.com/gpu" in stage.why("theirs-late"), "theirs to find our books full"
    )
    assert len(stage.running("theirs")) == 4
    assert stage.disrupted == {}
    assert not any(one.get("name", "").startswith(("theirs", "cpu")) for one in stage.audit("create"))
    stage.check_books()


def test_a_victim_that_a_budget_protects_is_passed_over_for_the_next(stage: SchedulerStage) -> None:
    """The refusal is told with the server's reason; nothing is deleted instead."""
    stage.add_nodes(1)
    lender, borrower = stage.queue("lender", quota=3), stage.queue("borrower", quota=0)
    stage.start()
    stage.forbid_eviction("cheap")
    stage.create_pod("cheap", borrower, 3, labels={"budget": "cheap"})  # fewer GPUs, so the first choice
    stage.create_pod("dear", borrower, 5)
    stage.until(lambda: len(stage.running("")) == 2, "both to run")

    stage.create_pod("owner", lender, 3)
    stage.until(lambda: bool(stage.running("owner")), "the owner to have its quota back")
    assert sorted(stage.running("")) == ["cheap", "owner"]
    assert stage.disrupted == {"dear": "EvictionByEvictionAPI"}
    stage.until(lambda: "Pod/cheap" in stage.notes("EvictionRefused"), "the refusal to be told")
    assert "PodDisruptionBudget cheap allows no eviction" in stage.notes("EvictionRefused")["Pod/cheap"]
    stage.until(lambda: "Pod/dear" in stage.notes("Reclaimed"), "the eviction to be told")
    assert f"of queue {lender}" in stage.notes("Reclaimed")["Pod/dear"]
    assert [one["name"] for one in stage.audit("create", "pods", "eviction")] == ["dear"]
    assert stage.audit("delete") == []
    stage.check_books()
