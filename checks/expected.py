"""How many GPUs a node should hold, and who says so. Pure.

Four sources, in this order: NodeHealth.spec.expected (a person or the controller), the instance type against the table of
platforms, gpu-feature-discovery's label, the last validated count.

NodeHealth.spec.expected decides alone, upwards and downwards: it is the only one that was written for this very node. Below
it the largest number counts, since each of the others can only be too small: the label is written by a client of the same
NVML and shrinks by itself when a GPU is lost, and where a node holds several models it counts one of them; a count from
last time may have been taken when a GPU was gone already. The number carries the name of the first source that gave it;
sources that say less are told and hide nothing.

A virtual machine that holds fewer GPUs than the instance type of its host (a passthrough subset under the same name), a
machine from which a GPU was taken out for good: state it, with the reason, in spec.expected.
"""

import re
from collections.abc import Iterator

import msgspec

from checks.check import Context
from checks.platforms import platforms

INSTANCE_TYPE_LABEL = "node.kubernetes.io/instance-type"
GFD_COUNT_LABEL = "nvidia.com/gpu.count"
GFD_PRODUCT_LABEL = "nvidia.com/gpu.product"
SPEC, LAST_VALIDATED = "NodeHealth.spec.expected", "last validated count"


class Account(msgspec.Struct, frozen=True):
    """What one source says."""

    gpus: int
    source: str


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """`gpus` is None where no source says anything. `others` are the sentences about sources that were not followed."""

    gpus: int | None = None
    source: str = ""
    others: tuple[str, ...] = ()


def expectation(context: Context) -> Expectation:
    """Give the number of GPUs that the node should hold."""
    accounts, notes = _accounts(context)
    if not accounts:
        return Expectation(others=notes)
    # max() gives the first of equals, so the order of the sources names the number.
    chosen = accounts[0] if context.expected is not None else max(accounts, key=lambda one: one.gpus)
    dissent = tuple(
        f"the {one.source} says {one.gpus} GPUs; {chosen.gpus} are expected ({chosen.source})"
        for one in accounts
        if one.gpus != chosen.gpus
    )
    return Expectation(gpus=chosen.gpus, source=chosen.source, others=(*dissent, *notes))


def _accounts(context: Context) -> tuple[list[Account], tuple[str, ...]]:
    accounts: list[Account] = []
    notes: list[str] = []
    if context.expected is not None:
        said = f" ({context.expected_source})" if context.expected_source else ""
        accounts.append(Account(context.expected, f"{SPEC}{said}"))
    instance_type = context.labels.get(INSTANCE_TYPE_LABEL, "")
    platform = platforms().by_instance_type.get(instance_type)
    if platform is not None:
        accounts.append(Account(platform.gpus, f"instance type {instance_type}"))
    for word in _gfd(context):
        if isinstance(word, Account):
            accounts.append(word)
        else:
            notes.append(word)
    if context.last_validated is not None:
        accounts.append(Account(context.last_validated, LAST_VALIDATED))
    return accounts, tuple(notes)


def _gfd(context: Context) -> Iterator[Account | str]:
    """Read gpu-feature-discovery's label, where it counts GPUs at all.

    Under the MIG strategy `single` it counts MIG devices, or says 0 where their layout is not uniform; the product then
    carries MIG in its name (k8s-device-plugin, internal/lm/mig-strategy.go).
    """
    text = context.labels.get(GFD_COUNT_LABEL)
    if text is None:
        return
    if "-MIG-" in context.labels.get(GFD_PRODUCT_LABEL, ""):
        yield f"the label {GFD_COUNT_LABEL} counts MIG devices here, not GPUs"
    elif re.fullmatch(r"[0-9]{1,4}", text, re.ASCII):
        yield Account(int(text), f"label {GFD_COUNT_LABEL}")
    else:
        yield f"the label {GFD_COUNT_LABEL} holds {text[:40]!r}, which is no number of GPUs"
