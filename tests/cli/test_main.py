"""The command line itself: options in either place, exit codes, and commands that need no cluster."""

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from checks.check import discover, documented
from cli.__main__ import main
from cli.failure import Exit, Failure
from cli.runbook import choose_reasons
from tests.cli.objects import Cluster, node


@pytest.mark.parametrize(
    "argv",
    [
        pytest.param(("-o", "json", "status"), id="an option before the command"),
        pytest.param(("status", "-o", "json"), id="an option after the command"),
    ],
)
def test_options_stand_on_either_side(argv: tuple[str, ...]) -> None:
    """kubectl passes everything after `nodemend` on as it stands."""
    assert Cluster().add(nodes=[node("gpu-1")]).run(*argv).json()["watched"] == 1


@pytest.mark.parametrize(
    "argv",
    [
        pytest.param((), id="no command"),
        pytest.param(("statsu",), id="an unknown command"),
        pytest.param(("explain",), id="no node"),
        pytest.param(("status", "-o", "yaml"), id="an unknown output"),
    ],
)
def test_bad_use_is_exit_code_2(argv: tuple[str, ...]) -> None:
    """argparse says what is wrong; nothing is read."""
    cluster = Cluster()
    with pytest.raises(SystemExit) as ended:
        cluster.run(*argv)
    assert (ended.value.code, cluster.api.requests) == (2, [])


def test_no_kubeconfig_is_exit_code_3(tmp_path: Path) -> None:
    """The missing file is named."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(["status", "--kubeconfig", str(tmp_path / "none")])
    assert (code, out.getvalue(), err.getvalue().count("\n")) == (3, "", 1)
    assert str(tmp_path / "none") in err.getvalue()


def test_runbook_lists_every_reason() -> None:
    """Without an argument every reason has its line, and no cluster is asked."""
    cluster = Cluster()
    told = cluster.run("runbook", "-o", "json").json()
    known = [r.name for check in documented() for r in (*check.reasons, *check.unknown_reasons)]
    assert [row["reason"] for row in told] == known
    assert cluster.api.requests == []


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        pytest.param("Xid79FallenOffBus", "Xid79FallenOffBus", id="the exact name"),
        pytest.param("xid79fallenoffbus", "Xid79FallenOffBus", id="another case"),
        pytest.param("xid79", "Xid79FallenOffBus", id="a beginning"),
        pytest.param("FallenOff", "Xid79FallenOffBus", id="a part"),
    ],
)
def test_runbook_finds_what_is_meant(asked: str, reason: str) -> None:
    """Nobody types a whole reason at night."""
    answer = Cluster().run("runbook", asked)
    assert answer.code == 0
    assert answer.out.startswith(f"{reason} (GpuXidError: ")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        pytest.param("Xid", "fits", id="many reasons"),
        pytest.param("NoSuchThing", "no reason or condition is like 'NoSuchThing'", id="none"),
    ],
)
def test_runbook_says_when_it_cannot_choose(asked: str, words: str) -> None:
    """Several matches or none: one sentence, exit code 2."""
    with pytest.raises(Failure, match=words) as failure:
        choose_reasons(documented(), asked)
    assert failure.value.code is Exit.BAD_USE


def test_runbook_of_a_condition_names_all_its_reasons() -> None:
    """A condition's name gives its own run-book, and a line for every reason, those of Unknown too."""
    answer = Cluster().run("runbook", "gpuxiderror")
    (check,) = (check for check in discover() if check.condition == "GpuXidError")
    assert " ".join(check.runbook.split()) in " ".join(answer.out.split())
    for reason in (*check.reasons, *check.unknown_reasons):
        assert answer.row(f"GpuXidError   {reason.name} ").startswith(f"GpuXidError {reason.name}")


def test_runbook_knows_the_condition_that_the_scheduler_writes() -> None:
    """It is on Nodes like the agents' own, so on-call finds it in the same place."""
    answer = Cluster().run("runbook", "podstartfailing")
    row = answer.row("PodStartFailing   RepeatedStartFailures")
    assert row.startswith("PodStartFailing RepeatedStartFailures True none person NONE Pods fail to start")
    assert "journalctl -u kubelet" in Cluster().run("runbook", "RepeatedStart").out


def test_a_closed_pipe_is_no_error() -> None:
    """`kubectl nodemend runbook | head -1` ends quietly."""
    program = [sys.executable, "-m", "cli", "runbook"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
