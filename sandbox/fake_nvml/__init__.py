"""A fake NVIDIA driver: `libnvidia-ml.so.1` and `nvidia-smi` on one state that can change while programs use them.

`FakeDriver(root, gpus)` lays out what a driver root holds; whoever loads the library from there sees the GPUs of the state,
which the driver's methods change: any call can fail with any code or hang, GPUs can be lost, events come.
"""

from sandbox.fake_nvml.building import Built, build
from sandbox.fake_nvml.driver import FakeDriver
from sandbox.fake_nvml.profiles import MODELS, Instance, make_gpus
from sandbox.fake_nvml.root import LIBRARY, NVIDIA_SMI
from sandbox.fake_nvml.symbols import CALLS

__all__ = [
    "CALLS",
    "LIBRARY",
    "MODELS",
    "NVIDIA_SMI",
    "Built",
    "FakeDriver",
    "Instance",
    "build",
    "make_gpus",
]
