"""`nodemend-agent capture`: what this machine shows now, as one file that can be sent, replayed and kept as a test.

It holds the raw observations of a few looks, in the order in which they were judged, and what was found in them; names of
people's work and machines are taken out (`agent.redaction`). JSON in lines that a person can read before sending it on.
`read_capture` and `replay_capture` judge it anew by today's rules, on any machine.
"""

import os
import socket
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from agent import sight
from agent.config import Config, StorageSection
from agent.judge import CheckState, Surroundings, judge
from agent.judging import Judging
from agent.redaction import Redactor
from checks.check import Check, MachineFacts
from checks.finding import Finding
from checks.observation import KernelRecord, Observation
from checks.storage_reading import DisksRead, MountsRead
from kube.clock import Clock

FORMAT = 1
MOST_BYTES = 64 * 1024 * 1024


class CaptureUnusable(Exception):
    """A file is no capture that can be read here; the text names it and says why."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What was judged at once, and when."""

    now: datetime
    observations: tuple[Observation, ...] = ()


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """One condition and its findings as they stood when the capture was taken, or stand when it is replayed."""

    condition: str
    check: str
    status: str = ""
    reason: str = ""
    message: str = ""
    findings: tuple[Finding, ...] = ()
    not_evaluated: int = 0


class Capture(msgspec.Struct, frozen=True, kw_only=True):
    """A whole capture. `dropped`: kernel records left out because they may quote a program."""

    format: int = FORMAT
    version: str = ""
    taken: datetime
    machine: MachineFacts
    looks: tuple[Look, ...] = ()
    settings: dict[str, dict[str, Any]] = {}
    found: tuple[Found, ...] = ()
    dropped: int = 0


def take(
    config: Config, checks: Sequence[Check], clock: Clock, *, version: str, looks: int, interval_s: float
) -> Capture:
    """Look at this machine `looks` times, `interval_s` seconds apart, and give what was seen without names."""
    kept: list[Look] = []
    judging = sight.look(
        config,
        checks,
        clock,
        keep=lambda observations, now: kept.append(Look(now=now, observations=tuple(observations))),
        looks=looks,
        interval_s=interval_s,
    )
    return redacted(
        Capture(
            version=version,
            taken=clock.now(),
            machine=judging.facts,
            looks=tuple(look for look in kept if look.observations),
            settings={name: dict(settings) for name, settings in judging.settings.items() if settings},
            found=tuple(_found(check, judging) for check in checks if check.name in judging.states),
        ),
        (config.node_name, socket.gethostname()),
    )


def _found(check: Check, judging: Judging) -> Found:
    return found_in(check, judging.states[check.name])


def found_in(check: Check, state: CheckState) -> Found:
    """Give what a check has to say, in the words of its condition."""
    condition = state.condition
    return Found(
        condition=check.condition,
        check=check.name,
        status=condition.status if condition is not None else "",
        reason=condition.reason if condition is not None else "",
        message=condition.message if condition is not None else state.not_yet,
        findings=state.findings,
        not_evaluated=len(state.not_evaluated),
    )


def redacted(capture: Capture, hosts: Sequence[str]) -> Capture:
    """Take the names out of it; `hosts` are this machine's own, which count with and without their domain."""
    names = {name: "node" for host in hosts for name in (host, host.partition(".")[0])}
    redactor = Redactor({**names, **_mounts(capture)})
    looks = []
    for look in capture.looks:
        observations: list[Any] = []
        for seen in look.observations:
            if isinstance(seen, KernelRecord):
                text = redactor.kernel_text(seen.text)
                if text is None:
                    continue
                seen = msgspec.structs.replace(seen, text=text)
            observations.append(redactor.value(msgspec.to_builtins(seen)))
        looks.append({"now": look.now, "observations": observations})
    machine = msgspec.to_builtins(
        msgspec.structs.replace(capture.machine, labels=redactor.labels(capture.machine.labels))
    )
    # Twice: a condition's message stands before the finding whose fields say which words of it are names.
    found = [redactor.value(msgspec.to_builtins(capture.found)) for _ in range(2)][-1]
    plain = {
        **msgspec.to_builtins(msgspec.structs.replace(capture, looks=(), machine=MachineFacts(boot_id=""))),
        "looks": looks,
        "machine": redactor.value(machine),
        "found": found,
        "dropped": redactor.dropped,
    }
    return msgspec.convert(plain, type=Capture)


def _mounts(capture: Capture) -> dict[str, str]:
    """Give other names for what people called their mounts; where every machine has one, it keeps its own."""
    seen = [one for look in capture.looks for one in look.observations]
    mounts = [mount for read in seen if isinstance(read, MountsRead) for mount in read.mounts]
    mounts += [mount for read in seen if isinstance(read, DisksRead) for mount in read.local]
    paths = sorted({mount.path for mount in mounts} - {*StorageSection().local})
    return {path: f"/mount-{number}" for number, path in enumerate(paths, 1)}


def write(capture: Capture, path: Path) -> None:
    """Write it whole or not at all. Raises OSError."""
    text = msgspec.json.format(msgspec.json.encode(capture), indent=1)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text + b"\n")
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def as_text(capture: Capture, path: Path) -> str:
    """Say what was written, and ask for a look at it before it is sent."""
    faults = [f"{one.condition} {one.status} {one.reason}" for one in capture.found if one.status == "True"]
    out = f"and {capture.dropped} records of the kernel log that may quote programs"
    lines = [
        f"{path}: {sum(len(look.observations) for look in capture.looks)} observations in {len(capture.looks)} looks",
        f"found: {'; '.join(faults) if faults else 'no fault'}",
        f"Names of nodes, pods, processes, addresses and serial numbers are taken out, {out}.",
        "Read it before you send it. It is judged anew by: nodemend-agent replay FILE",
    ]
    return "\n".join(lines)


BEGINNING = 200
"""How many bytes tell a capture from a log."""


def is_capture(beginning: bytes) -> bool:
    """Tell by a file's first bytes whether it is a capture and no log."""
    return beginning.lstrip()[:1] == b"{" and b'"format"' in beginning[:BEGINNING]


def read_capture(path: Path) -> Capture:
    """Read one. Raises CaptureUnusable for what cannot be read or is none."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise CaptureUnusable(f"{path}: {error.strerror or error}") from error
    if len(data) > MOST_BYTES:
        raise CaptureUnusable(f"{path}: is larger than {MOST_BYTES} bytes")
    try:
        capture = msgspec.json.decode(data, type=Capture)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise CaptureUnusable(f"{path}: is no capture: {error}") from error
    if capture.format != FORMAT:
        raise CaptureUnusable(f"{path}: has format {capture.format}; this version reads {FORMAT}")
    return capture


def replay_capture(capture: Capture, checks: Sequence[Check]) -> tuple[Found, ...]:
    """Judge a capture by these checks, look by look, as the agent would have."""
    around = Surroundings(
        **{name: getattr(capture.machine, name) for name in MachineFacts.__struct_fields__}, parts_known=True
    )
    states = {check.name: CheckState() for check in checks}
    for look in capture.looks:
        states = {
            check.name: judge(
                check,
                states[check.name],
                look.observations,
                around,
                capture.settings.get(check.name, {}),
                look.now,
            )
            for check in checks
        }
    return tuple(found_in(check, states[check.name]) for check in checks)
