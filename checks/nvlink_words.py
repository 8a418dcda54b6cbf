"""What one GPU's NVLinks say: which are down, how many there are, how fast they run. Pure."""

from collections.abc import Iterable, Iterator

from checks.finding import Part, Reason
from checks.gpu_health import GpuHealth, NvLinks
from checks.nvlink_expected import NvLinkExpectation, inactive, is_active
from checks.nvlink_reasons import COUNT_BELOW, LINK_DOWN, LINK_REASONS, SPEED_REDUCED
from checks.nvml_look import group_missing
from checks.observation import GpuReading
from checks.polled import Said, Word

TRAFFIC_DISABLED = 3
STATES = {0, 1, 2, TRAFFIC_DISABLED}
UNDER_MIG = "NVLinks read as down while MIG is enabled, and instances do not use them"
NO_NVLINK = "this GPU has no NVLink"
NOT_TOLD = "this GPU or driver does not tell its NVLinks"


def why_no_links(gpu: GpuReading, health: GpuHealth, expected: NvLinkExpectation) -> str:
    """Say why the links of this GPU are not evaluated; empty where they are."""
    if gpu.mig:
        return UNDER_MIG
    if "nvlinks" in health.absent and not expected.were_there:
        return NOT_TOLD
    none_here = health.nvlinks is not None and health.nvlinks.count == 0
    return NO_NVLINK if none_here and not (expected.certain or expected.were_there) else ""


def link_words(
    gpu: GpuReading,
    health: GpuHealth,
    part: Part,
    expected: NvLinkExpectation,
    *,
    starting: bool,
    tolerance: int,
) -> Iterator[Word]:
    """Say of a GPU's links what is to be said. `starting`: it is still registering, so links may be inactive yet.

    `tolerance` is how many percent below the expected rate a link may run.
    """
    links = health.nvlinks
    if links is None and "nvlinks" in health.absent:
        why = "its NVLinks were told earlier in this boot and are not now"
        yield Word(said=Said.UNREADABLE, reason=LINK_DOWN, part=part, detail=why)
    elif links is None:
        yield group_missing(health, "nvlinks", LINK_DOWN, part, "its NVLinks", always_asked=True)
    else:
        yield _count_word(links, part, expected)
        yield from _down_words(gpu, links, part, expected, starting=starting)
        yield from _speed_words(links, part, expected, tolerance)


def not_shown(part: Part, why: str) -> list[Word]:
    """Give the word for every question about links."""
    return [Word(said=Said.NOT_SHOWN, reason=reason, part=part, detail=why) for reason in LINK_REASONS]


def numbers(indexes: Iterable[int]) -> str:
    """Write link numbers as `link 3` or `links 0-4, 7`."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    words = [str(first) if first == last else f"{first}-{last}" for first, last in runs]
    return f"link{'' if len(runs) == 1 and runs[0][0] == runs[0][1] else 's'} {', '.join(words)}"


def _count_word(links: NvLinks, part: Part, expected: NvLinkExpectation) -> Word:
    if expected.links is None:
        why = "nobody says how many NVLinks this GPU should have"
        return Word(said=Said.NOT_SHOWN, reason=COUNT_BELOW, part=part, detail=why)
    if links.count >= expected.links:
        return _good(COUNT_BELOW, part)
    detail = f"{links.count} NVLinks; {expected.links} are expected ({expected.source})"
    return Word(said=Said.BAD, reason=COUNT_BELOW, part=part, detail=detail)


def _down_words(
    gpu: GpuReading, links: NvLinks, part: Part, expected: NvLinkExpectation, *, starting: bool
) -> Iterator[Word]:
    down = inactive(links) & expected.active
    unread = [link.index for link in links.links if link.state not in STATES]
    if down and starting:
        return
    if down and gpu.mig is None and any("MigMode" in error.call for error in gpu.errors):
        why = "whether MIG is enabled cannot be read, under which NVLinks read as down"
        yield Word(said=Said.UNREADABLE, reason=LINK_DOWN, part=part, detail=why)
    elif down:
        silent = {link.index for link in links.links if link.state == TRAFFIC_DISABLED} & down
        words = [f"{numbers(down - silent)} inactive"] if down - silent else []
        words += [f"{numbers(silent)} active with traffic disabled"] if silent else []
        evidence = ("states " + " ".join(f"{link.index}:{link.state}" for link in links.links),)
        yield Word(said=Said.BAD, reason=LINK_DOWN, part=part, detail="; ".join(words), evidence=evidence)
    elif unread or len(links.links) < links.count:
        what = numbers(unread) if unread else f"{links.count - len(links.links)} links"
        why = f"the state of {what} cannot be read"
        yield Word(said=Said.UNREADABLE, reason=LINK_DOWN, part=part, detail=why)
    elif not expected.active and not any(is_active(link) for link in links.links):
        why = "none of its NVLinks is active, and nothing says that one should be"
        yield Word(said=Said.NOT_SHOWN, reason=LINK_DOWN, part=part, detail=why)
    else:
        yield _good(LINK_DOWN, part)


def _speed_words(links: NvLinks, part: Part, expected: NvLinkExpectation, tolerance: int) -> Iterator[Word]:
    """Judge links that are active now: one that sleeps or is down tells no rate that counts."""
    rates = {link.index: link.mbps for link in links.links if link.state == 1 and link.mbps}
    if expected.mbps is None or not rates:
        return
    slow = [index for index, mbps in rates.items() if mbps * 100 < expected.mbps * (100 - tolerance)]
    if not slow:
        yield _good(SPEED_REDUCED, part)
        return
    detail = f"{numbers(slow)} at {min(rates[index] for index in slow)} of {expected.mbps} MB/s"
    yield Word(said=Said.BAD, reason=SPEED_REDUCED, part=part, detail=detail)


def _good(reason: Reason, part: Part) -> Word:
    return Word(said=Said.GOOD, reason=reason, part=part)
