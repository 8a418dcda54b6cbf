"""Real log lines, where a folder with them is given: each must be read right, whatever driver or tool it came from."""

import csv
import os
from pathlib import Path

import pytest

from checks.log_prefix import strip_prefix
from checks.xid_catalog import catalog
from checks.xid_line import (
    IdentityLine,
    Line,
    OffBusLine,
    Pending,
    SxidLine,
    XidLine,
    normal_pci,
    read,
)

OUTSIDE_CASES = os.environ.get("NODEMEND_OUTSIDE_CASES", "")
SAMPLES = "xid-samples.tsv"
DECODED_LATER = {*range(144, 151), 154}


class Facts:
    """What one sample says, in the words of the file's columns."""

    def __init__(self, lines: list[Line]) -> None:
        self.codes = self.pci = self.mig = self.link = self.rst = self.continuation = ""
        for line in lines:
            if isinstance(line, XidLine):
                self.codes = str(line.code)
                self.rst = {None: "", True: "Yes", False: "No"}[line.reset_required]
                if line.gpu_instance is not None:
                    self.mig = f"{line.gpu_instance}/{line.compute_instance}"
            elif isinstance(line, OffBusLine):
                self.codes = "79"
            elif isinstance(line, SxidLine) and line.continuation:
                self.continuation = f"SXID{line.code}"
            elif isinstance(line, SxidLine):
                self.codes = f"SXID{line.code}"
            if isinstance(line, XidLine | OffBusLine | SxidLine | IdentityLine):
                self.pci = line.pci
            if isinstance(line, XidLine | SxidLine):
                self.link = "" if line.link is None else str(line.link)


def _samples() -> list[dict[str, str]]:
    file = Path(OUTSIDE_CASES) / SAMPLES
    with file.open(encoding="utf-8", newline="") as opened:
        return list(csv.DictReader(opened, delimiter="\t", quoting=csv.QUOTE_NONE, restval=""))


def _read(sample: str) -> Facts:
    lines: list[Line] = []
    pending: Pending | None = None
    for number, text in enumerate(strip_prefix(sample).split("\\n")):
        line, pending = read(text, number, pending)
        lines += [line] if line else []
    return Facts(lines)


@pytest.mark.skipif(not OUTSIDE_CASES, reason=f"NODEMEND_OUTSIDE_CASES names no folder with {SAMPLES}")
def test_every_sample_is_read_right() -> None:
    """Codes, address, MIG instance, link, reset flag and continuation of every line agree with what is expected."""
    samples = _samples()
    assert samples, "the file of samples is empty"
    for sample in samples:
        facts = _read(sample["line"])
        pci = normal_pci(sample["pci"]) if sample["pci"] else ""
        expected = (
            sample["codes"],
            pci,
            *(sample[column] for column in ("mig", "link", "rst", "continuation")),
        )
        found = (facts.codes, facts.pci, facts.mig, facts.link, facts.rst, facts.continuation)
        assert found == expected, sample["line"]


@pytest.mark.skipif(not OUTSIDE_CASES, reason=f"NODEMEND_OUTSIDE_CASES names no folder with {SAMPLES}")
def test_the_catalogue_agrees_with_the_samples() -> None:
    """The bucket that a sample expects is the bucket of its code, but for codes whose text decides."""
    for sample in _samples():
        if sample["codes"].isdigit() and int(sample["codes"]) not in DECODED_LATER:
            assert catalog()[int(sample["codes"])].bucket == sample["action"], sample["line"]
