"""Limits and quotas at every level when something is placed, and the words in which they refuse."""

import pytest

from controller.scheduler.amounts import CPU, GPU, MEMORY, UNLIMITED
from controller.scheduler.capacity import why_not, written
from controller.scheduler.model import Queue, Quota
from controller.scheduler.queues import add, add_model, build
from controller.scheduler.state import QueueState

FREE = Quota(deserved=UNLIMITED, limit=UNLIMITED)


def department(gpu: Quota, **models: Quota) -> QueueState:
    """Give the leaf of a department; the leaf itself is bound by 8 GPUs of quota and no limit."""
    leaf = Quota(deserved=8000, limit=UNLIMITED)
    states, _ = build(
        (
            Queue(
                name="lab",
                quotas=(gpu, FREE, Quota(deserved=0, limit=2_500_000_000)),
                models=tuple(models.items()),
            ),
            Queue(name="team", parent="lab", quotas=(leaf, FREE, FREE)),
        )
    )
    return states["team"]


@pytest.mark.parametrize(
    ("amounts", "preemptible", "wanted"),
    [
        pytest.param((1000, 0, 0), True, None, id="within the limit"),
        pytest.param(
            (1500, 0, 0),
            True,
            ("OverLimit", "queue lab has a GPU limit of 4, holds 3 and would need 1.5 more"),
            id="above the limit of a queue further up",
        ),
        pytest.param(
            (1000, 0, 0),
            False,
            (
                "NonPreemptibleOverQuota",
                "queue lab has a GPU quota for non-preemptible jobs of 2, holds 2 and would need 1 more",
            ),
            id="not preemptible and above the quota",
        ),
        pytest.param((0, 9_000_000, 0), False, None, id="no bound on CPU"),
        pytest.param(
            (0, 0, 3 << 30),
            True,
            ("OverLimit", "queue lab has a Memory limit of 2.5 GB, holds 0 GB and would need 3.221 GB more"),
            id="memory",
        ),
        pytest.param((0, 0, 0), False, None, id="who asks for nothing is bound by nothing"),
    ],
)
def test_what_a_queue_may_take(
    amounts: tuple[int, int, int], preemptible: bool, wanted: tuple[str, str] | None
) -> None:
    """3 GPUs are held, 2 of them by jobs that are not preemptible."""
    team = department(Quota(deserved=2000, limit=4000))
    add(team, (2000, 0, 0), 1, preemptible=False)
    add(team, (1000, 0, 0), 1, preemptible=True)
    assert why_not(team, amounts, preemptible) == wanted


def test_a_queue_over_its_limit_still_takes_what_it_has_no_more_of() -> None:
    """A lowered limit stops GPUs, and not pods without one."""
    team = department(Quota(deserved=0, limit=1000))
    add(team, (3000, 0, 0), 1, preemptible=True)
    assert why_not(team, (0, 500, 0), preemptible=True) is None
    assert why_not(team, (1, 0, 0), preemptible=True) is not None


@pytest.mark.parametrize(
    ("model", "preemptible", "refused"),
    [
        pytest.param("H200", True, None, id="within the model's limit"),
        pytest.param(
            "H200", False, "a GPU H200 quota for non-preemptible jobs of 1, holds 1", id="above its quota"
        ),
        pytest.param("B200", True, "a GPU B200 limit of 0.5, holds 0", id="above its limit"),
        pytest.param("A100", False, None, id="a model without a quota"),
        pytest.param("", False, None, id="no model known yet"),
    ],
)
def test_quotas_by_gpu_model(model: str, preemptible: bool, refused: str | None) -> None:
    """They hold besides the quota for all GPUs, at whatever level they are."""
    team = department(FREE, H200=Quota(deserved=1000, limit=3000), B200=Quota(deserved=500, limit=500))
    add_model(team, "H200", 1000, 1, preemptible=False)
    refusal = why_not(team, (1000, 0, 0), preemptible, model)
    assert (refusal is None) == (refused is None)
    assert refused is None or (refusal is not None and refused in refusal[1])


@pytest.mark.parametrize(
    ("amount", "resource", "text"),
    [
        pytest.param(8000, GPU, "8", id="whole GPUs"),
        pytest.param(250, GPU, "0.25", id="a quarter"),
        pytest.param(1001, CPU, "1.001", id="millicores"),
        pytest.param(80_000_000, MEMORY, "0.08 GB", id="memory in GB of 10**9"),
        pytest.param(1, MEMORY, "0 GB", id="a byte is nothing to speak of"),
    ],
)
def test_amounts_are_written_for_people(amount: int, resource: int, text: str) -> None:
    """In the units that a Queue is written in."""
    assert written(amount, resource) == text
