"""What the agent knows of its machine at this instant, and the one place where that changes. No IO and no clock.

Owned by one thread. Observations, inventory, clearings and the Node's own account go in; conditions, findings and what is
worth remembering come out. All knowledge belongs to a boot: with a new boot id everything latched is void.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from agent import fabric, node_health
from agent.asked import asked
from agent.asked import published as published_count
from agent.config import Config
from agent.host.inventory import Inventory, InventoryFailed
from agent.host.kmsg import Cursor
from agent.judge import CheckState, Surroundings, is_outdated, judge, remembered, restore
from agent.kubelet_feed import Answer
from agent.offered import POD_RESOURCES, Offers, Watched, cards_of, holders_of, over, restored, take
from agent.parts import Known, identity, learn, parts_of
from agent.publish import standing
from agent.release import switched_off
from agent.sources import note, noted
from agent.state_file import SavedCursor, State
from checks.check import Check, Clearing, MachineFacts
from checks.condition import Condition, Unreadable
from checks.finding import Finding
from checks.last_validated import Validated, validated
from checks.nvml_word import NvmlObservation, in_order
from checks.observation import KERNEL_LOG, NvmlRead, Observation
from kube.nodehealth import (
    NodeHealth,
    NodeHealthSpec,
    PartState,
    Release,
    Released,
    SourceState,
    accepted_at,
)
from kube.store import version_of
from kube.types import Node

BOOT_ID_UNREADABLE = "BootIdUnreadable"


class Judging:
    """The state of all enabled checks of one machine."""

    def __init__(
        self,
        checks: Sequence[Check],
        config: Config,
        *,
        single_look: bool = False,
        looked_at: Sequence[str] = (),
    ) -> None:
        self._single_look = single_look
        self._checks = [check for check in checks if config.check(check.name).enabled]
        self.settings = {
            check.name: {**config.check(check.name).settings, **(check.single_look if single_look else {})}
            for check in self._checks
        }
        self.states: Mapping[str, CheckState] = {check.name: CheckState() for check in self._checks}
        self.sources: Mapping[str, SourceState] = {}
        self.cursor: Cursor | None = None
        self.inventory = Inventory()
        self.inventory_error = ""
        self.known = Known()
        self.nvml: NvmlObservation | None = None
        """What NVML said last in this boot."""
        self.validated: Validated | None = None
        self._accepted: datetime | None = None
        self._resumed_at: datetime | None = None
        """When the state was saved that all memories come from, as long as nothing else was judged."""
        self.offers = Offers()
        self.release: Release | None = None
        self.boot_error = ""
        self.node_uid = ""
        self._seen = ("", 0)
        self.settled: frozenset[str] = frozenset()
        """GPU Operator's labels that have said `false` since this Node was first seen: how it is run, and no work on it."""
        self._watched = Watched(resources=config.kubelet.resources, drivers=config.kubelet.drivers)
        self._around = Surroundings(boot_id="", nvml=config.nvml.enabled, looked_at=tuple(looked_at))

    @property
    def facts(self) -> MachineFacts:
        """What all checks are told of this machine."""
        return MachineFacts(**{name: getattr(self._around, name) for name in MachineFacts.__struct_fields__})

    @property
    def boot_id(self) -> str:
        """The boot that is being judged; empty while it is not known."""
        return self._around.boot_id

    def begin_boot(self, boot_id: str, saved: State | None = None) -> str | None:
        """Begin with nothing latched, or with what was saved in this very boot; say why `saved` was not taken."""
        self._around = msgspec.structs.replace(self._around, boot_id=boot_id, blind=None)
        self.boot_error = ""
        self.cursor = self._resumed_at = None
        self.sources = {}
        self.known, self.nvml = Known(), None
        if self.validated is None and saved is not None:
            self.validated = saved.last_validated
        self.offers = Offers()
        self._recount()
        self.states = {
            name: CheckState(
                condition=state.condition,
                broken=state.broken,
                traceback=state.traceback,
                failures=state.failures,
            )
            for name, state in self.states.items()
        }
        if saved is None or saved.boot_id != boot_id:
            return None
        return self._resume(saved)

    def _resume(self, saved: State) -> str | None:
        states = dict(self.states)
        for check in self._checks:
            memory = saved.memories.get(check.name)
            try:
                known = remembered(check, memory)
            except msgspec.ValidationError as error:
                # With one memory lost, the log must be read again from the start: the others bear that.
                return f"memory of checks/{check.name}: {error}"
            states[check.name] = msgspec.structs.replace(
                states[check.name], memory=known, seen=check.name in saved.seen
            )
        self.states = states
        self.cursor = saved.cursor.cursor() if saved.cursor is not None else None
        self._resumed_at = saved.saved_at
        return None

    def go_on_from(self, position: int | None) -> None:
        """Take the record up to which an earlier run had judged, unless more is known already."""
        held = self.cursor.sequence if self.cursor is not None else -1
        if position is not None and position > held:
            self.cursor = Cursor(boot_id=self.boot_id, sequence=position)

    def cannot_tell_boot(self, why: str) -> bool:
        """Say that the boot id could not be read: nothing can be judged, since no evidence can be dated. True where new."""
        self.boot_error = why
        blind = Unreadable(reason=BOOT_ID_UNREADABLE, message=f"the boot id cannot be read: {why}"[:1024])
        new = self._around.blind != blind
        self._around = msgspec.structs.replace(self._around, blind=blind)
        return new

    def count_parts(self, reading: Inventory | InventoryFailed) -> bool:
        """Take a new reading of the machine's parts; one that failed leaves the last good one standing. True where new."""
        if isinstance(reading, InventoryFailed):
            new = reading.error != self.inventory_error
            self.inventory_error = reading.error
            self._around = msgspec.structs.replace(self._around, bus_error=reading.error)
            return new
        new = reading != self.inventory or bool(self.inventory_error) or not self._around.parts_known
        self.inventory, self.inventory_error = reading, ""
        bus = tuple(part.pci for part in reading.parts)
        self._around = msgspec.structs.replace(self._around, parts_known=True, bus=bus, bus_error="")
        self._recount()
        return new

    @property
    def parts(self) -> tuple[PartState, ...]:
        """What this machine holds, as the inventory and NVML say it together."""
        return parts_of(self.inventory, self.known)

    @property
    def labels(self) -> Mapping[str, str]:
        """The Node's labels as last read."""
        return self._around.labels

    @property
    def cleared_before(self) -> datetime | None:
        """Up to when everything on this node was dealt with."""
        return self._around.cleared_before

    @property
    def clearings(self) -> tuple[Clearing, ...]:
        """Up to when everything on single parts was dealt with."""
        return self._around.clearings

    def hear_kubelet(self, answer: Answer, now: datetime) -> bool:
        """Take what kubelet answered, or that it did not; give whether anything is new for NodeHealth."""
        before, read_before = self.offers, self.sources.get(POD_RESOURCES)
        cards = cards_of(self.inventory, self.known)
        self.offers = take(before, answer, cards, self._watched, now)
        self._recount()
        if self.offers.error or not self.offers.tries:
            self.sources = note(
                self.sources, POD_RESOURCES, readable=not self.offers.error, error=self.offers.error
            )
        new_source = self.sources.get(POD_RESOURCES) != read_before
        return new_source or (before.cards, before.other) != (self.offers.cards, self.offers.other)

    def _recount(self) -> None:
        self._around = msgspec.structs.replace(
            self._around,
            parts=tuple(identity(part) for part in self.parts),
            holders=holders_of(self.parts, self.offers),
            **fabric.counted(self.validated),
        )

    def ask(self, spec: NodeHealthSpec) -> bool:
        """Take NodeHealth.spec as it stands now; give whether anything in it is new."""
        cleared = self.clear(spec.cleared_before)
        self._accepted = accepted_at(spec)
        around = msgspec.structs.replace(self._around, **asked(spec))
        new = cleared or around != self._around or spec.release != self.release
        self._around, self.release = around, spec.release
        return new

    def see(self, node: Node) -> bool:
        """Take the labels of our Node, unless they are older than what was seen of it; give whether they are new.

        The watch and the read of now and then may be answered by different servers, of which one lags behind.
        """
        seen = (node.metadata.uid, version_of(node.metadata.resource_version))
        if seen[0] == self._seen[0] and seen[1] < self._seen[1]:
            return False
        off = switched_off(node.metadata.labels)
        self.settled = self.settled & off if seen[0] == self._seen[0] else off
        self._seen = seen
        if node.metadata.labels == self._around.labels:
            return False
        self._around = msgspec.structs.replace(self._around, labels=node.metadata.labels)
        return True

    def clear(self, cleared_before: datetime | None) -> bool:
        """Take NodeHealth.spec.clearedBefore; give whether that is new."""
        if cleared_before == self._around.cleared_before:
            return False
        self._around = msgspec.structs.replace(self._around, cleared_before=cleared_before)
        return True

    def meet(self, node: Node, health: NodeHealth | None) -> None:
        """Take up what a Node object and its NodeHealth say: conditions as they stand, findings that an earlier run had.

        A Node that is met again is not read back: then our memory is the truth. On another Node object of the same
        machine and boot the faults stand as before, since the kernel said them of the machine; only their publishing
        begins afresh.
        """
        self.see(node)
        if health is not None:
            self.ask(health.spec)
        if node.metadata.uid == self.node_uid:
            return
        first = not self.node_uid
        self.node_uid = node.metadata.uid
        states = {
            check.name: msgspec.structs.replace(
                self.states[check.name], condition=standing(node, check.condition)
            )
            for check in self._checks
        }
        if health is not None:
            if health.status.node_uid == self.node_uid:
                self._validate(fabric.recalled(self.validated, health.status.last_validated))
            latched = node_health.latched(health.status, boot_id=self.boot_id, node_uid=self.node_uid)
            if not self.offers.cards:
                self.offers = restored(health.status, boot_id=self.boot_id, node_uid=self.node_uid)
                self._recount()
            newer = node_health.is_newer(
                health.status, self._resumed_at, self.cursor, boot_id=self.boot_id, node_uid=self.node_uid
            )
            for check in self._checks if first else ():
                ours = [finding for condition, finding in latched if condition == check.condition]
                state = states[check.name]
                if newer and is_outdated(state, ours, self.boot_id):
                    state = msgspec.structs.replace(state, memory=None)
                states[check.name] = restore(check, state, ours, self.boot_id)
        self.states = states

    def judge(
        self,
        observations: Sequence[Observation],
        cursor: Cursor | None,
        now: datetime,
        watched_ms: int | None = None,
    ) -> bool:
        """Run all checks; give whether a condition is another than before. `watched_ms` as in Context."""
        before = self.conditions()
        self._resumed_at = None if observations else self._resumed_at
        self._learn(observations)
        self.states = {
            check.name: judge(
                check,
                self.states[check.name],
                observations,
                self._around,
                self.settings[check.name],
                now,
                watched_ms,
            )
            for check in self._checks
        }
        if not self._single_look:
            self._validate(fabric.learned(self.validated, self.states, self._accepted))
        self.sources = noted(self.sources, observations)
        self.cursor = cursor or self.cursor
        return self.conditions() != before

    def _learn(self, observations: Sequence[Observation]) -> None:
        """Take what NVML says of the parts, and of how many there are while every one of them answers.

        A single look counts nothing for later: its own count must not be what it holds that very count against.
        """
        before = (self.known, self.validated)
        self.known = learn(self.known, observations)
        for heard in in_order(observations):
            self.nvml = heard
            if isinstance(heard, NvmlRead) and not self._single_look:
                self.validated = validated(
                    self.validated,
                    heard,
                    bus=self._around.bus,
                    demanded=self._around.expected,
                    accepted=self._accepted,
                )
        if (self.known, self.validated) != before:
            self._recount()

    def _validate(self, told: Validated | None) -> None:
        """Take what is validated now."""
        if told != self.validated:
            self.validated = told
            self._recount()

    def conditions(self) -> tuple[Condition, ...]:
        """Give the conditions to publish, one for each class that exists here and of which something can be said."""
        return tuple(
            state.condition for state in self.states.values() if state.exists and state.condition is not None
        )

    def kept(self) -> tuple[str, ...]:
        """Give the types that stay on the Node as they are: their class exists and nothing can be said of it yet."""
        return tuple(
            check.condition
            for check in self._checks
            if check.condition
            and self.states[check.name].exists
            and self.states[check.name].condition is None
        )

    def findings(self) -> tuple[tuple[str, Finding], ...]:
        """Give all findings that stand, each with its condition's type, empty for one of a check of warnings alone."""
        return tuple(
            (check.condition, finding)
            for check in self._checks
            for finding in self.states[check.name].findings
        )

    def report(
        self, agent_version: str, published: tuple[str, ...], released: Released | None = None
    ) -> node_health.Report:
        """Say all that NodeHealth is to hold."""
        sequence = self.cursor.sequence if self.cursor is not None else None
        sources = [
            msgspec.structs.replace(source, sequence=sequence) if name == KERNEL_LOG else source
            for name, source in sorted(self.sources.items())
        ]
        if self.inventory_error:
            sources.append(SourceState(name="inventory", readable=False, error=self.inventory_error))
        return node_health.Report(
            node_uid=self.node_uid,
            boot_id=self.boot_id,
            agent_version=agent_version,
            driver=self.known.driver or self.inventory.driver,
            parts=tuple(over(part, self.offers) for part in self.parts),
            other_devices=self.offers.other,
            findings=self.findings(),
            not_evaluated=tuple(row for state in self.states.values() for row in state.not_evaluated),
            sources=tuple(sources),
            published=published,
            released=released,
            last_validated=published_count(self.validated),
            fabric_ports=fabric.fabric_ports(self.states),
        )

    def state(self, now: datetime) -> State:
        """Say all that must survive a restart of the agent."""
        cursor = self.cursor
        return State(
            boot_id=self.boot_id,
            node_uid=self.node_uid,
            cursor=SavedCursor(boot_id=cursor.boot_id, sequence=cursor.sequence)
            if cursor is not None
            else None,
            memories={name: state.memory for name, state in self.states.items()},
            seen=tuple(name for name, state in self.states.items() if state.seen),
            last_validated=self.validated,
            saved_at=now,
        )
