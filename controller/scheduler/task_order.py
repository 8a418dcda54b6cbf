"""The order of pods in their group: who starts first, and so who is evicted last. Pure.

Leaders first (kubeflow's master and launcher, ray's head), then by kai.scheduler/task-priority, then by age, which `index`
stands for. Source: KAI Scheduler's plugins kubeflow, ray and taskorder, in the order in which they are asked.
"""

from controller.scheduler.state import TaskState


def key(task: TaskState) -> tuple[bool, int, int, str]:
    """Make the sort key of a task among its siblings."""
    spec = task.spec
    return (not spec.leader, -spec.order, spec.index, task.id)
