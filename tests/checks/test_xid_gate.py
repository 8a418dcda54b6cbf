"""What NVIDIA's catalogue says of products and drivers, in the judge: it makes us wait less or repair less, never more."""

import pytest

from checks.finding import Action, Effect, Urgency
from checks.observation import GpuReading, NvmlError, NvmlFailed, NvmlRead, NvmlReleased, Observation
from checks.xid_gate import MOST_GPUS, Gates
from tests.checks.kernel import at, record
from tests.checks.xid_scene import CARD, PCI, PEER, Machine

EVAL = "RLW_SRC_TRACK Nonfatal XC1 i0 Link 03 (0x040868e2 0x00000008 0x00000000 0x00000000)"
LINK_DOWN = "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000 0x00000000)"
OLD, NEW = "550.54.15", "570.86.15"


def read(seconds: float, model: str = "", driver: str = "", pci: str = PCI) -> NvmlRead:
    gpu = GpuReading(index=0, pci=pci, uuid=CARD, model=model)
    return NvmlRead(seen_at=at(seconds), child=1, driver=driver, library="", count=1, gpus=(gpu,))


def known(model: str = "", driver: str = "") -> Machine:
    machine = Machine()
    machine.judge(read(0, model, driver))
    return machine


def gone(seconds: float) -> tuple[Observation, ...]:
    error = NvmlError(call="nvmlInit_v2", code=18, name="LibRmVersionMismatch")
    return (
        NvmlFailed(seen_at=at(seconds), child=1, error=error, since=at(seconds), fresh=False),
        NvmlReleased(seen_at=at(seconds), why="a driver upgrade"),
    )


class TestDriver:
    """Nobody waits for an XID 154 that this driver does not write."""

    @pytest.mark.parametrize(
        ("driver", "waits"),
        [
            pytest.param(OLD, False, id="too old"),
            pytest.param(NEW, True, id="new enough"),
            pytest.param("", True, id="not known"),
            pytest.param("next", True, id="not readable"),
        ],
    )
    def test_what_is_waited_for(self, driver: str, waits: bool) -> None:
        machine = known(driver=driver).restart().xid(1, 145, EVAL)
        assert bool(machine.judgement.not_yet) is waits
        assert machine.warnings == ["Xid145NvLinkRlwError"]

    def test_a_companion_that_comes_all_the_same_is_joined(self) -> None:
        """The driver's own word is worth more than the table."""
        machine = known(driver=OLD).xid(1, 145, EVAL).wants(5, "reset")
        assert machine.faults == ["RecoveryGpuReset"]
        assert "XID 145" in machine.the("RecoveryGpuReset").detail

    def test_45_waits_for_its_cause_whatever_the_driver(self) -> None:
        assert known(driver=OLD).xid(1, 45, "Ch 00000008").judgement.not_yet

    @pytest.mark.parametrize("which", [0, 1], ids=["failed", "released"])
    def test_a_driver_that_may_be_another_one_now_is_not_known(self, which: int) -> None:
        machine = known(driver=OLD)
        machine.judge(gone(1)[which])
        assert machine.xid(2, 145, EVAL).judgement.not_yet

    def test_a_round_without_a_version_says_nothing(self) -> None:
        machine = known(driver=OLD)
        machine.judge(read(1))
        assert not machine.xid(2, 145, EVAL).judgement.not_yet


class TestProduct:
    """A code that the catalogue does not list for the product keeps its effect; a person decides on the repair."""

    @pytest.mark.parametrize(
        ("code", "text", "model", "reason"),
        [
            pytest.param(136, "x", "NVIDIA B200", "Xid136NvLinkTrainingFailed", id="of another generation"),
            pytest.param(110, "x", "NVIDIA A100-SXM4-80GB", "Xid110SecurityFault", id="a reset now"),
            pytest.param(151, "x", "NVIDIA A100-SXM4-80GB", "Xid151KeyRotationFailed", id="a reboot"),
            pytest.param(149, LINK_DOWN, "NVIDIA H200", "Xid149NvLinkNetirFault", id="decoded"),
        ],
    )
    def test_not_listed(self, code: int, text: str, model: str, reason: str) -> None:
        plain = Machine().xid(1, code, text).the(reason)
        found = known(model=model).restart().xid(1, code, text).xid(2, code, text).the(reason)
        assert (found.effect, found.action) == (plain.effect, plain.action)
        assert plain.urgency is not Urgency.PERSON
        assert found.urgency is Urgency.PERSON
        assert found.detail.count(f"NVIDIA's catalogue does not list XID {code} for {model}") == 1
        assert found.effect is not Effect.NONE

    @pytest.mark.parametrize(
        "model", ["NVIDIA H100 80GB HBM3", "NVIDIA L40S", ""], ids=["listed", "no family", "unknown"]
    )
    def test_missing_evidence_changes_nothing(self, model: str) -> None:
        found = known(model=model).xid(1, 136, "x").the("Xid136NvLinkTrainingFailed")
        assert found.urgency is Urgency.WHEN_IDLE
        assert "catalogue" not in found.detail

    def test_a_code_that_nvidia_lists_for_no_product_is_not_touched(self) -> None:
        """Unused codes have no products in the catalogue: that is no word about this one."""
        found = known(model="NVIDIA H200").xid(1, 57, "x").the("Xid57FramebufferLinkTrainingFailed")
        assert "catalogue" not in found.detail

    def test_a_warning_says_so_and_stays_as_it_is(self) -> None:
        found = known(model="NVIDIA H200").xid(1, 126, "x").the("Xid126CopyEngine10Exception")
        assert "does not list XID 126" in found.detail
        assert (found.action, found.urgency) == (Action.RESTART_APP, Urgency.WHEN_IDLE)

    @pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
    def test_the_driver_s_own_word_is_worth_more(self, first: bool) -> None:
        """A GPU whose driver asks for a reset gets it, whatever the table knows of its product."""
        machine = known(model="NVIDIA B200")
        machine = (
            machine.wants(1, "reset").xid(2, 136, "x")
            if first
            else machine.xid(1, 136, "x").wants(2, "reset")
        )
        found = machine.xid(3, 136, "x").the("Xid136NvLinkTrainingFailed")
        assert (found.action, found.urgency) == (Action.RESET_GPU, Urgency.NOW)

    def test_another_gpu_is_not_meant(self) -> None:
        found = known(model="NVIDIA B200").xid(1, 136, "x", pci=PEER).the("Xid136NvLinkTrainingFailed")
        assert found.urgency is Urgency.WHEN_IDLE

    def test_what_comes_with_the_round_is_known_already(self) -> None:
        machine = Machine()
        line = record(1, f"NVRM: Xid (PCI:{PCI}): 136, x", seen_at=at(1))
        machine.judge(line, read(1, "NVIDIA B200"))
        assert machine.the("Xid136NvLinkTrainingFailed").urgency is Urgency.PERSON


def test_memory_is_bounded() -> None:
    """However many addresses a round names."""
    gates = Gates("", {})
    for number in range(MOST_GPUS * 2):
        gates.hear(read(0, "NVIDIA H200", pci=f"{number:04x}:00:00"))
    assert len(gates.models) == MOST_GPUS
