"""What a pod asks of shared GPUs through annotations, and what is wrong with it. Pure, exact: no float.

Source: KAI Scheduler v0.17's admission of fractions (annotations gpu-fraction, gpu-memory, gpu-fraction-num-devices, mps,
gpu-fraction-container-name).
"""

import re
from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal
from typing import Any

from controller.scheduler.values import Value

GPU = "nvidia.com/gpu"
FRACTION = "gpu-fraction"
MEMORY = "gpu-memory"
DEVICES = "gpu-fraction-num-devices"
CONTAINER = "gpu-fraction-container-name"
MPS = "mps"

_UINT64_MAX = 2**64 - 1
# What both Go's ParseFloat and Kubernetes' quantities take, so neither hexadecimal nor suffixes:
_NUMBER = re.compile(r"[+-]?([0-9]{1,64}(\.[0-9]{0,64})?|\.[0-9]{1,64})([eE][+-]?[0-9]{1,3})?")
_SMALLEST = Decimal("2.5e-324")


class SharedGpu(Value, frozen=True, kw_only=True):
    """What a pod asks for on each of `devices` cards: `portion` in milli-GPU (rounded up), or `memory_mib`; 0 = not so.

    `container`: the container that gets it, "" = the first.
    """

    portion: int = 0
    memory_mib: int = 0
    devices: int = 1
    container: str = ""
    mps: bool = False


def shared_gpu_of(pod: Mapping[str, Any]) -> SharedGpu | None:
    """Return what a valid pod asks of shared GPUs, None where it asks for none, or where `why_not_valid` objects."""
    notes = _annotations(pod)
    if why_not_valid(pod) is not None or not (FRACTION in notes or MEMORY in notes):
        return None
    fraction = _fraction(notes.get(FRACTION, "0")) or Decimal(0)
    return SharedGpu(
        portion=int((fraction * 1000).to_integral_value(ROUND_CEILING)),
        memory_mib=_count(notes.get(MEMORY, "0")) or 0,
        devices=_count(notes.get(DEVICES, "1")) or 1,
        container=notes.get(CONTAINER, ""),
        mps=notes.get(MPS) == "true",
    )


def why_not_valid(pod: Mapping[str, Any]) -> str | None:
    """Say why a pod's GPU request is refused, or None."""
    notes = _annotations(pod)
    shared = [key for key in (FRACTION, MEMORY) if key in notes]
    for key in (DEVICES, MPS):
        if key in notes and not shared and (key != MPS or notes[key] == "true"):
            return f"annotation {key} is {notes[key]!r}, but it needs {FRACTION} or {MEMORY} beside it"
    if len(shared) > 1:
        return f"annotations {FRACTION} and {MEMORY} are both set, but only one of them may be"
    if shared and (holder := _with_gpu_limit(pod)):
        return f"annotation {shared[0]} is set, but container {holder!r} has a limit of {GPU} besides"
    return _why_not_number(notes) or _why_not_container(pod, notes.get(CONTAINER) if shared else None)


def _why_not_number(notes: Mapping[str, str]) -> str | None:
    if MEMORY in notes and not _count(notes[MEMORY]):
        return f"annotation {MEMORY} is {notes[MEMORY]!r}, but must be a whole number of MiB above 0"
    if FRACTION in notes and _fraction(notes[FRACTION]) is None:
        return (
            f"annotation {FRACTION} is {notes[FRACTION]!r}, but must be a decimal number above 0 and below 1"
        )
    if DEVICES in notes and not _count(notes[DEVICES]):
        return f"annotation {DEVICES} is {notes[DEVICES]!r}, but must be a whole number above 0"
    return None


def _why_not_container(pod: Mapping[str, Any], name: str | None) -> str | None:
    if name is None or any(container.get("name") == name for container in _containers(pod)):
        return None
    return f"annotation {CONTAINER} is {name!r}, but the pod has no such container"


def _fraction(text: str) -> Decimal | None:
    if not _NUMBER.fullmatch(text):
        return None
    number = Decimal(text)
    return number if _SMALLEST < number < 1 else None


def _count(text: str) -> int | None:
    if not re.fullmatch(r"[0-9]{1,20}", text, re.ASCII):
        return None
    return int(text) if int(text) <= _UINT64_MAX else None


def _with_gpu_limit(pod: Mapping[str, Any]) -> str | None:
    """Name the first container that limits whole GPUs; "?" where it has no name."""
    for container in _containers(pod):
        resources = container.get("resources")
        limits = resources.get("limits") if isinstance(resources, dict) else None
        if isinstance(limits, dict) and GPU in limits:
            return str(container.get("name") or "?")
    return None


def _containers(pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    spec = pod.get("spec")
    found: list[dict[str, Any]] = []
    for key in ("containers", "initContainers"):
        listed = spec.get(key) if isinstance(spec, dict) else None
        found += [raw for raw in listed if isinstance(raw, dict)] if isinstance(listed, list) else []
    return found


def _annotations(pod: Mapping[str, Any]) -> dict[str, str]:
    metadata = pod.get("metadata")
    notes = metadata.get("annotations") if isinstance(metadata, dict) else None
    if not isinstance(notes, dict):
        return {}
    return {key: text for key, text in notes.items() if isinstance(key, str) and isinstance(text, str)}
