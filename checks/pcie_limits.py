"""How many repeated or mended errors a PCIe link may show: what its specified bit error rate allows. Pure.

DCGM's limit of replays in a minute for each lane, by generation (its health check of PCIe): 0.15, 0.3, 0.48, 0.96, 1.92,
3.84. Kept in hundredths, so that they are whole numbers; the limit of a link is rounded up.
"""

PER_LANE_AND_MINUTE = {1: 15, 2: 30, 3: 48, 4: 96, 5: 192, 6: 384}
LIKELY_GENERATION = 4
MOST_LANES = 32


def most_errors(generation: int | None, lanes: int | None, window_s: int, percent: int) -> int:
    """Give how many errors within the window are still allowed; `percent` of the limit. At least one is."""
    known = min(max(PER_LANE_AND_MINUTE), generation or LIKELY_GENERATION)
    each = PER_LANE_AND_MINUTE.get(known, PER_LANE_AND_MINUTE[LIKELY_GENERATION])
    width = lanes if lanes is not None and 0 < lanes <= MOST_LANES else 16
    a_minute = -(-each * width // 100)
    return max(1, a_minute * max(1, window_s) * max(1, percent) // (60 * 100))
