"""Looking at the machine itself now and then: which boot this is, and which parts it holds."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from agent.host.boot import BootIdUnreadable, read_boot_id
from agent.host.inventory import Inventory, InventoryFailed
from kube.clock import Clock

BOOT_LOOK_S = 5.0
BOOT_RETRY_S = 1.0
INVENTORY_S = 60.0
TRIES_BEFORE_UNKNOWN = 3


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What was looked at this time; None for what was not due. `boot_error` is set from the third failed try on."""

    boot_id: str | None = None
    boot_error: str = ""
    inventory: Inventory | InventoryFailed | None = None


class Machine:
    """Owns when the machine is looked at. The boot id is looked at often, since a new one voids all evidence."""

    def __init__(
        self, proc_root: Path, read_inventory: Callable[[], Inventory | InventoryFailed], clock: Clock
    ) -> None:
        self._proc_root = proc_root
        self._read_inventory = read_inventory
        self._clock = clock
        self._boot_at = self._inventory_at = clock.monotonic()
        self._boot_tries = 0

    def look(self) -> Look:
        """Look at what is due."""
        now = self._clock.monotonic()
        boot_id, boot_error = self._boot(now) if now >= self._boot_at else (None, "")
        inventory = None
        if now >= self._inventory_at:
            self._inventory_at = now + INVENTORY_S
            inventory = self._read_inventory()
        return Look(boot_id=boot_id, boot_error=boot_error, inventory=inventory)

    def _boot(self, now: float) -> tuple[str | None, str]:
        try:
            boot_id = read_boot_id(self._proc_root)
        except BootIdUnreadable as error:
            self._boot_at = now + BOOT_RETRY_S
            self._boot_tries += 1
            return None, str(error) if self._boot_tries >= TRIES_BEFORE_UNKNOWN else ""
        self._boot_at = now + BOOT_LOOK_S
        self._boot_tries = 0
        return boot_id, ""
