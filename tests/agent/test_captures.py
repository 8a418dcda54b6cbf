"""Every capture in tests/captures, among them users' reports: judged by today's rules it comes to what the file says."""

import msgspec
import pytest

from agent.capture import Found, read_capture, replay_capture
from checks.check import discover
from tests.agent.captured import FAULTS, FOLDER, captured

FILES = sorted(FOLDER.glob("*.json"))
CHECKS = discover()


def told(found: tuple[Found, ...]) -> list[str]:
    """Say each condition, and each finding with its part and detail, one a line."""
    lines = []
    for one in found:
        lines.append(f"{one.check}: {one.condition} {one.status} {one.reason}: {one.message}")
        lines += [
            f"{one.check}: {'drill ' if f.drill else ''}{f.reason} on {f.part.shown()} ({f.detail}) {f.effect} {f.urgency}"
            for f in one.findings
        ]
    return sorted(lines)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.stem))
def test_a_capture_is_judged_as_it_says(path: object) -> None:
    """A rule that changes what was found has to change the file, and the change be read."""
    capture = read_capture(FOLDER / str(path))
    assert told(replay_capture(capture, CHECKS)) == told(capture.found)


@pytest.mark.parametrize(
    ("name", "reasons"),
    [
        pytest.param(
            "gpu-lost",
            {"Xid79FallenOffBus", "GpuLost", "RowRemapPending"},
            id="a GPU off the bus, a row pending",
        ),
        pytest.param("ports-bad", {"PortDown", "RateBelowExpected"}, id="ports down and slow"),
        pytest.param("storage-bad", {"MountHung", "NvmeCritical"}, id="a hung mount and a failing disk"),
    ],
)
def test_the_faults_of_our_own_are_found(name: str, reasons: set[str]) -> None:
    """So that a file that says nothing is no test."""
    found = read_capture(FOLDER / f"{name}.json").found
    assert {f.reason for one in found for f in one.findings if f.severity == "Fault"} == reasons


@pytest.mark.parametrize("name", FAULTS)
def test_no_name_is_left_in_them(name: str) -> None:
    """They are published with the sources."""
    for text in (msgspec.json.encode(captured(name)).decode(), (FOLDER / f"{name}.json").read_text()):
        words = ("acme", "vision", "filer", "10.20.30", "S4YPNE", "16509230", "gpu-17", "4242")
        assert [word for word in words if word in text] == []
