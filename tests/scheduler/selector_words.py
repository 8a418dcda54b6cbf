"""Devices for selectors."""

from typing import Any

import msgspec

from kube.devices import SliceDevice


def slice_device(name: str = "gpu-0", **parts: Any) -> SliceDevice:
    """Give a device of a slice by what its JSON says."""
    return msgspec.convert({"name": name, **parts}, SliceDevice)


A100 = slice_device(
    attributes={
        "productName": {"string": "NVIDIA A100-SXM4-40GB"},
        "type": {"string": "gpu"},
        "uuid": {"string": "GPU-1"},
        "index": {"int": 3},
        "neg": {"int": -7},
        "ecc": {"bool": True},
        "driverVersion": {"version": "550.54.15"},
        "cuda": {"version": "8.0.0"},
        "pre": {"version": "1.2.3-rc.1+b5"},
        "resource.kubernetes.io/pcieRoot": {"string": "pci0000:00"},
        "empty": {"string": ""},
    },
    capacity={"memory": {"value": "40Gi"}, "example.com/x": {"value": "1500m"}},
)
