"""What is known of this machine's products and driver, against NVIDIA's catalogue. Pure, small, kept over restarts.

The catalogue says on which products a code is seen, and from which driver branch an XID 154 follows it. Both only ever
make the judge wait less or repair less:

- Nobody is kept waiting for the XID 154 that explains an NVLink error where the driver is too old to write one. One that
  comes all the same is joined as ever.
- A code that NVIDIA does not list for the GPU's product is not believed to be harmless: the finding and its effect stay.
  But nobody vouches that a reset or a reboot ends it there, so it is left to a person, unless the driver itself asks for a
  repair (XID 154, NVML's recovery action).

Missing evidence changes nothing: no product or driver read yet, a product of none of the catalogue's families, a code for
which it names no products. What NVML said last is remembered; the driver's version only until NVML fails or is released,
since another driver may be loaded then. Source: the columns of NVIDIA's Xid catalogue ("Applies to", "XID 154
linkage"), kept in the notes of xid_catalog.csv.
"""

from collections.abc import Mapping

from checks import nvlink4
from checks.observation import NvmlFailed, NvmlRead, NvmlReleased, Observation
from checks.xid_action import family_of, gate_of
from checks.xid_catalog import catalog
from checks.xid_line import XidLine, printable

MOST_GPUS = 64
MODEL_LIMIT = 64
DRIVER_LIMIT = 32


class Gates:
    """Mutable only inside one judgement. `models` by PCI address."""

    def __init__(self, driver: str, models: Mapping[str, str]) -> None:
        self.driver = driver
        self.models = dict(models)

    def hear(self, observation: Observation) -> None:
        """Learn from what NVML said; an empty word is none."""
        match observation:
            case NvmlRead():
                self.driver = printable(observation.driver, DRIVER_LIMIT) or self.driver
                for gpu in observation.gpus:
                    if gpu.pci and gpu.model:
                        self._learn(gpu.pci, printable(gpu.model, MODEL_LIMIT))
            case NvmlFailed() | NvmlReleased():
                self.driver = ""
            case _:
                pass

    def recovery_follows(self, code: int) -> bool | None:
        """Tell whether this driver says in an XID 154 what it wants after the code; None where that cannot be told."""
        row = catalog().get(code)
        return None if row is None else gate_of(row.note).recovery_follows(self.driver)

    def not_listed(self, code: int, pci: str) -> str:
        """Say that NVIDIA does not list the code for this GPU's product; empty where it does, or nobody can tell."""
        row, model = catalog().get(code), self.models.get(pci, "")
        if row is None or gate_of(row.note).covers(model) is not False:
            return ""
        return f"NVIDIA's catalogue does not list XID {code} for {model}"

    def registers(self, line: XidLine) -> nvlink4.Bits | None:
        """Read the registers of an XID 74 of a GPU that is known to be of the family that they are explained for."""
        if line.code != nvlink4.CODE or family_of(self.models.get(line.pci, "")) != nvlink4.FAMILY:
            return None
        return nvlink4.bits_of(line.text)

    def _learn(self, pci: str, model: str) -> None:
        if pci not in self.models and len(self.models) >= MOST_GPUS:
            del self.models[next(iter(self.models))]
        self.models[pci] = model
