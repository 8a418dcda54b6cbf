"""The rules of leader election on a Lease, pure: what was seen and when goes in, what to do comes out.

Who holds the Lease is judged by the monotonic clock of this process alone: another's claim has run out when *we* have seen
its record unchanged for its whole duration, as client-go does; the times written into the record are for people. Our own
claim ends `renew_deadline` after we *sent* the last renewal that succeeded, which is before anybody else may take it: what
lies between is the time that writes under way have to end.
"""

from datetime import datetime

import msgspec

from kube.types import Lease

SAFETY_S = 1.0
LEAST_WRITE_S = 0.5  # with less than this left, kube.session begins no write

_LEASE = msgspec.json.Decoder(Lease)


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds. Raises ValueError unless retry_period < renew_deadline < lease_duration with room for writes to end.

    Up to the next renewal there must be time for a write, or the leader would lead and do nothing.
    """

    lease_duration: int = 15
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def __post_init__(self) -> None:
        if (
            not 0
            < self.retry_period
            < self.renew_deadline - SAFETY_S - LEAST_WRITE_S
            < self.renew_deadline
            < self.lease_duration
        ):
            raise ValueError(
                f"leader: retry_period {self.retry_period} s, renew_deadline {self.renew_deadline} s, lease_duration "
                f"{self.lease_duration} s: each must be less than the next, the first by more than "
                f"{SAFETY_S + LEAST_WRITE_S} s"
            )


class LeaseView(msgspec.Struct, frozen=True, kw_only=True):
    """A Lease as far as the election goes. The claim is all but `resource_version`, which any label moves too."""

    holder: str
    duration_s: int
    transitions: int
    resource_version: str
    renewed: datetime | None = None

    def claim(self) -> tuple[str, int, int, datetime | None]:
        return (self.holder, self.duration_s, self.transitions, self.renewed)


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """The record as last seen (None: there is none) and when, on our monotonic clock, we first saw it like this."""

    record: LeaseView | None
    since: float


class Create(msgspec.Struct, frozen=True, tag=True):
    """Nobody ever held it: create it in our name."""


class Take(msgspec.Struct, frozen=True, tag=True):
    """Write our name into the record seen; `transitions` is its new count of changes of hands."""

    transitions: int


class Renew(msgspec.Struct, frozen=True, tag=True):
    """We hold it: write the time again."""


class Follow(msgspec.Struct, frozen=True, tag=True):
    """`holder` has it; look again after `seconds`."""

    holder: str
    seconds: float


class Lost(msgspec.Struct, frozen=True, tag=True):
    """We led and must not any longer."""

    why: str


Decision = Create | Take | Renew | Follow | Lost


def observe(before: Observed | None, record: LeaseView | None, now: float) -> Observed:
    """Note what was read: the clock of a record's age starts anew only when its claim changed."""
    known = before.record if before is not None else None
    if before is not None and known is not None and record is not None and known.claim() == record.claim():
        return Observed(record=record, since=before.since)
    return Observed(record=record, since=now)


def step(seen: Observed, me: str, now: float, timing: Timing, renewed_at: float | None) -> Decision:
    """Decide what to do with the record seen. `renewed_at` is when we sent our last good renewal, None if not leading."""
    record = seen.record
    if renewed_at is not None:
        if now - renewed_at >= timing.renew_deadline:
            return Lost(
                f"not renewed for {now - renewed_at:.1f} s, the deadline is {timing.renew_deadline:g} s"
            )
        if record is not None and record.holder != me:
            return Lost(f"{record.holder or 'nobody'} holds the lease now")
        return Create() if record is None else Renew()
    if record is None:
        return Create()
    if record.holder == me:  # the answer to our own write got lost
        return Take(record.transitions)
    ends = seen.since + (record.duration_s or timing.lease_duration)
    if not record.holder or now >= ends:
        return Take(record.transitions + 1)
    return Follow(record.holder, min(timing.retry_period, ends - now))


def budget(renewed_at: float | None, now: float, timing: Timing) -> float:
    """Give the seconds in which a write started now must be over: up to the renew deadline, less a margin; 0 if none."""
    if renewed_at is None:
        return 0.0
    return max(0.0, renewed_at + timing.renew_deadline - SAFETY_S - now)


def view(raw: bytes) -> LeaseView:
    """Read a Lease as the server wrote it. Raises msgspec.MsgspecError."""
    lease = _LEASE.decode(raw)
    return LeaseView(
        holder=lease.spec.holder_identity,
        duration_s=lease.spec.lease_duration_seconds,
        transitions=lease.spec.lease_transitions,
        resource_version=lease.metadata.resource_version,
        renewed=lease.spec.renew_time,
    )
