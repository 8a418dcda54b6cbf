"""Which boot of the machine this is: the kernel's own random id, new with each boot."""

import re
from pathlib import Path

BOOT_ID = "sys/kernel/random/boot_id"

_FORM = re.compile(r"[0-9a-zA-Z][-0-9a-zA-Z]{0,63}")


class BootIdUnreadable(Exception):
    """The boot id could not be read; the message names the file and the cause."""


def read_boot_id(proc_root: Path) -> str:
    """Read `<proc_root>/sys/kernel/random/boot_id`. Raises BootIdUnreadable, also for a file that holds no id."""
    path = proc_root / BOOT_ID
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BootIdUnreadable(f"{path}: {error}") from error
    if not _FORM.fullmatch(text):
        raise BootIdUnreadable(f"{path}: holds {text[:80]!r}, not a boot id")
    return text
