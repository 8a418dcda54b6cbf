"""The agent's judging on a machine that lives, minute by minute, over restarts and reboots, for days.

Every change of every condition is written down. No clock but the simulated one.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta

import msgspec

from agent.judge import CheckState, Surroundings, judge, remembered
from checks.check import Check
from checks.condition import Condition
from checks.finding import Part, PartKind
from checks.infiniband_reading import INFINIBAND
from checks.observation import Observation
from checks.pci_reading import PCI
from tests.agent.living_machine import GPUS, INSTANCE, PORTS, START, STEP_S, World, gpu_pci


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """A condition became another one, `at_s` seconds after the start."""

    at_s: int
    type: str
    status: str
    reason: str


Act = Callable[["Days"], None]


class Days:
    """The agent's judging on a World, minute by minute. `script` says at which second what is done."""

    def __init__(self, checks: Sequence[Check], seed: int, script: Sequence[tuple[int, Act]]) -> None:
        self.world = World(seed)
        self.turns: list[Turn] = []
        self.now_s = 0
        self._checks = checks
        self._script = sorted(script, key=lambda step: step[0])
        self._states = {check.name: CheckState() for check in checks}
        self._boot_id = ""
        self._watched_ms: int | None = 0

    def restart_agent(self) -> None:
        """End the agent and start another on what it saved; conditions stand on the Node meanwhile."""
        for check in self._checks:
            state = self._states[check.name]
            saved = msgspec.json.decode(msgspec.json.encode(state.memory))  # as the state file gives it back
            memory = remembered(check, saved)
            self._states[check.name] = CheckState(memory=memory, seen=state.seen, condition=state.condition)
        self._watched_ms = 0

    def run(self, until_s: int) -> None:
        """Let time pass until then."""
        while self.now_s < until_s:
            self.now_s += STEP_S
            self.world.noise()
            while self._script and self._script[0][0] <= self.now_s:
                self._script.pop(0)[1](self)
            if self.now_s > self.world.off_until_s:
                self._judge(self.world.look(self.now_s))

    def _judge(self, seen: Sequence[Observation]) -> None:
        if self.world.boot_id != self._boot_id:
            self._boot_id = self.world.boot_id
            self._states = {
                name: CheckState(condition=state.condition) for name, state in self._states.items()
            }
            self._watched_ms = 0
        around = Surroundings(
            boot_id=self._boot_id,
            parts=tuple(
                Part(
                    kind=PartKind.GPU,
                    pci=gpu_pci(number),
                    uuid=f"GPU-00000000-0000-0000-0000-{number:012d}",
                    index=number,
                )
                for number in range(GPUS)
            ),
            parts_known=True,
            labels=INSTANCE,
            nvml=True,
            bus=tuple(gpu_pci(number) for number in range(GPUS)),
            looked_at=(PCI, INFINIBAND),
            last_validated=GPUS,
            expected_ports=PORTS,
            expected_rate_mbps=400_000,
            expected_ports_source="policy default",
            holders={f"GPU-00000000-0000-0000-0000-{n:012d}": "team/train-0" for n in range(GPUS)},
        )
        now = START + timedelta(seconds=self.now_s)
        for check in self._checks:
            before = self._states[check.name]
            after = judge(check, before, seen, around, {}, now, self._watched_ms)
            assert not after.broken, after.traceback
            self._states[check.name] = after
            self._note(before.condition, after.condition)
        self._watched_ms = STEP_S * 1000

    def _note(self, before: Condition | None, after: Condition | None) -> None:
        if after is None or (
            before is not None and (before.status, before.reason) == (after.status, after.reason)
        ):
            return
        self.turns.append(
            Turn(at_s=self.now_s, type=after.type, status=after.status.value, reason=after.reason)
        )
