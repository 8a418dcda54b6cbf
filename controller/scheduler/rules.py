"""The rule switches: where KAI's rule hurts users, ours stands beside it, by name and with the reason. Pure.

`COMPATIBLE` decides as KAI Scheduler v0.17 does, quirks included: what a team relies on when it moves. `DEFAULT` is ours.
A case that comes out otherwise than KAI's is explained by the name of one of these rules, never by the case's own name.
"""

import msgspec


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """One named rule a field. True = ours, False = KAI's. `REASONS` says why each is ours."""

    round_within_priority: bool = True
    share_shortage: bool = True
    victims_by_cost: bool = True
    test_after_subtraction: bool = True
    mig_in_sevenths: bool = True
    exact_gpu_memory: bool = True
    reservation: bool = True
    quota_per_model: bool = True
    no_eviction_loop: bool = True
    believe_device_count: bool = True
    device_taints: bool = True
    taints_leave_total: bool = True
    tolerate_cordon: bool = True
    topology_spread: bool = True
    soft_preferences: bool = True
    terminating_frees_affinity: bool = True
    gang_survives_success: bool = True
    share_what_is_free: bool = True
    stay_on_card: bool = True
    allocated_leaves_with_total: bool = True
    silence_keeps_capacity: bool = True
    keep_promises: bool = True
    ending_keeps_zones: bool = True
    believe_numa_report: bool = True
    domain_holds_each_pod: bool = True
    other_subgroups: bool = True
    beside_siblings: bool = True


REASONS: dict[str, str] = {
    "round_within_priority": (
        "what is left of the surplus after whole-GPU rounding is settled inside a priority before the next one gets"
        " anything: in KAI a lower priority eats the rest (total 8, three queues of priority 2 and one of 1: 2, 2, 2 and 2)"
    ),
    "share_shortage": (
        "where capacity is below the sum of quotas, each gets its part in proportion to its quota: in KAI all keep their"
        " quota on paper and whoever runs keeps everything (KAI issue 1833)"
    ),
    "victims_by_cost": (
        "of all victim sets the cheapest is taken, of equals that of the most over-served queue, not the first that works:"
        " KAI deletes an 8-GPU job for one GPU"
    ),
    "test_after_subtraction": (
        "a victim's queue is held against its quota after the victim is gone: in KAI one big victim drops it far below"
    ),
    "mig_in_sevenths": (
        "a MIG slice costs its sevenths of a GPU: in KAI a 1g slice costs as much quota as a whole card"
    ),
    "exact_gpu_memory": (
        "card memory is exact MiB less the driver's reserve: KAI floors to 100 MiB, so that two halves fit only once"
    ),
    "reservation": (
        "the job that waits longest keeps what it gathers, and others may only backfill: in KAI a gang starves behind"
        " small jobs (KAI issues 1969, 1987)"
    ),
    "quota_per_model": "a queue may have a quota for each GPU model (KAI issues 1087, 145, 1400)",
    "no_eviction_loop": (
        "an eviction is refused where the victim could at once evict its evictor again: KAI only tests five rounds"
    ),
    "believe_device_count": (
        "where kubelet offers fewer GPUs than the hardware has, the smaller count is believed: KAI promises 8 of 7"
    ),
    "device_taints": "a tainted DRA device takes no pod that does not tolerate it: KAI binds to it and loops",
    "taints_leave_total": (
        "a node whose taint nobody in the pool may tolerate is no capacity: in KAI it inflates everybody's fair share"
    ),
    "tolerate_cordon": "a cordon is Kubernetes' unschedulable taint, and may be tolerated (KAI issue 1933)",
    "topology_spread": "PodTopologySpread constraints are honoured: KAI has none",
    "soft_preferences": (
        "preferred node affinity and soft taints are followed where there is a choice: KAI has no score for them"
    ),
    "terminating_frees_affinity": "a pod that ends no longer blocks anti-affinity (KAI issue 2115)",
    "gang_survives_success": (
        "members that succeeded count as done: one lost besides is replaced beside the others, and until then the gang is"
        " stale. KAI never calls such a gang stale (KAI issue 2022), and waits for as many living pods as at the start,"
        " which a Job never makes again"
    ),
    "share_what_is_free": (
        "a shared pod takes a card that has room now before a fuller one whose room is still being released: KAI waits for"
        " the fuller one"
    ),
    "stay_on_card": (
        "a pod whose place after a simulated eviction is the card that it is on stays: KAI evicts it to the same card, under"
        " a new group's name"
    ),
    "allocated_leaves_with_total": (
        "what runs on a node that is no capacity leaves `allocated` with it: in KAI a cordon makes the queue look"
        " over-served, and it is reclaimed from elsewhere"
    ),
    "silence_keeps_capacity": (
        "a node whose kubelet went silent, or is under pressure, takes nothing new and stays capacity: in KAI it leaves the"
        " total, so that somebody is evicted elsewhere for a loss that nobody has proven"
    ),
    "keep_promises": (
        "what was emptied for a job is given to it first in the next cycle, and to nobody else meanwhile: KAI forgets, and"
        " whoever stands first takes it, so that others are evicted for the same job again and again"
    ),
    "ending_keeps_zones": (
        "a pod that ends keeps its NUMA zones until it is gone: KAI binds onto them at once, and kubelet refuses the pod for"
        " good (TopologyAffinityError)"
    ),
    "believe_numa_report": (
        "where a pod runs whose NUMA zones are recorded nowhere, its node gives no more than it reports as available: KAI"
        " takes such a pod for nothing"
    ),
    "domain_holds_each_pod": (
        "a topology domain is ruled out only where its pods cannot be held: KAI counts how many of the largest pod fit, so"
        " that one 8-GPU launcher and eight 1-GPU workers find no room in two idle nodes"
    ),
    "other_subgroups": (
        "where a subgroup finds no room that its job could do without, others start or grow in its stead: KAI takes the"
        " first in its order and stops there, so that one that fits nowhere holds up all"
    ),
    "beside_siblings": (
        "of the domains of a preferred level those come first where the group has pods already, so that a lost member comes"
        " back to the others: KAI does so at required levels only, and else takes the fullest"
    ),
}

DEFAULT = Rules()
COMPATIBLE = Rules(**dict.fromkeys(REASONS, False))


def table() -> str:
    """Give the rules as a Markdown table, as the documents show it."""
    rows = (f"| `{name}` | {reason} |" for name, reason in REASONS.items())
    return "\n".join(("| rule | ours, and what KAI does |", "|---|---|", *rows)) + "\n"
