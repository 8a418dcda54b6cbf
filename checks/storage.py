"""Shared file systems that jobs live on: not mounted, hanging, failing, read-only or slow.

**What it means.** A job whose data set or home directory is not there dies, or hangs in uninterruptible sleep, where nothing
ends it. The message names the mount and what is mounted there.

**How it is detected.** Only mounts that `[storage] mounts` of agent.toml names are looked at: `"/data"`, or `"/home:ro"`
where it may be read-only. `/proc/1/mountinfo` says whether something is mounted there and how; each mount that is there is
looked at by a child process of its own (the numbers of the file system, one entry of its directory, a file written where
`write_probe` is on), below the host's own root directory. A child that is late is killed, and no second one is begun while
it cannot be ended: that mount goes on hanging. A mount that hangs for `hung_seconds`, or fails or is missing for
`confirm_seconds`, is a fault; findings end when the mount was well for `clear_seconds`. Slow is an answer that takes
`slow_ms` for `slow_seconds` (a warning) or `very_slow_ms` for `very_slow_seconds`.

**What nodemend does.** It keeps new work off the node, lets what runs finish, and reboots it, since a reboot mounts what is
missing and frees what hangs. A mount that is read-only or slow is a person's. A server that is down shows on many nodes at
once: then the breaker trips, nothing is drained or rebooted, and one page says so.

**What on-call does.** Read the reason's own text. Look at the server first where more than one node shows it.

**Unknown** (SharedStorageUnreadable) after three looks that could not be made or said nothing.

**Not evaluated**, and no condition at all, where no mount is configured or `[storage] enabled = false`.
"""

import errno
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from checks.check import Check, Context, Judgement, NotEvaluated
from checks.condition import Healthy
from checks.finding import Finding, Part, PartKind, Reason
from checks.observation import Observation, SourceFailed
from checks.polled import Polled, PolledMemory, Rule, Said, Word, restored
from checks.storage_reading import MOUNTS, MountReading, MountsRead
from checks.storage_reasons import (
    MOUNT_FAILED,
    MOUNT_HUNG,
    MOUNT_MISSING,
    MOUNT_READ_ONLY,
    MOUNT_SLOW,
    MOUNT_VERY_SLOW,
    REASONS,
    STORAGE_UNREADABLE,
)

NAME = "storage"
NONE_NAMED = "no shared mount is looked at: [storage] mounts names none, or [storage] enabled is false"
# What a client says of a server, an export or a connection that is gone (errno(3)).
BROKEN = {
    errno.EIO,
    errno.ENXIO,
    errno.ENODEV,
    errno.ESTALE,
    errno.ENOTCONN,
    errno.ESHUTDOWN,
    errno.ECONNREFUSED,
    errno.ECONNRESET,
    errno.ECONNABORTED,
    errno.ETIMEDOUT,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.EREMOTEIO,
    errno.ENOLINK,
    errno.EUCLEAN,
}


class StorageMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept between judgements."""

    polled: PolledMemory | None = None


def judge(observations: Sequence[Observation], memory: Any, context: Context) -> Judgement:
    """Judge every mount that is looked at. Never raises for any observation."""
    if MOUNTS not in context.looked_at:
        row = NotEvaluated(check=NAME, part="node", why=NONE_NAMED)
        return Judgement(exists=False, not_evaluated=(row,), memory=memory)
    kept = memory if isinstance(memory, StorageMemory) else StorageMemory()
    polled = Polled(NAME, REASONS, _rules(context.settings), kept.polled, context)
    for seen in observations:
        match seen:
            case MountsRead(mounts=()):
                polled.fail("no mount was looked at")
            case MountsRead(mounts=mounts):
                polled.hear(word for mount in mounts for word in _words(mount, context.settings))
            case SourceFailed(source=source, error=error, tries=tries) if source == MOUNTS:
                polled.fail(error, tries)
            case _:
                pass
    return polled.judgement(STORAGE_UNREADABLE, StorageMemory(polled=polled.memory()), exists=True)


def restore(findings: Sequence[Finding], memory: Any) -> StorageMemory:
    """Let findings stand again that the agent read back."""
    kept = memory if isinstance(memory, StorageMemory) else StorageMemory()
    return StorageMemory(polled=restored(findings, kept.polled, REASONS))


def _rules(settings: dict[str, Any]) -> dict[str, Rule]:
    waits = {
        MOUNT_MISSING: settings["confirm_seconds"],
        MOUNT_HUNG: settings["hung_seconds"],
        MOUNT_FAILED: settings["confirm_seconds"],
        MOUNT_READ_ONLY: 0,
        MOUNT_VERY_SLOW: settings["very_slow_seconds"],
        MOUNT_SLOW: settings["slow_seconds"],
    }
    clear_s = settings["clear_seconds"]
    return {
        reason.name: Rule(raise_after_s=wait_s, clear_after_s=clear_s) for reason, wait_s in waits.items()
    }


def _words(mount: MountReading, settings: dict[str, Any]) -> Iterator[Word]:
    part = Part(kind=PartKind.MOUNT, name=mount.path)
    what = f"{mount.fstype} {mount.source}".strip()

    def word(said: Said, reason: Reason, detail: str = "", evidence: str = "") -> Word:
        return Word(
            said=said, reason=reason, part=part, detail=detail, evidence=(evidence,) if evidence else ()
        )

    if mount.mounted is None:
        yield word(Said.UNREADABLE, MOUNT_MISSING, "mountinfo does not say whether it is mounted")
        return
    if not mount.mounted:
        # What else stands of it stays: that it is gone now says nothing good of it.
        yield word(Said.BAD, MOUNT_MISSING, "nothing is mounted there")
        return
    yield word(Said.GOOD, MOUNT_MISSING)
    if not mount.may_be_read_only:
        yield _writable(mount, part, what)
    if mount.hangs_ms is not None:
        said = f"the look has been away for {mount.hangs_ms} ms"
        yield word(Said.BAD, MOUNT_HUNG, f"{what}: a look at it does not come back", said)
    elif mount.errno in BROKEN:
        yield word(Said.GOOD, MOUNT_HUNG)
        yield word(Said.BAD, MOUNT_FAILED, f"{what}: {mount.error}")
    elif mount.error or mount.took_ms is None:
        yield word(Said.UNREADABLE, MOUNT_FAILED, mount.error or "the look said nothing")
    else:
        yield word(Said.GOOD, MOUNT_HUNG)
        yield word(Said.GOOD, MOUNT_FAILED)
        for reason, limit_ms in (
            (MOUNT_VERY_SLOW, settings["very_slow_ms"]),
            (MOUNT_SLOW, settings["slow_ms"]),
        ):
            slow = mount.took_ms >= limit_ms
            detail = f"{what}: an answer takes {limit_ms} ms or more" if slow else ""
            yield word(Said.BAD if slow else Said.GOOD, reason, detail, f"took {mount.took_ms} ms")


def _writable(mount: MountReading, part: Part, what: str) -> Word:
    if mount.read_only is None:
        detail = "mountinfo does not say whether it is read-only"
        return Word(said=Said.UNREADABLE, reason=MOUNT_READ_ONLY, part=part, detail=detail)
    return Word(
        said=Said.BAD if mount.read_only else Said.GOOD,
        reason=MOUNT_READ_ONLY,
        part=part,
        detail=f"{what} is read-only" if mount.read_only else "",
        evidence=(f"options {mount.options}",),
    )


CHECK = Check(
    name=NAME,
    condition="SharedStorageFault",
    healthy=Healthy(
        reason="SharedStorageAnswers", message="every shared mount is mounted, answers and is as it should be"
    ),
    reasons=REASONS,
    judge=judge,
    applies=lambda _: False,
    memory_type=StorageMemory,
    runbook=__doc__,
    default_settings={
        "hung_seconds": 60,
        "confirm_seconds": 60,
        "clear_seconds": 120,
        "slow_ms": 2000,
        "slow_seconds": 120,
        "very_slow_ms": 5000,
        "very_slow_seconds": 900,
    },
    why_settings={
        "hung_seconds": "two looks a minute apart: beyond a failover of the server, which clients ride out, a job is lost",
        "confirm_seconds": "a second look, so that a mount that is being made anew is no fault",
        "clear_seconds": "two good looks more, since a server that comes back often goes away again",
        "slow_ms": "a look asks for what a client has at hand or gets in one round trip: thousand times what is usual",
        "slow_seconds": "longer than one burst of writes of a checkpoint keeps a server busy",
        "very_slow_ms": "half of what counts as hanging (storage.deadline, 10 s)",
        "very_slow_seconds": "longer than a checkpoint of a large job takes to be written",
    },
    unknown_reasons=(STORAGE_UNREADABLE,),
    restore=restore,
    single_look={"hung_seconds": 0, "confirm_seconds": 0, "slow_seconds": 0, "very_slow_seconds": 0},
    part_kind=PartKind.MOUNT,
)
