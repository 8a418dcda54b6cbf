"""The configuration of an agent on a simulated machine: the same keys as in production, with this machine's paths."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sandbox.nodes import SimulatedNode


def settings(node: SimulatedNode, *, kmsg: Path, state_dir: Path) -> dict[str, Any]:
    """Give the settings of an agent that reads `node`'s machine; `listen` picks a free port."""
    return {
        "node_name": node.name,
        "listen": "127.0.0.1:0",
        "state_dir": str(state_dir),
        "roots": {"proc": str(node.machine.proc), "sys": str(node.machine.sys)},
        "kernel_log": {"path": str(kmsg)},
        "kubelet": {"enabled": False},  # a simulated node has none
        "storage": {"enabled": False},  # no disks are simulated, and this machine's own are not the node's
        "host": {"enabled": False},
        "nvml": {"enabled": node.driver_root.is_dir(), "driver_root": str(node.driver_root)},
    }


def write_config(
    path: Path, node: SimulatedNode, *, kmsg: Path, state_dir: Path, more: Mapping[str, Any] | None = None
) -> None:
    """Write an agent's configuration file; `more` are further keys and tables, which win."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(toml(merged(settings(node, kmsg=kmsg, state_dir=state_dir), more or {})))


def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Merge tables of tables; what `second` says wins."""
    both = dict(first)
    for key, value in second.items():
        mine = both.get(key)
        both[key] = merged(mine, value) if isinstance(mine, Mapping) and isinstance(value, Mapping) else value
    return both


def toml(table: Mapping[str, Any], prefix: str = "") -> str:
    """Write nested tables of strings, numbers, booleans and lists of strings as TOML, whose basic values are JSON's."""
    plain = [
        f"{key} = {json.dumps(value)}\n" for key, value in table.items() if not isinstance(value, Mapping)
    ]
    nested = [
        f"\n[{prefix}{key}]\n{toml(value, f'{prefix}{key}.')}"
        for key, value in table.items()
        if isinstance(value, Mapping)
    ]
    return "".join(plain + nested)
