"""Counters of a port: growth within a window, never a value; what they cannot tell is said."""

from typing import Any

import pytest

from checks.finding import Severity
from checks.infiniband_reading import HcaReading, PciHca
from tests.checks.infiniband import HW_ZEROS, ZEROS, Machine, efa, hca, port
from tests.checks.kernel import NEXT_BOOT

KNOWN = {"expected_ports": 1, "expected_rate_mbps": 400_000}


def counting(**values: int) -> HcaReading:
    """Build a device with these counters, each in the folder that it is in."""
    counters = {**ZEROS, **{name: value for name, value in values.items() if name in ZEROS}}
    hardware = {**HW_ZEROS, **{name: value for name, value in values.items() if name in HW_ZEROS}}
    return hca(0, port(counters=counters, hw_counters=hardware))


@pytest.mark.parametrize(
    ("counter", "allowed", "reason", "severity"),
    [
        pytest.param("symbol_error", 120, "SymbolErrors", Severity.FAULT, id="symbol errors in an hour"),
        pytest.param(
            "local_link_integrity_errors", 0, "LinkIntegrityErrors", Severity.FAULT, id="link integrity"
        ),
        pytest.param(
            "excessive_buffer_overrun_errors", 0, "BufferOverrun", Severity.FAULT, id="buffer overruns"
        ),
        pytest.param(
            "rnr_nak_retry_err", 0, "RnrNakRetries", Severity.WARNING, id="receivers that were not ready"
        ),
        pytest.param(
            "link_error_recovery", 25, "LinkErrorRecovery", Severity.WARNING, id="recoveries a minute"
        ),
        pytest.param(
            "port_rcv_errors", 3_000, "ReceiveErrors", Severity.WARNING, id="broken packets a second"
        ),
        pytest.param(
            "port_xmit_discards", 30_000, "TransmitDiscards", Severity.WARNING, id="discards a second"
        ),
        pytest.param("local_ack_timeout_err", 300, "AckTimeouts", Severity.WARNING, id="timeouts a second"),
        pytest.param(
            "roce_slow_restart", 3_000, "RoceSlowRestarts", Severity.WARNING, id="slow restarts a second"
        ),
    ],
)
def test_a_counter_that_grows_too_fast(counter: str, allowed: int, reason: str, severity: Severity) -> None:
    """The threshold itself is still well, one more is not; it ends when the window has passed in calm."""
    machine = Machine(**KNOWN)
    machine.look(counting(), seconds=30)
    machine.look(counting(**{counter: allowed}))
    assert machine.found() == []
    machine.look(counting(**{counter: allowed + 1}))
    assert machine.found() == [(reason, "mlx5_0/1")]
    finding = machine.finding(reason)
    assert finding.severity is severity
    assert (counter in finding.detail, str(allowed + 1) in finding.detail) == (True, False)
    assert f"{counter} {allowed + 1}" in finding.evidence
    machine.look(counting(**{counter: allowed + 1}), seconds=4200)
    assert (machine.found(), machine.last.unreadable) == ([], None)


@pytest.mark.parametrize(
    "looks",
    [
        pytest.param([counting(symbol_error=60_000)], id="a high value at first sight"),
        pytest.param(
            [counting(symbol_error=60_000), counting(symbol_error=100)], id="a counter that was set back"
        ),
        pytest.param([counting(), counting(port_xmit_wait=2**31)], id="congestion"),
        pytest.param(
            [counting(), *(counting(symbol_error=10 * n) for n in range(1, 13))],
            id="growth within what is allowed",
        ),
    ],
)
def test_what_is_no_growth(looks: list[HcaReading]) -> None:
    """Values from before, a counter that begins anew, waiting for credit: none of it is an error now."""
    machine = Machine(**KNOWN)
    for device in looks:
        machine.look(device)
    assert (machine.found(), machine.last.unreadable) == ([], None)


def test_a_counter_at_its_end() -> None:
    """It is said once, its growth is not evaluated any more, and a counter that was set back clears it."""
    machine = Machine(**KNOWN)
    machine.look(counting(link_downed=255, symbol_error=65_535))
    assert machine.found() == [("CounterSaturated", "mlx5_0/1")]
    assert machine.finding("CounterSaturated").detail == "link_downed, symbol_error cannot count on"
    assert "what it does not count: link_downed, symbol_error" in machine.not_evaluated()
    machine.look(counting(), seconds=90)
    assert (machine.found(), machine.last.not_evaluated) == ([], ())


def test_a_storm_that_ends_at_the_counters_end() -> None:
    """The growth that filled it still counts for its hour, then nothing can be said."""
    machine = Machine(**KNOWN)
    machine.look(counting())
    machine.look(counting(symbol_error=65_535))
    assert [reason for reason, _ in machine.found()] == ["CounterSaturated", "SymbolErrors"]
    machine.look(counting(symbol_error=65_535), seconds=4200)
    assert [reason for reason, _ in machine.found()] == ["CounterSaturated"]


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param(
            {"counters": {}, "not_shown": dict.fromkeys(ZEROS, "EINVAL (Invalid argument)")},
            id="refused with EINVAL",
        ),
        pytest.param({"counters": {}, "not_shown": dict.fromkeys(ZEROS, "N/A")}, id="N/A (no PMA)"),
        pytest.param({"counters": {}}, id="no counters at all"),
    ],
)
def test_counters_that_are_not_shown(changed: dict[str, Any]) -> None:
    """Not evaluated in one line for each port, never Unknown; state and rate are judged as ever."""
    machine = Machine(**KNOWN)
    machine.look(hca(0, port(**changed)), seconds=120)
    assert (machine.found(), machine.last.unreadable) == ([], None)
    assert len(machine.last.not_evaluated) == 1
    assert "symbol_error" in machine.not_evaluated()


def test_a_finding_of_a_counter_that_is_gone_ends_openly() -> None:
    """What can no longer be told is listed, not left standing for ever."""
    machine = Machine(**KNOWN)
    machine.look(counting(), seconds=20)
    machine.look(counting(roce_slow_restart=5_000))
    assert machine.found() == [("RoceSlowRestarts", "mlx5_0/1")]
    machine.look(hca(0, port(hw_counters={})))
    assert machine.found() == []
    assert "it is not shown any more" in machine.not_evaluated()


def test_a_counter_that_cannot_be_read_is_unknown() -> None:
    """EIO is no refusal by the firmware: three times in a row is Unknown."""
    machine = Machine(**KNOWN)
    machine.look(counting())
    rest = {name: 0 for name in ZEROS if name != "symbol_error"}
    machine.look(hca(0, port(counters=rest, errors={"symbol_error": "EIO"})), seconds=30)
    assert machine.last.unreadable is not None
    assert "symbol_error: EIO" in machine.last.unreadable.message


def test_a_new_boot_counts_anew() -> None:
    """Counters of another boot are a first sight."""
    machine = Machine(**KNOWN)
    machine.look(counting())
    machine.boot_id = NEXT_BOOT
    machine.look(counting(symbol_error=50_000))
    assert machine.found() == []


class TestEfa:
    """EFA, whose driver says ACTIVE whatever the link does."""

    KNOWN = {"expected_ports": 2}

    @pytest.mark.parametrize(
        ("counters", "found"),
        [
            pytest.param({"rx_drops": 30_001}, True, id="drops"),
            pytest.param({"rx_drops": 30_000}, False, id="drops within what is allowed"),
            pytest.param({"unresponsive_remote_events": 40_000}, True, id="peers that do not answer"),
            pytest.param({"retrans_pkts": 300_001}, True, id="packets sent again"),
            pytest.param({"retrans_bytes": 300_000_001}, True, id="bytes sent again"),
            pytest.param({"retrans_bytes": 200_000_000}, False, id="some bytes sent again"),
        ],
    )
    def test_its_counters(self, counters: dict[str, int], found: bool) -> None:
        """A warning, which names the counters and ends in calm."""
        machine = Machine(**self.KNOWN)
        machine.look(efa(0), efa(1), seconds=30)
        machine.look(efa(0), efa(1, **counters))
        assert machine.found() == ([("EfaTransportErrors", "rdmap1s0/1")] if found else [])
        machine.look(efa(0), efa(1, **counters), seconds=600)
        assert machine.found() == []

    def test_state_and_rate_are_not_evaluated(self) -> None:
        """They prove nothing, and the report says so, also where a rate is expected."""
        machine = Machine(expected_ports=2, expected_rate_mbps=400_000)
        machine.look(efa(0), efa(1), seconds=60)
        assert (machine.found(), machine.last.unreadable) == ([], None)
        assert "EFA's driver says ACTIVE" in machine.not_evaluated()

    def test_a_missing_device_is_found(self) -> None:
        """Their number is what can be told."""
        machine = Machine(**self.KNOWN)
        machine.look(efa(0), seconds=60)
        assert machine.found() == [("HcaMissing", "node")]

    def test_a_machine_that_has_some_should_have_all(self) -> None:
        """Where interfaces are chosen at the launch, one on the bus proves the choice; one seen in this boot, too."""
        p5: dict[str, Any] = {"labels": {"node.kubernetes.io/instance-type": "p5.48xlarge"}}
        without_driver = Machine(**p5)
        without_driver.pci_hcas = (PciHca(pci="0001:40:00.0"),)
        without_driver.look(seconds=60)
        assert without_driver.found() == [("HcaMissing", "node")]
        all_gone = Machine(**p5)
        all_gone.look(*(efa(number) for number in range(32)))
        all_gone.look(seconds=60)
        assert ("HcaMissing", "rdmap3s0") in all_gone.found()
        chosen = Machine(**p5)
        chosen.look(seconds=60)
        assert "started without" in chosen.not_evaluated()

    def test_what_it_does_not_show(self) -> None:
        """An old driver without error counters is listed; one that fails is Unknown."""
        bare = efa(0)
        port_of = bare.ports[0]
        import msgspec

        machine = Machine(expected_ports=1)
        machine.look(msgspec.structs.replace(bare, ports=(msgspec.structs.replace(port_of, hw_counters={}),)))
        assert "its driver counts no errors" in machine.not_evaluated()
        failing = msgspec.structs.replace(port_of, errors={"rx_drops": "EIO"})
        machine.look(msgspec.structs.replace(bare, ports=(failing,)), seconds=30)
        assert machine.last.unreadable is not None
