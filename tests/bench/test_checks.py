"""`nodemend-bench checks`: its rounds with small numbers, and its own words."""

from pathlib import Path

import pytest

from bench.__main__ import main
from bench.checks import measure_rounds, written_kib
from bench.checks_machine import BenchMachine
from sandbox.fake_nvml import make_gpus
from tests.sandbox.nvml_program import built_or_skip


def test_rounds_are_whole_and_the_machine_is_well(tmp_path: Path) -> None:
    """Every part of a round costs something, the floor less than all of it, and no check takes the machine for ill."""
    built_or_skip()
    figures = {one.name: one for one in measure_rounds(lambda _: None, tmp_path, 20, 5)}
    whole = figures["round_cpu_ms"]
    assert whole.aim == 25
    assert "nothing made of them" in whole.beside
    parts = ("child", "decoding", "pci", "infiniband", "judging")
    assert all(figures[f"round_{part}_cpu_ms"].value > 0 for part in parts)
    assert 0 < figures["bare_round_cpu_ms"].value < whole.value
    assert figures["rounds"].value == 20
    assert figures["round_memory_growth_kib"].aim == 512


def test_the_machine_shows_each_hca_once_and_moves(tmp_path: Path) -> None:
    """What PCI and RDMA show is one device, and a counter goes on."""
    machine = BenchMachine(tmp_path, make_gpus(8))
    shown = sorted((machine.sys / "class/infiniband").iterdir())
    assert [(one / "device").resolve().name for one in shown] == sorted(hca.pci for hca in machine.hcas)
    for hca in machine.hcas:
        assert (
            machine.sys / "bus/pci/devices" / hca.pci / "infiniband" / hca.name / "ports/1/state"
        ).is_file()
    waits = machine.sys / "class/infiniband/mlx5_3/ports/1/counters/port_xmit_wait"
    before = waits.read_text()
    machine.live(3)
    assert waits.read_text() != before


def test_what_a_process_wrote_is_told_from_what_it_reads() -> None:
    """Clean pages of libraries turn private when another program ends: no growth of ours."""
    rollup = (
        "55d0-7ffe ---p 00000000 00:00 0 [rollup]\nPrivate_Clean: 900 kB\nPrivate_Dirty: 40 kB\nSwap: 2 kB\n"
    )
    assert written_kib(rollup) == 42


def test_too_few_rounds_show_no_growth(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 1 before anything is started."""
    assert main(["checks", "--rounds", "99"]) == 1
    assert "not measured: 99 rounds are too few" in capsys.readouterr().out


@pytest.mark.parametrize(
    "argv",
    [
        pytest.param(["checks", "--rounds", "0"], id="no rounds"),
        pytest.param(["checks", "--storm", "soon"], id="not a number of seconds"),
    ],
)
def test_bad_use_is_refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 2 and a usage line, before anything is started."""
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    assert "usage: nodemend-bench" in capsys.readouterr().err
