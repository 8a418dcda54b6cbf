"""nodemend-bench's own words: bad use, and what cannot be measured."""

from pathlib import Path

import pytest

from bench.__main__ import main


@pytest.mark.parametrize(
    "argv",
    [
        pytest.param([], id="no sub-command"),
        pytest.param(["everything"], id="a sub-command that does not exist"),
        pytest.param(["detect", "--samples", "0"], id="no samples"),
        pytest.param(["detect", "--nodes", "9"], id="an option of the other sub-command"),
        pytest.param(["quarantine", "--sick", "many"], id="not a number"),
        pytest.param(["nvml", "--rounds", "none"], id="no number of rounds"),
        pytest.param(["agent", "--samples", "9"], id="an option of the first two alone"),
    ],
)
def test_bad_use_is_refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 2 and a usage line, before anything is started."""
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    assert "usage: nodemend-bench" in capsys.readouterr().err


def test_too_few_nodes_are_not_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 1, the reason in words, and no file that could be taken for a result."""
    result = tmp_path / "result.json"
    assert main(["quarantine", "--nodes", "10", "--sick", "6", "--json", str(result)]) == 1
    assert "not measured: 6 of 10 nodes leave too few" in capsys.readouterr().out
    assert not result.exists()


def test_a_window_shorter_than_the_look_at_memory_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 1 before anything is started."""
    assert main(["agent", "--window", "59"]) == 1
    assert "not measured: a window of 59 s is too short" in capsys.readouterr().out


def test_too_few_rounds_show_no_growth(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 1 before anything is started."""
    assert main(["nvml", "--rounds", "99"]) == 1
    assert "not measured: 99 rounds are too few" in capsys.readouterr().out


def test_what_the_machine_lacks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 3: here, a place where a sandbox could keep its records."""
    lacking = tmp_path / "file"
    lacking.touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(lacking))
    assert main(["detect"]) == 3
    assert f"this machine lacks something: state folder {lacking}" in capsys.readouterr().out
