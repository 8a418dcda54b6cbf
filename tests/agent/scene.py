"""A small agent to test with: a check that understands three words, a machine in a folder, a fake API server, a fake clock.

The check latches `FAULT reason part` and counts `WARN reason part`; `CRASH` breaks it. It is not the xid check, so that
these tests say what the agent does, whatever a check is about.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from agent.config import Config, NvmlSection, RootsSection
from agent.host.inventory import Gpu, Inventory, InventoryFailed
from agent.host.kmsg import Cursor
from agent.kubelet_feed import Answer
from agent.runtime import Agent
from checks.check import Check, Context, Judgement
from checks.condition import Healthy, Unreadable
from checks.finding import Action, Effect, Finding, Part, PartKind, Reason, Severity, Urgency
from checks.observation import KERNEL_LOG, KernelRecord, Observation, SourceFailed, SourceRead
from kube import paths
from tests.fakes import FakeApi, FakeClock

BOOT = "boot-1"
NODE = "gpu-1"
TYPE = "GateFault"


class GateMemory(msgspec.Struct, frozen=True, kw_only=True):
    findings: tuple[Finding, ...] = ()
    was_read: bool = False
    failed: str = ""


def finding(
    reason: str = "GateStuck",
    part: str = "0000:01:00",
    *,
    severity: Severity = Severity.FAULT,
    boot_id: str = BOOT,
    at: datetime,
    count: int = 1,
    evidence: tuple[str, ...] = (),
) -> Finding:
    """Build a finding of the gate check."""
    fault = severity is Severity.FAULT
    return Finding(
        reason=reason,
        severity=severity,
        effect=Effect.NODE_OUT if fault else Effect.NONE,
        urgency=Urgency.NOW if fault else Urgency.WHEN_IDLE,
        action=Action.REBOOT if fault else Action.NONE,
        part=Part(kind=PartKind.NODE) if part == "node" else Part(kind=PartKind.GPU, pci=part),
        boot_id=boot_id,
        first_seen=at,
        last_seen=at,
        count=count,
        evidence=evidence,
    )


def _judge(observations: Sequence[Observation], memory: Any, context: Context) -> Judgement:
    held = memory if isinstance(memory, GateMemory) else GateMemory()
    standing = {f.key(): f for f in held.findings if f.boot_id == context.boot_id}
    was_read, failed = held.was_read, held.failed
    for seen in observations:
        match seen:
            case KernelRecord(text=text):
                was_read, failed = True, ""
                _take(text.split(), seen, standing)
            case SourceRead():
                was_read, failed = True, ""
            case SourceFailed(error=error, tries=tries) if tries >= 3:
                failed = error
            case _:
                pass
    if context.cleared_before is not None:
        cleared = context.cleared_before
        standing = {key: f for key, f in standing.items() if f.last_seen > cleared}
    after = GateMemory(findings=tuple(standing.values()), was_read=was_read, failed=failed)
    unreadable = Unreadable(reason="GateUnreadable", message=failed) if failed else None
    not_yet = "" if was_read or failed else "the gate has not been read yet"
    return Judgement(findings=after.findings, unreadable=unreadable, not_yet=not_yet, memory=after)


def _take(words: list[str], seen: KernelRecord, standing: dict[tuple[str, str], Finding]) -> None:
    match words:
        case ["CRASH"]:
            raise ValueError("the gate cannot bear this line")
        case [("FAULT" | "WARN") as kind, reason, part]:
            severity = Severity.FAULT if kind == "FAULT" else Severity.WARNING
            new = finding(reason, part, severity=severity, boot_id=seen.boot_id, at=seen.seen_at)
            held = standing.get(new.key())
            if held is not None:
                new = msgspec.structs.replace(
                    held, last_seen=new.last_seen, count=held.count + 1, evidence=(seen.text,)
                )
            standing[new.key()] = new
        case ["OVER", reason, part]:
            standing.pop(finding(reason, part, boot_id=seen.boot_id, at=seen.seen_at).key(), None)
        case _:
            pass


def _restore(findings: Sequence[Finding], memory: Any) -> GateMemory:
    held = memory if isinstance(memory, GateMemory) else GateMemory()
    standing = {f.key(): f for f in held.findings}
    for new in findings:
        old = standing.get(new.key(), new)
        standing[new.key()] = new if new.last_seen > old.last_seen else old
    return msgspec.structs.replace(held, findings=tuple(standing.values()))


GATE = Check(
    name="gate",
    condition=TYPE,
    healthy=Healthy(reason="GateMoves", message="the gate moves"),
    reasons=(
        Reason(
            name="GateStuck",
            severity=Severity.FAULT,
            effect=Effect.NODE_OUT,
            urgency=Urgency.NOW,
            action=Action.REBOOT,
            summary="The gate is stuck.",
            runbook="Oil it.",
        ),
    ),
    judge=_judge,
    applies=lambda parts: any(part.kind is PartKind.GPU for part in parts),
    memory_type=GateMemory,
    runbook="The gate.",
    default_settings={"limit": 3},
    restore=_restore,
)

GPU = Part(kind=PartKind.GPU, pci="0000:01:00", uuid="GPU-1", index=0)


def inventory(gpus: int = 1) -> Inventory:
    """Give an inventory of that many GPUs."""
    return Inventory(
        gpus=tuple(
            Gpu(part=Part(kind=PartKind.GPU, pci=f"0000:{number + 1:02x}:00", index=number))
            for number in range(gpus)
        ),
        driver="580.95.05",
    )


class ScriptedFeed:
    """A Feed that hands over what a test put in, without a thread."""

    def __init__(self) -> None:
        self.began: list[tuple[str, Cursor | None]] = []
        self.begun = False
        self.hangs = 0.0
        self._waiting: list[Observation] = []
        self._cursor: Cursor | None = None

    def begin(self, boot_id: str, cursor: Cursor | None) -> None:
        self.began.append((boot_id, cursor))
        self.begun = True

    def end(self) -> None:
        self.begun = False
        self._waiting = []

    def put(self, observation: Observation) -> None:
        self._waiting.append(observation)
        if isinstance(observation, KernelRecord):
            self._cursor = Cursor(boot_id=observation.boot_id, sequence=observation.sequence)

    def take(self) -> tuple[list[Observation], Cursor | None]:
        taken, self._waiting = self._waiting, []
        return taken, self._cursor if taken else None

    def hangs_s(self, now: float) -> float:  # noqa: ARG002 - the Protocol's signature
        return self.hangs


class ScriptedKubelet:
    """A Kubelet that gives the answers a test put in, one a round, without a thread."""

    def __init__(self) -> None:
        self.begun = False
        self.asked_soon = 0
        self._waiting: list[Answer] = []

    def begin(self) -> None:
        self.begun = True

    def end(self) -> None:
        self.begun = False

    def put(self, answer: Answer) -> None:
        self._waiting.append(answer)

    def take(self) -> Answer | None:
        return self._waiting.pop(0) if self._waiting else None

    def soon(self) -> None:
        self.asked_soon += 1


class Scene:
    """One node in a fake cluster and its agent, moved step by step."""

    def __init__(
        self,
        folder: Path,
        *,
        config: Config | None = None,
        checks: Sequence[Check] = (GATE,),
        gpus: int = 1,
        node: bool = True,
        crd: bool = True,
    ) -> None:
        self.clock = FakeClock()
        self.api = FakeApi(self.clock)
        self.folder = folder
        self.set_boot(BOOT)
        self.config = config or Config(
            node_name=NODE,
            listen="",
            state_dir=folder / "state",
            roots=RootsSection(proc=folder / "proc", sys=folder / "sys"),
            nvml=NvmlSection(enabled=False),
        )
        self.checks = checks
        self.inventory: Inventory | InventoryFailed = inventory(gpus)
        self.sequence = 0
        self.crd = crd
        if node:
            self.add_node()
        self.start()

    def start(self) -> None:
        """Start the agent, or a new one on the same machine, as after a kill -9."""
        self.feed = ScriptedFeed()
        self.kubelet = ScriptedKubelet()
        self.agent = Agent(
            self.config,
            self.api,
            self.clock.clock,
            checks=self.checks,
            random=Random(1),
            feed=self.feed,
            kubelet=self.kubelet,
            probes=(),
            inventory=lambda: self.inventory,
        )
        self.agent.load()

    def add_node(self, uid: str = "uid-1") -> None:
        self.api.add(paths.nodes(), {"metadata": {"name": NODE, "uid": uid}, "status": {"conditions": []}})

    def set_boot(self, boot_id: str) -> None:
        path = self.folder / "proc/sys/kernel/random/boot_id"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(boot_id + "\n")

    def line(self, text: str, boot_id: str = BOOT) -> None:
        """Let the kernel write a line and the reader read it."""
        self.sequence += 1
        self.feed.put(
            KernelRecord(
                boot_id=boot_id,
                sequence=self.sequence,
                facility=0,
                level=4,
                monotonic_us=self.sequence,
                seen_at=self.clock.now(),
                text=text,
            )
        )

    def read(self) -> None:
        """Let the reader reach the end of the log."""
        self.feed.put(SourceRead(source=KERNEL_LOG, seen_at=self.clock.now()))

    def fail(self, error: str = "no such device", tries: int = 3) -> None:
        self.feed.put(SourceFailed(source=KERNEL_LOG, error=error, tries=tries, seen_at=self.clock.now()))

    def go(self, rounds: int = 3) -> None:
        """Let the loop and the writer go round, each after the other, at one instant."""
        for _ in range(rounds):
            self.agent.tick()
            self.agent.write()

    def wait(self, seconds: float, step: float = 1.0) -> None:
        """Let time pass, and both go round each second."""
        left = seconds
        while left > 0:
            self.clock.advance(min(step, left))
            left -= step
            self.go(rounds=1)

    def begun(self) -> "Scene":
        """Read the Node and the log, and publish the first time."""
        self.go()
        self.read()
        self.go()
        return self

    def condition(self, condition_type: str = TYPE) -> dict[str, Any]:
        """Give a condition as it stands on the Node, {} for none."""
        conditions = self.api.read(paths.node(NODE))["status"].get("conditions") or []
        return next((c for c in conditions if c["type"] == condition_type), {})

    def shown(self, condition_type: str = TYPE) -> tuple[str, str]:
        """Give status and reason of a condition on the Node."""
        held = self.condition(condition_type)
        return held.get("status", ""), held.get("reason", "")

    def health(self) -> dict[str, Any]:
        return self.api.read(paths.node_health(NODE))

    def findings(self) -> list[str]:
        """Give the reasons in NodeHealth, in its order."""
        return [row["reason"] for row in self.health()["status"]["findings"]]

    def counts(self) -> dict[str, int]:
        """Give how often each reason was seen, as NodeHealth says."""
        return {row["reason"]: row["count"] for row in self.health()["status"]["findings"]}

    def patches(self) -> int:
        """Count the patches of the Node's status."""
        return sum(w.path == paths.node_status(NODE) for w in self.api.writes())

    def health_writes(self) -> int:
        return sum("nodehealths" in w.path for w in self.api.writes())


def since(clock: FakeClock, seconds: float) -> datetime:
    """Give the instant so many seconds ago."""
    return clock.now() - timedelta(seconds=seconds)
