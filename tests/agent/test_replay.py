"""What a replay says of lines of every kind, and of a file as a whole; real lines too, where a folder with them is given."""

import csv
import gzip
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.capture import Capture, Found, write
from agent.replay import Verdict, capture_lines, log_lines, replay
from agent.saved_log import saved_lines
from checks.check import MachineFacts
from checks.finding import Part, PartKind
from checks.host import CHECK as HOST

ROOT = Path(__file__).parent.parent.parent
OUTSIDE_CASES = os.environ.get("NODEMEND_OUTSIDE_CASES", "")
SAMPLES = "xid-samples.tsv"
COLUMNS = ("line", "codes", "pci", "mig", "link", "action", "rst", "continuation")
UUID = "GPU-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
PROBE = (
    "NVRM: The NVIDIA GPU 0000:5d:00.0",
    "NVRM: (PCI ID: 10de:2330) installed in this system has",
    "NVRM: fallen off the bus and is not responding to commands.",
)


def verdicts(content: bytes) -> list[Verdict]:
    return list(replay(saved_lines(io.BytesIO(content))))


def verdict(line: str) -> Verdict:
    (only,) = verdicts(line.encode() + b"\n")
    return only


def xid(code: int, text: str = "", where: str = "PCI:0000:3b:00") -> str:
    return f"NVRM: Xid ({where}): {code}, {text}"


def sxid(code: int, text: str) -> str:
    return f"nvidia-nvswitch2: SXid (PCI:0000:c4:00.0): {code:05d}, {text}"


@pytest.mark.parametrize(
    ("line", "codes", "said"),
    [
        pytest.param(
            xid(13, "pid=7, name=a: b, Graphics Exception"), "13", {"action": "RESTART_APP"}, id="a program's"
        ),
        pytest.param(
            xid(13, "Ch 1", "PCI:0000:3b:00 GPU-I:05 GPU-CI:01"),
            "13",
            {"action": "RESTART_APP", "mig": "5/1"},
            id="MIG, both instances",
        ),
        pytest.param(
            xid(94, "Contained: SM (0x1). RST: No, D-RST: No", "PCI:0000:3b:00 GPU-I:05"),
            "94",
            {"action": "RESTART_APP", "mig": "5", "rst": "No"},
            id="MIG, one instance",
        ),
        pytest.param(
            xid(95, "pid=7, Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No"),
            "95",
            {"action": "RESET_GPU", "rst": "Yes"},
            id="uncontained",
        ),
        pytest.param(
            xid(149, "NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000 0x00000000 0x00000000)"),
            "149",
            {"action": "RESET_GPU", "link": "-1"},
            id="NVLink 5, no single link",
        ),
        pytest.param(
            xid(
                145, "pid=7, name=ray::W, RLW_RXPIPE Nonfatal XC0 i0 Link 12 (0x040980c2 0x00000008 0x1 0x0)"
            ),
            "145",
            {"action": "IGNORE", "link": "12"},
            id="NVLink 5, of a program",
        ),
        pytest.param(
            xid(146, "TLW_RX_PIPE1 Nonfatal XC0 i0 Link 03 (0x00000010 0x00000020 0x0 0x0)"),
            "146",
            {"action": "UNKNOWN", "link": "3"},
            id="NVLink 5, no rule",
        ),
        pytest.param(xid(154, "GPU recovery action"), "154", {"action": "UNKNOWN"}, id="a wish cut off"),
        pytest.param(
            xid(154, "GPU recovery action changed from 0x0 (None) to 0x5 (Recover IMEX Domain)"),
            "154",
            {"action": "UNKNOWN"},
            id="a wish that is about no GPU",
        ),
        pytest.param(
            xid(999, "new"), "999", {"action": "UNKNOWN_CODE", "reason": "XidUnknownCode"}, id="a new code"
        ),
        pytest.param(
            xid(74, "NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000)"),
            "74",
            {"action": "WORKFLOW_NVLINK_ERR", "link": "14"},
            id="NVLink 4",
        ),
        pytest.param(
            "\\n".join(PROBE),
            "79",
            {"action": "RESTART_BM", "pci": "0000:5d:00"},
            id="a probe, joined by hand",
        ),
        pytest.param(
            "\\n[   12.5] ".join(PROBE),
            "79",
            {"action": "RESTART_BM", "pci": "0000:5d:00"},
            id="a probe, joined by hand with the time of each",
        ),
        pytest.param(
            f"NVRM: GPU at PCI:0000:3b:00: {UUID}\\n{xid(79, 'GPU has fallen off the bus.')}",
            "79",
            {"action": "RESTART_BM"},
            id="two records, joined by hand",
        ),
        pytest.param(
            xid(31, "pid=9, name=a\\nNVRM: Xid (, Ch 00000008"),
            "31",
            {"action": "RESTART_APP"},
            id="a process that names itself like the joint",
        ),
        pytest.param(f"NVRM: GPU at PCI:0000:3b:00: {UUID}", "", {"pci": "0000:3b:00"}, id="who a GPU is"),
        pytest.param("NVRM: Xid (...)", "", {"pci": "", "reason": "XidLineUnreadable"}, id="no place"),
        pytest.param(f"x[1]: segfault {xid(79)}", "", {"pci": ""}, id="another's words before the driver's"),
        pytest.param(
            sxid(20034, "Fatal, Link 48 LTSSM Fault Up"),
            "SXID20034",
            {"pci": "0000:c4:00.0", "link": "48", "reason": "SxidLinkFatal"},
            id="a switch",
        ),
        pytest.param(
            sxid(10002, "Severity 5 Engine instance 00 Sub-engine instance 00"),
            "",
            {"pci": "0000:c4:00.0", "continuation": "SXID10002"},
            id="a switch goes on",
        ),
        pytest.param(
            sxid(26008, "SOE Watchdog error"),
            "SXID26008",
            {"pci": "0000:c4:00.0"},
            id="a switch, no link, no word",
        ),
        pytest.param("", "", {"pci": ""}, id="nothing"),
    ],
)
def test_what_a_line_says(line: str, codes: str, said: dict[str, str]) -> None:
    """Bare, and behind the prefixes of tools."""
    expected = {
        "pci": "0000:3b:00",
        "mig": "",
        "link": "",
        "action": "",
        "rst": "",
        "continuation": "",
        **said,
    }
    for prefix in ("", "[    1.000000] ", "kern  :warn  : [Tue Mar  5 16:02:13 2019] ", "4,1,2,-;"):
        found = verdict(prefix + line)
        assert ",".join(found.codes) == codes
        assert {name: getattr(found, name) for name in expected} == expected
        assert found.line == prefix + line


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(PROBE, id="bare"),
        pytest.param(tuple(f"[17257.355375] {part}" for part in PROBE), id="dmesg, a prefix each"),
        pytest.param(
            (f"[ 1843.308145] {PROBE[0]}", *(" " * 15 + part for part in PROBE[1:])), id="dmesg, indented"
        ),
        pytest.param(
            (f"Mar 07 19:30:42 p51 kernel: {PROBE[0]}", *(" " * 28 + part for part in PROBE[1:])),
            id="journal, indented",
        ),
        pytest.param(
            tuple(f"4,{n},81,-;{part}\n SUBSYSTEM=pci" for n, part in enumerate(PROBE)), id="raw records"
        ),
    ],
)
def test_a_message_of_several_records_is_one(lines: tuple[str, ...]) -> None:
    """The last one tells which GPU fell."""
    found = [one for one in verdicts("\n".join(lines).encode()) if one.says_something]
    assert [(one.codes, one.pci, one.action) for one in found] == [(("79",), "0000:5d:00", "RESTART_BM")]


def test_the_second_line_of_another_record_says_nothing() -> None:
    """A process can write a line feed into a message of the kernel."""
    content = f"[    1.0] tmpfs: Unknown parameter 'x\n           {xid(79)}'\n{xid(46)}\n".encode()
    assert [one.codes for one in verdicts(content)] == [(), (), ("46",)]


def test_what_the_kernel_did_not_write_raises_nothing() -> None:
    """It is read, and has no reason: such a line raises none in the agent either."""
    found = verdict(f"12,7,81,-;{xid(79)}")
    assert (found.codes, found.reason) == (("79",), "")


@given(st.lists(st.text() | st.sampled_from([xid(149, "NETIR Fatal"), sxid(20034, "Fa"), *PROBE])))
def test_no_text_raises_and_no_line_is_lost(lines: list[str]) -> None:
    """One verdict for each line of any file that is no export of the journal."""
    content = "\n".join(lines).encode(errors="replace")
    if not content.lstrip().startswith((b"_", b"MESSAGE", b"PRIORITY", b"SYSLOG_")):
        assert len(verdicts(content)) == len(content.split(b"\n")) - content.endswith(b"\n") - (not content)


def test_json_has_an_object_for_each_line() -> None:
    """With the keys that readers of it know, in their order."""
    lines = saved_lines(io.BytesIO(f"{xid(79)}\n\nother\n".encode()))
    objects: list[dict[str, Any]] = [json.loads(line) for line in log_lines(lines, "json")]
    assert [tuple(one) for one in objects] == [(*COLUMNS, "reason")] * 3
    assert [one["codes"] for one in objects] == [["79"], [], []]


def test_the_table_shows_what_says_something() -> None:
    """And how much was read."""
    lines = list(
        log_lines(saved_lines(io.BytesIO(f"other\n{xid(79)}\n{sxid(1, 'Data {0x1}')}\n".encode())), "table")
    )
    assert [line.split()[:2] for line in lines[1:-1]] == [["2", "79"], ["3", "(SXID1)"]]
    assert lines[-1] == "3 lines read, 2 shown"


def test_a_capture_shows_then_and_now() -> None:
    """Each condition as it stood when it was taken, and as today's rules see it."""
    then = Found(condition="GpuXidError", check="xid", status="False", reason="NoXidError", message="none")
    now = msgspec.structs.replace(then, status="True", reason="Xid79FallenOffBus")
    kept = Capture(taken=datetime(2026, 1, 1, tzinfo=UTC), machine=MachineFacts(boot_id="b"), found=(then,))
    table = list(capture_lines(kept, [now, Found(condition="GpuMissing", check="gpu-missing")], "table"))
    assert table[1].split() == ["GpuXidError", "False", "NoXidError", "True", "Xid79FallenOffBus", "none"]
    assert table[2].split() == ["GpuMissing", "-", "-"]
    warning = HOST.reasons[0].found_on(
        Part(kind=PartKind.NODE), "b", first_seen=kept.taken, last_seen=kept.taken
    )
    (_, warned) = capture_lines(kept, [Found(condition="", check="host", findings=(warning,))], "table")
    assert warned.split() == ["host", "-", warning.reason], "a class of warnings alone has no condition"
    (as_json,) = capture_lines(kept, [now], "json")
    assert json.loads(as_json)["reason"] == "Xid79FallenOffBus"


def run(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "agent", "replay", *arguments]
    return subprocess.run(command, cwd=ROOT, input=stdin, capture_output=True, timeout=60, check=False)


def test_the_program_reads_files_and_standard_input(tmp_path: Path) -> None:
    """Plain or compressed, without any configuration; exit 0 whatever it holds."""
    log = tmp_path / "dmesg.gz"
    log.write_bytes(gzip.compress(xid(79).encode() + b"\n\xff\x00garbage\n"))
    done = run(str(log), "--output", "json")
    assert (done.returncode, done.stderr) == (0, b"")
    assert [json.loads(line)["codes"] for line in done.stdout.splitlines()] == [["79"], []]
    done = run("-", stdin=xid(46).encode())
    assert (done.returncode, b"Xid46GpuTimeout" in done.stdout) == (0, True)


def test_the_program_judges_a_capture(tmp_path: Path) -> None:
    """By its content, not by its name."""
    file = tmp_path / "report"
    write(Capture(taken=datetime(2026, 1, 1, tzinfo=UTC), machine=MachineFacts(boot_id="b")), file)
    done = run(str(file))
    assert (done.returncode, b"GpuXidError" in done.stdout) == (0, True), done.stderr


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        pytest.param("missing", None, b"missing cannot be read: No such file", id="no such file"),
        pytest.param(
            "log.gz", gzip.compress(b"x" * 9999)[:40], b"log.gz cannot be read: Compressed file", id="cut"
        ),
        pytest.param("report", b'{"format": 1, "looks": 3}', b"report: is no capture", id="a broken capture"),
        pytest.param(".", None, b"cannot be read: Is a directory", id="a folder"),
    ],
)
def test_what_cannot_be_read_is_said_in_a_sentence(
    tmp_path: Path, name: str, content: bytes | None, said: bytes
) -> None:
    """Exit 2, no traceback."""
    file = tmp_path / name
    if content is not None:
        file.write_bytes(content)
    done = run(str(file))
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def samples() -> Iterator[dict[str, str]]:
    with (Path(OUTSIDE_CASES) / SAMPLES).open(encoding="utf-8", newline="") as opened:
        yield from csv.DictReader(opened, delimiter="\t", quoting=csv.QUOTE_NONE, restval="")


@pytest.mark.skipif(not OUTSIDE_CASES, reason=f"NODEMEND_OUTSIDE_CASES names no folder with {SAMPLES}")
def test_every_sample_comes_out_as_it_should() -> None:
    """In every column; one after the other and each alone."""
    wanted = [{name: sample[name] for name in COLUMNS} for sample in samples()]
    assert wanted, "the file of samples is empty"
    together = verdicts("".join(sample["line"] + "\n" for sample in wanted).encode())
    for sample, found in zip(wanted, together, strict=True):
        assert {name: getattr(found, name) for name in COLUMNS} | {"codes": ",".join(found.codes)} == sample
        assert verdict(sample["line"]) == found
