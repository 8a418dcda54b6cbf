"""Ports of the RDMA fabric that are down, slow, flapping or full of errors, and RDMA devices that are missing.

**What it means.** Collectives that span nodes run at the pace of the slowest port, and end with the first one that goes
down. A node with an ill port works as ever for jobs that stay on it. The message names the device, the port, its PCI
address and what is wrong.

**How it is detected.** Every RDMA device is read from sysfs every ten seconds: InfiniBand, RoCE and EFA. Ports of the
compute fabric are judged by state, rate, lanes, link layer, the legs of a bond, and the growth of their counters within a
window, never their value. Which ports are of the compute fabric is said by `[infiniband]` in agent.toml (`compute`,
`storage`, `management`), else told: virtual functions, the device with the default route, bonded devices beside others,
devices far from every GPU and devices of another kind than most are not. How many ports should be active, and at which
rate, is said by the policy for the instance type (`spec.expected` of the NodeHealth), by the built-in table of platforms,
by what this node showed when it was last validated or by most of at least three peers; of the last two the larger counts.
Only the peers find the node on which every port is slow. A port that was active in this boot and is down is a fault whoever
expects how many, unless as many as expected are active without it. Congestion (port_xmit_wait) is no fault.

**What nodemend does.** It keeps work that spans nodes off the node; a missing device gets a reboot once the node is idle,
all else is for a person. A port that the configuration names as `storage` takes the node out when it is down. Management
ports are warnings at most.

**What on-call does.** `ibstat`, `rdma link`, `mlxlink -d DEVICE -c -e` on the node, and the other end of the cable. If the
node is to run with fewer ports, say so: `kubectl patch nodehealth NODE --type merge -p
'{"spec":{"expected":{"ports":7,"portsSource":"port 3 removed, ticket 1234"}}}'`, or in the policy for its
instance type. `kubectl-nodemend repaired NODE` ends the findings and takes what is there for right, as after a boot, unless
somebody expects more.

**Unknown** (InfinibandUnreadable) means that sysfs or a port's state could not be read three times in a row.

**Not evaluated**: number and rate where nobody says what to expect; the rate of a port that is down, and of one whose speed
an old kernel has no name for (it prints the slowest); counters that a firmware keeps to itself (EINVAL; they are not read
again, since each try floods the kernel log), that do not exist or that have reached their end; state and rate of EFA, whose
driver always says ACTIVE; virtual functions, unless `virtual_functions = true`; PCIe links in a virtual machine or where
`[pci]` is switched off. A machine without RDMA devices of which none are expected has no such condition; at AWS and
Google they are chosen at the launch, so the table of platforms alone expects none on a machine that has none.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from checks import infiniband_reasons as reasons
from checks.check import Check, Context, Judgement
from checks.condition import Healthy
from checks.finding import Finding, PartKind, Severity
from checks.infiniband_expected import expected_ports
from checks.infiniband_look import NAME, Look
from checks.infiniband_memory import InfinibandMemory, Shown
from checks.infiniband_reading import INFINIBAND, InfinibandRead
from checks.observation import Observation, SourceFailed
from checks.pci_reading import PciRead
from checks.polled import Polled, Rule, nobody_looks, restored


def judge(
    observations: Sequence[Observation], memory: InfinibandMemory | None, context: Context
) -> Judgement:
    """Judge the RDMA devices and their ports."""
    if (nothing := nobody_looks(NAME, INFINIBAND, memory, context)) is not None:
        return nothing
    held = memory or InfinibandMemory()
    if held.polled.boot_id and context.boot_id and held.polled.boot_id != context.boot_id:
        held = InfinibandMemory(polled=held.polled)
    polled = Polled(NAME, reasons.REASONS, rules_from(context), held.polled, context)
    look = Look(polled, held, context)
    whole: Shown | None = None
    for seen in sorted(observations, key=_seen_at):
        match seen:
            case PciRead():
                look.hear_pci(seen)
            case InfinibandRead():
                whole = look.hear(seen)
            case SourceFailed(source=source, error=error, tries=tries) if source == INFINIBAND:
                polled.fail(error, tries)
                whole = None
    kept = msgspec.structs.replace(look.memory(), polled=polled.memory())
    wanted = kept.wanted if kept.wanted is not None else bool(expected_ports(context).ports)
    exists = not kept.polled.was_heard or kept.here or wanted
    judgement = polled.judgement(reasons.UNREAD, kept, exists=exists)
    well = judgement.unreadable is None and not any(
        finding.severity is Severity.FAULT for finding in judgement.findings
    )
    if whole is None or not well:
        return judgement
    return msgspec.structs.replace(judgement, memory=msgspec.structs.replace(kept, validated=whole))


def restore(findings: Sequence[Finding], memory: InfinibandMemory | None) -> InfinibandMemory:
    """Take up findings that NodeHealth held."""
    held = memory or InfinibandMemory()
    return msgspec.structs.replace(held, polled=restored(findings, held.polled, reasons.REASONS))


def shown(memory: InfinibandMemory | None) -> Shown | None:
    """Give what this node shows now of its compute fabric, None where it has none or nothing was read yet."""
    return memory.shown if memory is not None and memory.here else None


def validated(memory: InfinibandMemory | None) -> Shown | None:
    """Give what it showed when last all was well in this boot: the rate is the one that all of its ports had."""
    return memory.validated if memory is not None else None


def rules_from(context: Context) -> dict[str, Rule]:
    """Give how long each reason's words must last."""
    settings = {name: max(0, int(context.settings[name])) for name in _WAITS}
    down = Rule(raise_after_s=settings["down_seconds"], clear_after_s=settings["up_seconds"])
    no_subnet_manager = Rule(
        raise_after_s=settings["no_subnet_manager_seconds"], clear_after_s=settings["up_seconds"]
    )
    gone = Rule(raise_after_s=settings["gone_seconds"])
    groups = (
        (
            down,
            (
                reasons.PORT_DOWN,
                reasons.COUNT_BELOW,
                reasons.RATE_BELOW,
                reasons.WIDTH_REDUCED,
                reasons.BOND_LEG_DOWN,
                reasons.STORAGE_DOWN,
                reasons.SPARE_DOWN,
                reasons.MANAGEMENT_DOWN,
                reasons.REDUNDANCY_LOST,
            ),
        ),
        (no_subnet_manager, (reasons.NO_SUBNET_MANAGER,)),
        (gone, (reasons.HCA_MISSING, reasons.HCA_PCIE, reasons.WITHOUT_RDMA)),
    )
    return {reason.name: rule for rule, group in groups for reason in group}


def _seen_at(observation: Observation) -> datetime:
    return observation.seen_at


_WAITS = ("down_seconds", "up_seconds", "no_subnet_manager_seconds", "gone_seconds")
_NVSENTINEL = "NVSentinel's nic-health-monitor"
_EFA = "the alerts of Amazon's EKS node monitoring agent"

CHECK = Check(
    name=NAME,
    condition="InfinibandPortDegraded",
    healthy=Healthy(
        reason="AllPortsSound",
        message="every port of the RDMA fabric that should be active is, as fast as expected",
    ),
    reasons=reasons.REASONS,
    judge=judge,
    applies=lambda _parts: False,
    memory_type=InfinibandMemory,
    runbook=__doc__,
    default_settings={
        "down_seconds": 60,
        "up_seconds": 600,
        "no_subnet_manager_seconds": 240,
        "gone_seconds": 30,
        "flaps": 3,
        "flap_down_seconds": 25,
        "flap_window_hours": 12,
        "window_seconds": 300,
        "symbol_errors_per_hour": 120,
        "link_integrity_errors_per_hour": 0,
        "buffer_overruns_per_hour": 0,
        "rnr_retries_per_hour": 0,
        "link_recoveries_per_minute": 5,
        "receive_errors_per_second": 10,
        "discards_per_second": 100,
        "ack_timeouts_per_second": 1,
        "slow_restarts_per_second": 10,
        "efa_events_per_second": 100,
        "efa_retransmitted_packets_per_second": 1_000,
        "efa_retransmitted_bytes_per_second": 1_000_000,
    },
    why_settings={
        "down_seconds": "NVIDIA's Health Validation calls an outage of 30 s fatal, GPUd a port that is down for 4 min; a "
        "link "
        "that trains anew after its switch port was reset takes tens of seconds. Also for rates and lost legs of a bond.",
        "up_seconds": "GPUd keeps a port that came back for 10 min, since many go down again at once.",
        "no_subnet_manager_seconds": "A subnet manager that is restarted sweeps a large fabric for minutes; GPUd's 4 min.",
        "gone_seconds": "Three looks, as NVSentinel waits for three polls: a driver that is reloaded takes devices away "
        "briefly.",
        "flaps": "GPUd: down and active again three times. Azure's AzNHC: five times in 24 h.",
        "flap_down_seconds": "GPUd counts an outage from 25 s on; shorter ones show in link_downed and carrier_changes.",
        "flap_window_hours": "GPUd counts flaps within 12 h.",
        "window_seconds": "Rates per second are judged over five minutes, so that a burst while a peer dies is none.",
        "symbol_errors_per_hour": f"{_NVSENTINEL} calls more fatal (the InfiniBand specification's bound for a link); its "
        "10 a "
        "second for degraded is far beyond that.",
        "link_integrity_errors_per_hour": f"{_NVSENTINEL} calls any growth fatal.",
        "buffer_overruns_per_hour": f"{_NVSENTINEL} calls any growth fatal.",
        "rnr_retries_per_hour": f"{_NVSENTINEL} calls any growth fatal; here a warning, since an application that died "
        "causes it.",
        "link_recoveries_per_minute": f"{_NVSENTINEL}: degraded above 5 a minute.",
        "receive_errors_per_second": f"{_NVSENTINEL}: degraded above 10 a second.",
        "discards_per_second": f"{_NVSENTINEL}: degraded above 100 a second.",
        "ack_timeouts_per_second": f"{_NVSENTINEL}: degraded above 1 a second.",
        "slow_restarts_per_second": f"{_NVSENTINEL}: degraded above 10 a second.",
        "efa_events_per_second": f"{_EFA}: drops, failed writes, unresponsive and impaired peers, timeouts.",
        "efa_retransmitted_packets_per_second": f"{_EFA}.",
        "efa_retransmitted_bytes_per_second": f"{_EFA}.",
    },
    unknown_reasons=(reasons.UNREAD,),
    restore=restore,
    single_look=dict.fromkeys(_WAITS, 0),
    part_kind=PartKind.PORT,
)
