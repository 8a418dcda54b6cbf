"""Revalidate: the node proves itself before it is given back. It changes nothing.

What it does: a Job asks the scheduler for as many GPUs as the hardware has, so that it can only start when all of them are
offered and free, and then judges the machine as the agent does: every GPU answers NVML, no fault in this boot's kernel log.
On a node that MIG cuts into resources of their own (`mixed`) it asks for every device that kubelet offers, and says so.
When it runs: after a proven repair, after the fault went away by itself, or after a person said that they repaired it.
Result: JSON in the pod's termination message; exit 0 passed, 1 failed, 3 could not tell. Only 0 gives the node back.
If it fails or cannot start: the attempt fails at its deadline, and after the policy's attempts a person is paged; the node
stays out meanwhile.
By hand: `nodemend-agent validate --gpus N` on the node prints the same judgement.
"""

from typing import Any

from checks.finding import Action
from controller.repairs import (
    DRIVER_ROOT,
    HOST_TREES,
    TERMINATION_MESSAGE,
    HostPath,
    JobSettings,
    Order,
    Repair,
    manifest,
)

# As the agent's DaemonSet has them, but all read-only. The agent's state tells what was cleared in this boot.
HOST_PATHS = (
    HostPath(name="kmsg", outside="/dev/kmsg", inside="/dev/kmsg", type="CharDevice"),
    *HOST_TREES,
    DRIVER_ROOT,
    HostPath(name="state", outside="/var/lib/nodemend", inside="/var/lib/nodemend", type="DirectoryOrCreate"),
)


def job(order: Order, settings: JobSettings) -> dict[str, Any]:
    """Describe the Job. Raises ValueError without a number of GPUs: asking for none would prove nothing."""
    if order.gpus < 1 or not order.gpu_resource:
        raise ValueError("the number of GPUs that the hardware has is unknown")
    count = str(order.gpus)
    asked = {name: str(number) for name, number in order.devices.items()} or {order.gpu_resource: count}
    return manifest(
        order,
        settings,
        repair=REPAIR.name,
        command=(*order.command, "--gpus", count, "--termination-message-path", TERMINATION_MESSAGE),
        resources={"limits": asked, "requests": asked},
        host_paths=HOST_PATHS,
        agent_config=True,
    )


REPAIR = Repair(
    name="revalidate",
    action=Action.NONE,
    command=("nodemend-agent", "validate"),
    job=job,
    runbook=__doc__,
)
