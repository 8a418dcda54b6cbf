"""Reboot: the node's kernel is started again, by a privileged Job on the node itself.

What it repairs: everything that lives in the driver or the GPU's firmware and not in the hardware, such as a GPU that fell
off the bus, a hung GSP, a pending row remap.
When it runs: after the node was drained, with the evidence, the owner and the identity of the node looked at once more.
How it is kept from doing harm: the Job is told the boot id it must end and does nothing where the machine already has
another one, it is never tried again by Kubernetes, and it ends with the attempt's deadline.
Proof: a new, non-empty boot id on the Node and in the agent's report, and the node Ready. A Job's success proves nothing.
If it does not help: the attempt fails at its deadline; the next rung of the policy's ladder follows, or a person is paged.
By hand: `systemctl reboot` on the node does the same; nodemend sees the new boot id and goes on from there.
"""

from typing import Any

from checks.finding import Action
from controller.repairs import JobSettings, Order, Repair, manifest


def job(order: Order, settings: JobSettings) -> dict[str, Any]:
    """Describe the Job. Raises ValueError without a boot id: a reboot that cannot tell what it ends could end two."""
    if not order.boot_id:
        raise ValueError("the boot id that the reboot must end is unknown")
    return manifest(order, settings, repair=REPAIR.name, command=(*order.command, "--boot-id", order.boot_id))


REPAIR = Repair(
    name="reboot",
    action=Action.REBOOT,
    command=("nodemend-agent", "reboot"),
    job=job,
    runbook=__doc__,
)
