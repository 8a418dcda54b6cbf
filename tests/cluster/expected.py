"""What each cell of the table phase x fault has to come to."""

from collections.abc import Mapping

import msgspec

from tests.cluster.holds import Held
from tests.cluster.ledger import Account, Incident
from tests.cluster.strikes import Fault

WORK = {"work": 1}
DRAINED = {"guarded": 1, "slow": 1, "work": 1}
THERE_AND_BACK = (False, True, False)

REPAIRED = Incident(ended="Returned", reboots=1, validations=1, told=("open", "update", "resolve"))
# The page that asks for a person, and the one that says that their word was heard, are two updates.
REPAIRED_BY_PERSON = Incident(ended="Returned", validations=1, told=("open", "update", "update", "resolve"))
RETURNED = Account(
    incidents=(REPAIRED,), machine_reboots=1, evicted=WORK, node_patches=2, cordons=THERE_AND_BACK
)
RETURNED_BY_PERSON = Account(incidents=(REPAIRED_BY_PERSON,), node_patches=2, cordons=THERE_AND_BACK)

# A fault of the machinery changes nothing about what is done: all goes on where it stood.
UNDISTURBED: Mapping[Held, Account] = {
    Held.JUST_TRUE: RETURNED,
    Held.SUSPECTED: RETURNED,
    Held.QUARANTINED: RETURNED,
    Held.DRAINING: msgspec.structs.replace(RETURNED, evicted=DRAINED),
    Held.REPAIRING: RETURNED,
    Held.REBOOTING: RETURNED,
    Held.REVALIDATING: RETURNED,
    Held.ESCALATED: RETURNED_BY_PERSON,
}

_UNTOUCHED = Incident(ended="Cancelled")
_BEFORE_A_REPAIR = Incident(ended="Cancelled", told=("open", "update", "resolve"))
_IN_REPAIR = Incident(ended="Cancelled", reboots=1, told=("open", "update", "resolve"))
_AFTER_A_REPAIR = Incident(
    ended="Cancelled", reboots=1, validations=1, told=("open", "update", "update", "resolve")
)
_ESCALATED = Incident(ended="Cancelled", told=("open", "update", "update", "resolve"))


def _cancelled(cordons: tuple[bool, ...]) -> dict[Held, Account]:
    """A person's word ends it: what is under way ends by itself, nothing new begins, and what we changed is taken back."""

    def one(incident: Incident, **counts: object) -> Account:
        return msgspec.structs.replace(
            Account(incidents=(incident,), node_patches=2, cordons=cordons), **counts
        )

    return {
        Held.SUSPECTED: one(_UNTOUCHED, node_patches=0, cordons=cordons[:1]),
        Held.QUARANTINED: one(_BEFORE_A_REPAIR),
        Held.DRAINING: one(_BEFORE_A_REPAIR, evicted={"slow": 1, "work": 1}),
        Held.REPAIRING: one(_IN_REPAIR, evicted=WORK, machine_reboots=1),
        Held.REBOOTING: one(_IN_REPAIR, evicted=WORK, machine_reboots=1),
        Held.REVALIDATING: one(_AFTER_A_REPAIR, evicted=WORK, machine_reboots=1),
        Held.ESCALATED: one(_ESCALATED),
    }


def _replaced() -> dict[Held, Account]:
    """The old Node's incident ends without touching the new Node; an ill machine gets an incident of its own there."""
    old = Incident(ended="Superseded", told=("open", "resolve"))
    old_in_repair = msgspec.structs.replace(old, reboots=1)
    twice = (False, True, False, True, False)
    ill_again = msgspec.structs.replace(RETURNED, incidents=(old, REPAIRED), node_patches=3, cordons=twice)
    well_again = Account(
        incidents=(old_in_repair,), machine_reboots=1, evicted=WORK, node_patches=1, cordons=THERE_AND_BACK
    )
    return {
        Held.SUSPECTED: msgspec.structs.replace(RETURNED, incidents=(Incident(ended="Superseded"), REPAIRED)),
        Held.QUARANTINED: ill_again,
        Held.DRAINING: msgspec.structs.replace(ill_again, evicted=DRAINED),
        # Both Jobs are told the same boot id to end: the machine is rebooted once.
        Held.REPAIRING: msgspec.structs.replace(ill_again, incidents=(old_in_repair, REPAIRED)),
        Held.REBOOTING: well_again,
        Held.REVALIDATING: msgspec.structs.replace(
            well_again,
            incidents=(
                msgspec.structs.replace(old_in_repair, validations=1, told=("open", "update", "resolve")),
            ),
        ),
        Held.ESCALATED: Account(
            incidents=(msgspec.structs.replace(old, told=("open", "update", "resolve")), REPAIRED_BY_PERSON),
            node_patches=3,
            cordons=twice,
        ),
    }


EXPECTED: Mapping[Fault, Mapping[Held, Account]] = {
    Fault.CONTROLLER_KILLED: UNDISTURBED,
    Fault.AGENT_KILLED: UNDISTURBED,
    Fault.API_DOWN: UNDISTURBED,
    Fault.LEADER_CHANGED: UNDISTURBED,
    Fault.WATCH_GONE: UNDISTURBED,
    Fault.NODE_REPLACED: _replaced(),
    # Before the quarantine there is no cordon to take off: nothing changes. Racing with it, either may come first.
    Fault.UNCORDONED: {**_cancelled(THERE_AND_BACK), Held.SUSPECTED: RETURNED},
    Fault.CANCELLED: _cancelled(THERE_AND_BACK),
    Fault.CORDONED_BEFORE: {
        **_cancelled((True,)),
        Held.JUST_TRUE: msgspec.structs.replace(RETURNED, cordons=(True,)),
    },
}


def at_most(found: Account, expected: Account) -> Account:
    """Take smaller counts for the expected ones: the audit record lost a line, the API server did not lose the effect."""
    names = sorted({*found.evicted, *expected.evicted})
    return msgspec.structs.replace(
        patched_at_most(found, expected),
        evicted={name: max(found.evicted.get(name, 0), expected.evicted.get(name, 0)) for name in names},
    )


def patched_at_most(found: Account, expected: Account) -> Account:
    """Take fewer accepted patches for the expected ones.

    On a slow machine the API server can answer 5xx to a patch that etcd has taken all the same; then the second try
    finds nothing to do. That the Node was changed is seen in `cordons` and `as_found`.
    """
    return msgspec.structs.replace(found, node_patches=max(found.node_patches, expected.node_patches))
