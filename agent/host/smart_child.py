"""Asks one NVMe controller for its SMART log and says on one line what it answers. A program: see `agent.host.children`.

    smart_child.py SECONDS DEVICE

The log is page 2 of the admin command Get Log Page (NVM Express base specification, 5.16.1.3), sent by the kernel's
NVME_IOCTL_ADMIN_CMD, which takes CAP_SYS_ADMIN. It reads and changes nothing. The kernel's own timeout is left as it is:
a shorter one of ours would make the kernel reset a controller that is merely busy. After SECONDS the program ends by
itself, so that none outlives an agent that was killed.

Output: `ok WARNING SPARE SPARE_THRESHOLD USED`, or `error ERRNO STAGE`, or `status NUMBER` where the controller refuses.
"""

import array
import fcntl
import os
import signal
import struct
import sys

ADMIN_COMMAND = 0xC0484E41  # _IOWR('N', 0x41, struct nvme_admin_cmd), include/uapi/linux/nvme_ioctl.h
GET_LOG_PAGE, SMART, LOG_BYTES = 0x02, 0x02, 512
ALL_NAMESPACES = 0xFFFFFFFF


def command(address: int) -> bytearray:
    """Build struct nvme_admin_cmd for the SMART log, to be written to `address`."""
    double_words = LOG_BYTES // 4 - 1
    return bytearray(
        struct.pack(
            "=BBHIIIQQII6III",
            *(GET_LOG_PAGE, 0, 0, ALL_NAMESPACES, 0, 0),
            *(0, address, 0, LOG_BYTES),
            *(double_words << 16 | SMART, 0, 0, 0, 0, 0),
            *(0, 0),
        )
    )


def told(log: bytes) -> str:
    """Give critical warning, available spare, its threshold and percentage used: bytes 0, 3, 4, 5."""
    return f"ok {log[0]} {log[3]} {log[4]} {log[5]}"


def main(arguments: list[str]) -> None:
    """Ask, and say it."""
    seconds, device = arguments
    signal.alarm(int(seconds))
    log = array.array("B", bytes(LOG_BYTES))
    stage = "open"
    try:
        file = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
        stage = "ioctl"
        status = fcntl.ioctl(file, ADMIN_COMMAND, command(log.buffer_info()[0]), True)
    except OSError as error:
        sys.stdout.write(f"error {error.errno or 0} {stage}")
        return
    sys.stdout.write(told(log.tobytes()) if status == 0 else f"status {status}")


if __name__ == "__main__":
    main(sys.argv[1:])
