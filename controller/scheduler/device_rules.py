"""Taints that DeviceTaintRules put on devices, beside those that drivers publish. Pure.

Source: Kubernetes, resource.k8s.io/v1, DeviceTaintRule: its selector's criteria must all hold, an empty selector takes every
device, none takes no device. The API server merges nothing into the slices: whoever gives devices away has to.
"""

from collections.abc import Iterable

import msgspec

from kube.devices import DeviceTaintRule, ResourceSlice, SliceDevice


def with_rules(
    slices: Iterable[ResourceSlice], rules: Iterable[DeviceTaintRule]
) -> tuple[ResourceSlice, ...]:
    """Give the slices with the rules' taints on their devices; the very same ones where no rule takes any."""
    ordered = sorted(rules, key=lambda rule: rule.metadata.name)
    every = tuple(slices)
    return tuple(_tainted(piece, ordered) for piece in every) if ordered else every


def _tainted(piece: ResourceSlice, rules: list[DeviceTaintRule]) -> ResourceSlice:
    mine = [rule for rule in rules if _takes_pool(rule, piece)]
    if not mine:
        return piece
    devices = tuple(_with_taints(device, mine) for device in piece.spec.devices)
    return msgspec.structs.replace(piece, spec=msgspec.structs.replace(piece.spec, devices=devices))


def _takes_pool(rule: DeviceTaintRule, piece: ResourceSlice) -> bool:
    selector = rule.spec.device_selector
    return (
        selector is not None
        and selector.driver in (None, piece.spec.driver)
        and selector.pool in (None, piece.spec.pool.name)
    )


def _with_taints(device: SliceDevice, rules: list[DeviceTaintRule]) -> SliceDevice:
    added = tuple(
        rule.spec.taint
        for rule in rules
        if rule.spec.device_selector is not None and rule.spec.device_selector.device in (None, device.name)
    )
    return msgspec.structs.replace(device, taints=(*device.taints, *added)) if added else device
