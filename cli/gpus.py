"""`kubectl nodemend gpus [NODE]`: one row a GPU, as the scheduler sees it. Pure.

A GPU is usable where a new pod may be given it: healthy, offered by kubelet, on a node that takes pods with GPUs. Who holds
which card is kubelet's word (NodeHealth); where nobody knows, the pod is counted on a free card and marked so.
"""

import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime

import msgspec

from cli.intent import unknown_node
from cli.scheduling_view import View
from controller.scheduler.amounts import WHOLE_GPU
from controller.scheduler.gpu_holdings import GPU_GROUP, RESERVED_UUID, groups_of, is_reservation
from controller.scheduler.nodes import Device, Gpu, Node, PartHealth
from controller.scheduler.pod_tasks import name_of
from controller.scheduler.rules import Rules
from controller.scheduler.state import DeviceState, NodeState, TaskState

FENCED = "fenced"
OFFERED = "offered"
GRANT = "nodemend.dev/gpu-grant"
_UUID = re.compile(r"[A-Za-z0-9-]+")


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """A pod on a card. `card_known` False: it is on the node, and this card stands for the one that it has."""

    pod: str
    milli: int
    card_known: bool


class GpuRow(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU. `free_milli`: what new pods may be given of it now; `effects`: what its node does not take, by name."""

    node: str
    index: int | None
    uuid: str
    model: str = ""
    memory_mib: int = 0
    health: str
    reason: str = ""
    reported: bool = True
    offered: bool = True
    held_by: tuple[Holder, ...] = ()
    free_milli: int = 0
    usable: bool = False
    avoid: str = ""
    effects: tuple[str, ...] = ()


class NodeEffect(msgspec.Struct, frozen=True, kw_only=True):
    """What a node does not take, and why."""

    node: str
    effect: str
    why: str


class GpusReport(msgspec.Struct, frozen=True, kw_only=True):
    """All that `gpus` shows; its fields are the keys of `-o json`. Totals are of the nodes asked about, before `--sick`."""

    at: datetime
    gpus: tuple[GpuRow, ...]
    effects: tuple[NodeEffect, ...]
    mig: tuple[str, ...] = ()
    total: int = 0
    usable: int = 0
    sick: int = 0
    unknown: int = 0
    free: int = 0
    free_milli: int = 0
    incomplete: tuple[str, ...] = ()


def report_gpus(
    view: View, rules: Rules, node: str, sick_only: bool, incomplete: tuple[str, ...], now: datetime
) -> GpusReport:
    """Lay out the GPUs of one node, or of all. Raises Failure where there is no node of that name."""
    nodes = view.session(rules).ledger.nodes
    if node and all(one.name != node for one in nodes):
        raise unknown_node(node, [one.name for one in nodes])
    shown = [one for one in nodes if node in ("", one.name)]
    reported = {one.metadata.name for one in view.reading.objects.health}
    known = known_cards(view)
    rows = [row for state in shown for row in _rows(state, state.name in reported, known)]
    claimed = {claim: one.reserved_for for one in view.snapshot.claims for claim in one.devices}
    bare = {state.name: state.spec for state in shown if not state.devices}
    rows += [
        _claimed_row(device, bare[device.node], claimed.get(device.id, ()))
        for device in view.snapshot.devices
        if device.node in bare and "gpu" in device.device_class.lower()
    ]
    free = [row for row in rows if row.free_milli == WHOLE_GPU]
    return GpusReport(
        at=now,
        gpus=tuple(row for row in rows if not sick_only or _is_ill(row)),
        effects=tuple(
            NodeEffect(node=state.name, effect=effect, why=why)
            for state in shown
            if state.devices or state.spec.mig or state.name in {row.node for row in rows}
            for effect, why in _effects(state.spec)
        ),
        mig=tuple(_mig(shown)),
        total=len(rows),
        usable=sum(row.usable for row in rows),
        sick=sum(row.health == PartHealth.SICK for row in rows),
        unknown=sum(row.health == PartHealth.UNKNOWN for row in rows),
        free=len(free),
        free_milli=sum(row.free_milli for row in rows),
        incomplete=incomplete,
    )


def _is_ill(row: GpuRow) -> bool:
    return row.health != PartHealth.HEALTHY or not row.offered or bool(row.avoid)


def _rows(state: NodeState, reported: bool, known: AbstractSet[tuple[str, str]]) -> Iterator[GpuRow]:
    effects = tuple(effect for effect, _why in _effects(state.spec))
    takes = takes_new_gpu_pods(state.spec)
    for device in state.devices:
        gpu = device.spec
        usable = device.open and takes
        yield GpuRow(
            node=state.name,
            index=gpu.index,
            uuid=gpu.uuid,
            model=gpu.model,
            memory_mib=gpu.memory_mib,
            health=gpu.health.value,
            reason=gpu.why,
            reported=reported,
            offered=gpu.offered,
            held_by=tuple(
                _holder(task, device, known) for task in state.tasks.values() if device in task.devices
            ),
            free_milli=max(WHOLE_GPU - device.used_milli, 0) if usable else 0,
            usable=usable,
            avoid=gpu.avoid,
            effects=effects,
        )


def takes_new_gpu_pods(node: Node) -> bool:
    """Whether a new pod with one GPU may come at all."""
    return not (node.closed or node.out or node.no_new_gpu)


def _holder(task: TaskState, device: DeviceState, known: AbstractSet[tuple[str, str]]) -> Holder:
    return Holder(pod=task.id, milli=task.milli or WHOLE_GPU, card_known=(task.id, device.uuid) in known)


def known_cards(view: View) -> frozenset[tuple[str, str]]:
    """Give the pods and the UUIDs of their cards of which somebody has said so.

    That is kubelet, by the agent's report; the pod that reserves a shared card; the grant that came with a bind.
    """
    objects = view.reading.objects
    told = {
        (pod, part.uuid)
        for health in objects.health
        for part in health.status.parts
        for pod in part.held_by.replace(",", " ").split()
    }
    of_group = {
        pod.metadata.labels[GPU_GROUP]: pod.metadata.annotations.get(RESERVED_UUID, "")
        for pod in objects.pods
        if is_reservation(pod)
    }
    for pod in objects.pods:
        told |= {(name_of(pod), of_group.get(group, "")) for group in groups_of(pod)}
        if grant := pod.metadata.annotations.get(GRANT):
            told |= {(name_of(pod), uuid) for uuid in _UUID.findall(grant)}
    return frozenset(told)


def _claimed_row(device: Device, node: Node, holders: Sequence[str]) -> GpuRow:
    """Give the row of a GPU that only claims are given, not kubelet."""
    usable = not device.closed and takes_new_gpu_pods(node)
    return GpuRow(
        node=device.node,
        index=None,
        uuid=device.gpu or device.id,
        health=(PartHealth.UNKNOWN if device.closed else PartHealth.HEALTHY).value,
        reason=device.closed,
        held_by=tuple(Holder(pod=pod, milli=WHOLE_GPU, card_known=True) for pod in holders),
        free_milli=WHOLE_GPU if usable and not holders else 0,
        usable=usable,
        effects=tuple(effect for effect, _why in _effects(node)),
    )


def _effects(node: Node) -> Iterator[tuple[str, str]]:
    """Say what the node does not take, in the names that conditions' effects have."""
    if node.closed or node.out:
        yield ("node-out" if node.out else "closed", node.closed or "cordoned")
    for name, why in (
        ("few-pods-at-a-time", node.probe),
        ("no-new-gpu", node.no_new_gpu),
        ("no-multi-gpu", node.no_multi_gpu),
        ("no-multi-node", node.no_multi_node),
        ("prefer-not", node.avoid),
        ("no-new-mig", node.no_new_mig if node.mig else ""),
    ):
        if why:
            yield name, why
    if node.whole_gpus is not None:
        yield "fewer-offered", f"kubelet gives {node.whole_gpus} of {len(node.gpus)} GPUs"


def _mig(nodes: Sequence[NodeState]) -> Iterator[str]:
    """Count the MIG instances, which are resources of their own."""
    for state in nodes:
        for name, count in sorted(state.spec.mig.items()):
            free = state.idle_other.get(f"nvidia.com/mig-{name}", 0)
            yield f"{state.name}: {count} MIG instances {name}, {free} free"


def ill_words(node: str, gpu: Gpu) -> str:
    """Name a GPU that is not well, where it is, and why."""
    fence = "" if gpu.offered else ", fenced"
    return f"{node}: GPU {gpu.index} {gpu.uuid} is {gpu.health.value}: {gpu.why or 'no reason given'}{fence}"
