"""The floor of the agent's footprint: the least that could hold an API connection and ask NVML. Run as a program.

`http`: a process with urllib3 and a connection pool that does nothing. `nvml LIBRARY PERIOD_S`: a process with nvidia-ml-py
that asks every GPU for what the agent's child asks, every PERIOD_S seconds. Neither judges, watches, serves or survives
anything.
"""

import sys
import time


def http() -> None:
    """Hold a pool, for ever."""
    import urllib3

    pool = urllib3.PoolManager()
    while pool is not None:
        time.sleep(60)


def nvml(library: str, period_s: float) -> None:
    """Ask for the same facts of every GPU, round after round."""
    import ctypes

    import pynvml

    pynvml.nvmlLib = ctypes.CDLL(library)
    pynvml.nvmlInit()
    asked = (
        pynvml.nvmlDeviceGetPciInfo_v3,
        pynvml.nvmlDeviceGetUUID,
        pynvml.nvmlDeviceGetSerial,
        pynvml.nvmlDeviceGetName,
        pynvml.nvmlDeviceGetMinorNumber,
        pynvml.nvmlDeviceGetMigMode,
    )
    while True:
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            for ask in asked:
                ask(handle)
            pynvml.nvmlDeviceGetFieldValues(handle, [230])
        time.sleep(period_s)


if __name__ == "__main__":
    if sys.argv[1] == "http":
        http()
    else:
        nvml(sys.argv[2], float(sys.argv[3]))
