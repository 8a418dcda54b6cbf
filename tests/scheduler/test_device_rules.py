"""DeviceTaintRules: which devices they take."""

from typing import Any

import msgspec
import pytest

from controller.scheduler.device_rules import with_rules
from kube.devices import DeviceTaintRule, ResourceSlice


def piece(driver: str = "d", pool: str = "n1") -> ResourceSlice:
    devices = [{"name": "gpu-0", "taints": [{"key": "own", "effect": "None"}]}, {"name": "gpu-1"}]
    body = {
        "metadata": {"name": pool},
        "spec": {"driver": driver, "pool": {"name": pool}, "devices": devices},
    }
    return msgspec.convert(body, ResourceSlice)


def rule(selector: Any, name: str = "r", key: str = "sick") -> DeviceTaintRule:
    spec = {"taint": {"key": key, "effect": "NoSchedule"}, "deviceSelector": selector}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec}, DeviceTaintRule)


@pytest.mark.parametrize(
    ("selector", "taken"),
    [
        pytest.param(None, [], id="no selector, no device"),
        pytest.param({}, ["gpu-0", "gpu-1"], id="an empty one takes all"),
        pytest.param({"device": "gpu-1"}, ["gpu-1"], id="by name"),
        pytest.param({"driver": "d", "pool": "n1", "device": "gpu-0"}, ["gpu-0"], id="one device"),
        pytest.param({"driver": "e"}, [], id="another driver"),
        pytest.param({"pool": "n2", "device": "gpu-0"}, [], id="another pool"),
    ],
)
def test_who_is_taken(selector: Any, taken: list[str]) -> None:
    """All criteria must hold."""
    (made,) = with_rules([piece()], [rule(selector)])
    assert [one.name for one in made.spec.devices if any(t.key == "sick" for t in one.taints)] == taken


def test_a_drivers_own_taints_stay_and_rules_come_in_order_of_name() -> None:
    """Whatever the order in which they were read."""
    rules = [rule({}, "b", "second"), rule({}, "a", "first")]
    (made,) = with_rules([piece()], rules)
    assert [taint.key for taint in made.spec.devices[0].taints] == ["own", "first", "second"]
    assert with_rules([piece()], rules[::-1]) == (made,)
