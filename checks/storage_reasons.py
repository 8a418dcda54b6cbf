"""Every reason of the condition SharedStorageFault, with what it means and what on-call does about it."""

from checks.finding import Action, Effect, Urgency
from checks.reason_rows import fault, warning

_MANY = "Where many nodes show it at once, it is the server or the network: nodemend then holds still and says so."

MOUNT_MISSING = fault(
    "MountMissing",
    Effect.NODE_OUT,
    Urgency.WHEN_IDLE,
    Action.REBOOT,
    "A shared mount that the configuration names is not mounted",
    "Jobs would fail, or fill the disk below the empty directory. `findmnt PATH`, `systemctl status` of its mount unit, "
    f"`journalctl -b -u` of it; mount it, and the finding ends. A reboot mounts what /etc/fstab names. {_MANY} A path that "
    "is mounted no more on purpose wants to go from `[storage] mounts`, which names mount points: no directory below one, "
    "and no symbolic link to one (`findmnt -T PATH` says which it is).",
)
MOUNT_HUNG = fault(
    "MountHung",
    Effect.NODE_OUT,
    Urgency.WHEN_IDLE,
    Action.REBOOT,
    "A look at a shared mount does not come back",
    "Whoever touches the path hangs in uninterruptible sleep, and so does what asks about all mounts (`df`). `dmesg | grep "
    f"'not responding'`, ping the server, `cat /proc/PID/stack` of a process in state D. {_MANY} On a single node look at "
    "its storage network; `umount -f -l PATH` and mounting again may spare the reboot.",
)
MOUNT_FAILED = fault(
    "MountFailed",
    Effect.NODE_OUT,
    Urgency.WHEN_IDLE,
    Action.REBOOT,
    "A shared mount answers every look with an error",
    "The message names the error: a stale handle (the export was made anew), an I/O error, a client that was evicted or "
    f"whose connection is gone. Mount it again; a reboot does so. {_MANY}",
)
MOUNT_READ_ONLY = fault(
    "MountReadOnly",
    Effect.NODE_OUT,
    Urgency.PERSON,
    Action.CONTACT_SUPPORT,
    "A shared mount that should be writable is read-only",
    "The evidence holds both fields of options of mountinfo: the second is the file system's own, which an error turns to "
    "`ro`; the first is how it was mounted. Ask who runs the storage. Where it is meant to be read-only, say so: "
    '`[storage] mounts = ["/data:ro"]`.',
)
MOUNT_VERY_SLOW = fault(
    "MountVerySlow",
    Effect.PREFER_NOT,
    Urgency.PERSON,
    Action.CONTACT_SUPPORT,
    "A shared mount has taken seconds to answer for a long time",
    "Asking for the numbers of a file system and one entry of its directory takes milliseconds. Compare with other nodes: "
    "`time stat -f PATH`. All nodes slow is the server; one node slow is its storage network (see InfinibandPortDegraded).",
)
MOUNT_SLOW = warning(
    "MountSlow",
    "A shared mount is slow to answer",
    "As MountVerySlow, which it becomes if it grows worse and lasts. Often the server is merely busy.",
)
STORAGE_UNREADABLE = warning(
    "SharedStorageUnreadable",
    "Nobody can say how the shared mounts are",
    "The message says why: mountinfo of process 1 cannot be read (a pod needs the host's /proc, agent.toml roots.proc), or "
    "a look ended in a way that says nothing of the mount. The agent keeps trying.",
)
REASONS = (MOUNT_MISSING, MOUNT_HUNG, MOUNT_FAILED, MOUNT_READ_ONLY, MOUNT_VERY_SLOW, MOUNT_SLOW)
