"""NVLinks that are down, too few, slow or erring, and GPUs that are not, or not well, part of their fabric.

**What it means.** Work on one GPU goes on; work on several is slow or fails. Only where the fabric did not start
(FabricNotReady), nothing runs: CUDA then refuses with error 802. The message names GPUs and links, or the node alone where
all its GPUs say the same, which is Fabric Manager rather than any GPU.

**How it is detected.** NVML is asked every half minute: the state of each link, the number of links, their rate, their error
counters, the registration with the fabric and its health mask. A link that sleeps is well. How many links and which rate
there should be is said by the instance type, the model of the GPU, what the GPU showed earlier, or most of its peers. A PCIe
card's links are expected to be active only once they were. Counters are judged by their growth within
`error_window_seconds`, by the generation's own names: replays, recoveries and CRC errors up to Hopper, what was not mended
from Blackwell on; a few of them are a warning (NvLinkErrorsFew).

**What nodemend does.** NvLinkDown, NvLinkCountBelowExpected and FabricUnhealthy keep work on several GPUs away, slow and
erring links are avoided; the GPU is reset once it is idle. FabricFailed takes the GPU out at once, FabricNotReady the node.

**What on-call does.** `nvidia-smi nvlink -s`, `nvidia-smi nvlink -e`, `nvidia-smi -q | grep -A 8 Fabric`, `systemctl status
nvidia-fabricmanager`, and XID 74, 136, 144-150 or SXIDs in GpuXidError. What comes back after a reset or reboot is hardware:
the GPU's board, the baseboard or switch tray, the cable.

**Unknown** means that for three rounds links or fabric state could not be read, or NVML could not be used at all
(NvLinkUnreadable). Not evaluated: while MIG is enabled; a GPU without NVLink; links of a card of which nobody says that
they should be there; a registration that has not started where no Fabric Manager runs on the node (GB200 and GB300 with
C2C, cards bridged by hand, boards without NVSwitches, a GPU alone); a node where NVML is switched off or the GPUs are
passed through to virtual machines.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from checks.check import Check, Context, Judgement
from checks.condition import Healthy
from checks.fabric import fabric_words, has_no_manager, is_starting
from checks.finding import NODE, Finding, Part, PartKind, Reason, has_gpu
from checks.growth import Growth
from checks.nvlink_errors import error_words
from checks.nvlink_expected import Seen, expected_of, is_active, remembered
from checks.nvlink_reasons import (
    COUNT_BELOW,
    FABRIC_FAILED,
    FABRIC_LIMITED,
    FABRIC_NOT_READY,
    FABRIC_UNHEALTHY,
    FABRIC_UNMANAGED,
    LINK_DOWN,
    REASONS,
    SPEED_REDUCED,
    UNREADABLE,
)
from checks.nvlink_words import NO_NVLINK, UNDER_MIG, link_words, not_shown, why_no_links
from checks.nvml_look import Answered, hear_whole_rounds
from checks.nvml_word import not_asked, why_not_asked
from checks.observation import Observation
from checks.pci_reading import PciRead
from checks.polled import Polled, PolledMemory, Rule, Said, Word, restored
from checks.rates import Rates, Series

NAME = "nvlink"
DEFAULTS: dict[str, Any] = {
    "down_seconds": 120,
    "boot_grace_seconds": 300,
    "speed_tolerance_percent": 10,
    "error_window_seconds": 3600,
    "recovery_errors": 1,
    "replay_errors": 5,
    "crc_errors": 6000,
    "nvlink5_errors": 1,
    "few_errors": 5,
    "effective_ber_exponent": 12,
}
WHY = {
    "down_seconds": "four looks: links go away for seconds while a GPU is reset or Fabric Manager starts anew",
    "boot_grace_seconds": "Fabric Manager trains and registers eight GPUs within a minute or two of a boot; in progress is "
    "no fault before (the EKS node monitoring agent waits, too)",
    "speed_tolerance_percent": "published rates are up to 6 percent below what NVML counts (25,000 and 26,562 MB/s are both "
    "told of Hopper); a link that lost speed runs at half",
    "error_window_seconds": "errors of one job stay in sight while it runs, and a part that was calm for an hour is well",
    "recovery_errors": "DCGM's health check fails at the first recovery: the link was down meanwhile",
    "replay_errors": "DCGM fails at the first replay; Imbue saw no effect of five, and a replay costs nothing but itself",
    "crc_errors": "DCGM fails at 100 a second; this is a minute of that",
    "nvlink5_errors": "DCGM fails at the first: on NVLink 5 these are errors that no correction mended",
    "few_errors": "Imbue warns from five on, without having seen an effect on training",
    "effective_ber_exponent": "DCGM fails an effective bit error rate above 1e-12",
}


class NvLinkMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept between judgements. `told`: counters that were told, as `checks.growth` keeps them. `seen`: by part.

    `switchless`: the last look at the PCI bus was no virtual machine's and showed no NVSwitch.
    """

    polled: PolledMemory = PolledMemory()
    rates: dict[str, Series] = {}
    told: dict[str, int] = {}
    seen: dict[str, Seen] = {}
    switchless: bool = False


def judge(observations: Sequence[Observation], memory: Any, context: Context) -> Judgement:
    """Judge links and fabric of all GPUs. Never raises for any observation."""
    if why_not_asked(context):
        return Judgement(exists=False, not_evaluated=not_asked(NAME, context), memory=memory)
    held = memory if isinstance(memory, NvLinkMemory) else NvLinkMemory()
    polled = Polled(NAME, REASONS, _rules(context.settings), held.polled, context)
    if held.polled.boot_id not in {"", polled.before.boot_id}:
        held = NvLinkMemory()
    look = _Look(polled, held, context)
    for bus in (seen for seen in observations if isinstance(seen, PciRead)):
        look.switchless = not bus.virtual_machine and not any(one.role == "nvswitch" for one in bus.devices)
    hear_whole_rounds(observations, polled, context, look.words, NAME)
    after = NvLinkMemory(
        polled=polled.memory(),
        rates=look.rates.memory(),
        told=look.growth.memory(),
        seen=look.seen,
        switchless=look.switchless,
    )
    return polled.judgement(UNREADABLE, after)


def restore(findings: Sequence[Finding], memory: Any) -> NvLinkMemory:
    """Let findings stand again that the agent read back."""
    held = memory if isinstance(memory, NvLinkMemory) else NvLinkMemory()
    return msgspec.structs.replace(held, polled=restored(findings, held.polled, REASONS))


def _rules(settings: Mapping[str, Any]) -> dict[str, Rule]:
    after_look = (COUNT_BELOW, FABRIC_FAILED, FABRIC_LIMITED, FABRIC_UNHEALTHY, FABRIC_UNMANAGED, LINK_DOWN)
    rules = {
        reason.name: Rule(raise_after_s=settings["down_seconds"]) for reason in (*after_look, SPEED_REDUCED)
    }
    return {**rules, FABRIC_NOT_READY.name: Rule(raise_after_s=settings["boot_grace_seconds"])}


class _Look:
    """One judgement's rounds: every GPU of a round, seen beside the others."""

    def __init__(self, polled: Polled, held: NvLinkMemory, context: Context) -> None:
        window_ms = 1000 * max(1, context.settings["error_window_seconds"])
        self.rates = Rates(held.rates, polled.clock_ms, window_ms)
        self.growth = Growth(self.rates, held.told)
        self.growth.forget(polled.is_dealt_with())
        self.seen: dict[str, Seen] = dict(held.seen)
        self.switchless = held.switchless
        self._polled = polled
        self._context = context

    def words(self, answered: Sequence[Answered]) -> list[Word]:
        """Give what one round says: of each GPU, and of the node what all of them say."""
        known = sum(part.kind is PartKind.GPU for part in self._context.parts)
        alone = max(known, len(answered)) == 1
        keep = self._polled.keep_standing
        links = [
            word
            for one in answered
            for word in keep(self._links(one, answered, alone=alone), ends=(UNDER_MIG, NO_NVLINK))
        ]
        fabric = [word for one in answered for word in self._fabric(one, alone=alone)]
        self.seen = remembered(answered, self.seen)
        dark = {one.part for one in answered if not _has_active(one)}
        links = self._of_node(LINK_DOWN, links, dark, "no GPU has an active NVLink: see Fabric Manager")
        everyone = {one.part for one in answered}
        return links + self._of_node(
            FABRIC_NOT_READY, fabric, everyone, "no GPU is registered with the fabric: see Fabric Manager"
        )

    def _links(self, one: Answered, answered: Sequence[Answered], *, alone: bool) -> Iterable[Word]:
        expected = expected_of(one, answered, self.seen, self._context, alone=alone)
        if why := why_no_links(one.gpu, one.health, expected):
            return not_shown(one.part, why)
        starting = is_starting(one.health) and not self._no_manager(one, alone=alone)
        tolerance = self._context.settings["speed_tolerance_percent"]
        words = list(
            link_words(one.gpu, one.health, one.part, expected, starting=starting, tolerance=tolerance)
        )
        if one.health.nvlinks is not None:
            words += error_words(
                one.health.nvlinks,
                one.part,
                self.growth,
                self.rates,
                self._context.settings,
                one.health.errors.get("nvlinks"),
            )
        return words

    def _fabric(self, one: Answered, *, alone: bool) -> Iterable[Word]:
        words = fabric_words(one.health, one.part, self._no_manager(one, alone=alone))
        return self._polled.keep_standing(words) if one.health.fabric is None else words

    def _no_manager(self, one: Answered, *, alone: bool) -> str:
        return has_no_manager(one.gpu, one.health, alone=alone, switchless=self.switchless)

    def _of_node(self, reason: Reason, words: list[Word], could: set[Part], detail: str) -> list[Word]:
        """Say of the node what every GPU says that is asked this at all; what stands of a GPU stays."""
        about = [word for word in words if word.reason is reason and word.said is not Said.NOT_SHOWN]
        whole = len(about) > 1 and all(word.said is Said.BAD and word.part in could for word in about)
        if whole:
            count = f"all {len(about)} GPUs of this node"
            bad = Word(
                said=Said.BAD,
                reason=reason,
                part=NODE,
                detail=f"{count}: {about[0].detail}; {detail}",
                evidence=about[0].evidence,
            )
            return [*(word for word in words if word not in about), bad]
        if about or self._polled.stands(reason, NODE):
            words = [*words, Word(said=Said.GOOD, reason=reason, part=NODE)]
        return words


def _has_active(one: Answered) -> bool:
    links = one.health.nvlinks
    return links is not None and any(is_active(link) for link in links.links)


CHECK = Check(
    name=NAME,
    condition="GpuNvLinkDegraded",
    healthy=Healthy(reason="NvLinksHealthy", message="NVLinks and fabric are as they should be"),
    reasons=REASONS,
    judge=judge,
    applies=has_gpu,
    memory_type=NvLinkMemory,
    runbook=__doc__,
    default_settings=DEFAULTS,
    why_settings=WHY,
    unknown_reasons=(UNREADABLE,),
    restore=restore,
    single_look={"down_seconds": 0, "boot_grace_seconds": 0},
)
