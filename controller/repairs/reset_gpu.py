"""Reset GPU: single GPUs are reset while the machine runs on, by a privileged Job on the node itself.

What it repairs: what the driver keeps against one GPU until it is reset, such as uncontained memory errors, a hung GSP, row
remaps that are pending. It is asked for only where the worst fault's action is RESET_GPU, and comes before the reboot.
When it runs: after the node was drained, with evidence, owner and identity of the node looked at once more, and with nobody
left at the GPUs: the agent lets go of the driver (`spec.release` of its NodeHealth), GPU Operator's clients are switched off
by their labels `nvidia.com/gpu.deploy.*` on the Node (device plugin, GFD, DCGM, its exporter, MIG manager and others), and
the Job takes persistence mode off the GPUs in question. All of it is put back afterwards, whatever comes of the reset; a
label that somebody else changed meanwhile is left alone.
What refuses it: an A100 or older on SXM boards (with NVSwitch such GPUs cannot be counted on to be reset alone), MIG, an
unknown model, a GPU without UUID, a fault that needs a reboot, a device plugin that no label stops, a client that stays for
five minutes. The attempt then says Refused with the reason, and the next rung follows.
How it is kept from doing harm: it names GPUs by UUID and touches no other, is told the boot id it is for, is never tried
again by Kubernetes, and names whoever still holds a GPU instead of ending them.
Proof: for each UUID nvidia-smi answers after the reset and asks for no other step, and then the agent, with the driver taken
up again, reports that UUID in the same boot with nothing new against it. Only then are the findings of these GPUs, and of no
other, counted as dealt with (`spec.cleared` of the NodeHealth).
If it does not help: the attempt fails, the clients are put back, and the next rung of the policy's ladder follows.
By hand: stop every client, `nvidia-smi -pm 0 -i UUID`, `nvidia-smi --gpu-reset -i UUID`, `nvidia-smi -pm 1 -i UUID`; then
`kubectl nodemend repaired NODE`.
"""

from typing import Any

from checks.finding import Action
from controller.repairs import (
    DRIVER_ROOT,
    HOST_TREES,
    TERMINATION_MESSAGE,
    JobSettings,
    Order,
    Repair,
    manifest,
)

HOST_PATHS = (*HOST_TREES, DRIVER_ROOT)
# What is left of the Job's time for putting persistence mode back and leaving the report.
_LAST_S = 30
_LEAST_S = 30


def job(order: Order, settings: JobSettings) -> dict[str, Any]:
    """Describe the Job. Raises ValueError without a boot id or a GPU: it could prove nothing, or would reset all of them."""
    if not order.boot_id:
        raise ValueError("the boot id that the reset belongs to is unknown")
    if not order.uuids or not all(order.uuids):
        raise ValueError("the UUID of a GPU that is to be reset is unknown")
    told = [word for uuid in order.uuids for word in ("--uuid", uuid)]
    command = (
        *order.command,
        *told,
        "--boot-id",
        order.boot_id,
        "--timeout-s",
        str(max(_LEAST_S, order.deadline_s - _LAST_S)),
        "--termination-message-path",
        TERMINATION_MESSAGE,
    )
    return manifest(
        order, settings, repair=REPAIR.name, command=command, host_paths=HOST_PATHS, agent_config=True
    )


REPAIR = Repair(
    name="reset-gpu",
    action=Action.RESET_GPU,
    command=("nodemend-agent", "reset-gpu", "--driver-root", DRIVER_ROOT.inside),
    job=job,
    runbook=__doc__,
)
