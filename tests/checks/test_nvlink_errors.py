"""Error counters and bit error rates of NVLinks, by generation."""

from typing import Any

import pytest

from checks.nvlink_errors import ber_above, is_floor
from checks.observation import NvmlRead
from tests.checks.nvlink import B200, H100, eight, gpu, links, watched


@pytest.mark.parametrize(
    ("counters", "model", "reason"),
    [
        pytest.param({"recovery": 1}, H100, "NvLinkErrors", id="a recovery"),
        pytest.param({"replay": 4}, H100, "", id="four replays"),
        pytest.param({"replay": 5}, H100, "NvLinkErrors", id="five replays"),
        pytest.param({"crc_flit": 5}, H100, "NvLinkErrorsFew", id="a few CRC errors"),
        pytest.param({"crc_data": 6000}, H100, "NvLinkErrors", id="a minute of CRC errors"),
        pytest.param({"symbol_errors": 1}, B200, "NvLinkErrors", id="an error of NVLink 5"),
        pytest.param({"recovery_failed": 1}, B200, "NvLinkErrors", id="a recovery that failed"),
        pytest.param({"recovery_ok": 4}, B200, "", id="recoveries of NVLink 5 that went well"),
        pytest.param({"recovery_ok": 9}, B200, "NvLinkErrorsFew", id="many of them"),
        pytest.param({"what_is_new": 99}, B200, "", id="a counter that nobody knows"),
    ],
)
def test_errors_are_judged_by_their_growth(counters: dict[str, int], model: str, reason: str) -> None:
    """What stood before the first look counts nothing; what grew counts for a window and is then over."""
    mbps = 53125 if model == B200 else 26562

    def counting(**counters: Any) -> NvmlRead:
        return eight(gpu(0, links(mbps=mbps, **counters), model=model), model=model, nvlinks=links(mbps=mbps))

    watch = watched(counting(**dict.fromkeys(counters, 0)), 60)
    watch.waits(60, counting(**counters))
    assert watch.reasons == ([reason] if reason else [])
    if reason:
        assert "link 3: " in watch.judgement.findings[0].detail
        assert any("link 3:" in line for line in watch.judgement.findings[0].evidence)
    watch.waits(4000, counting(**counters))
    assert watch.reasons == []


def test_a_repair_deals_with_what_was_counted_before_it() -> None:
    """Else the window would find it again; what comes after the repair counts."""
    watch = watched(eight(gpu(0, links(recovery=0))), 60)
    watch.waits(30, eight(gpu(0, links(recovery=1))))
    assert watch.reasons == ["NvLinkErrors"]
    watch.gpu_is_cleared(1)
    assert watch.waits(30, eight(gpu(0, links(recovery=1)))).reasons == ["NvLinkErrors"]
    watch.gpu_is_cleared(0)
    assert watch.waits(60, eight(gpu(0, links(recovery=1)))).shown == "False NvLinksHealthy"
    assert watch.waits(30, eight(gpu(0, links(recovery=2)))).reasons == ["NvLinkErrors"]
    watch.is_cleared()
    assert watch.waits(60, eight(gpu(0, links(recovery=2)))).reasons == []


@pytest.mark.parametrize("judged_between", [True, False])
def test_what_links_count_during_a_repair_is_dealt_with_by_it(judged_between: bool) -> None:
    """Links that train anew after a reset count recoveries; the clearing is there before the first look after it."""
    watch = watched(eight(gpu(0, links(recovery=0, replay=0))), 60)
    watch.waits(30, eight(gpu(0, links(recovery=1, replay=0)))).gpu_is_cleared(0)
    if judged_between:
        watch.waits(30)
    watch.waits(60, eight(gpu(0, links(recovery=3, replay=7))))
    assert (watch.reasons, watch.shown) == ([], "False NvLinksHealthy")
    assert watch.waits(30, eight(gpu(0, links(recovery=4, replay=7)))).reasons == ["NvLinkErrors"]


def test_what_is_first_seen_high_is_no_growth_and_what_begins_anew_is() -> None:
    """A read that failed proves no zero; a reset counter counts from nothing."""
    watch = watched(eight(gpu(0, links(replay=900))), 60)
    assert watch.reasons == []
    watch.waits(30, eight(gpu(0, links(replay=5))))
    assert watch.reasons == ["NvLinkErrors"]


@pytest.mark.parametrize(
    ("counters", "detail"),
    [
        pytest.param(
            {"effective_ber": 0x50B}, "effective bit error rate above 1e-12", id="an effective rate of 5e-11"
        ),
        pytest.param({"symbol_ber": 0x11E}, "symbol errors in the bit error rate", id="any symbol rate"),
    ],
)
def test_bit_error_rates(counters: dict[str, Any], detail: str) -> None:
    """They are no counters: what they say holds until they say something else."""
    alike: dict[str, Any] = {"model": B200, "nvlinks": links(mbps=53125)}
    watch = watched(eight(gpu(0, links(mbps=53125, **counters), model=B200), **alike), 60)
    assert watch.reasons == ["NvLinkErrors"]
    assert detail in watch.message
    watch.waits(120, eight(gpu(0, links(mbps=53125, effective_ber=0xFFF), model=B200), **alike))
    assert watch.reasons == []


@pytest.mark.parametrize(
    ("packed", "floor", "above"),
    [
        pytest.param(0xFFF, True, False, id="the floor of a link"),
        pytest.param(0xFEE, True, False, id="the floor of a GPU"),
        pytest.param(0x00C, True, False, id="no mantissa"),
        pytest.param(0x10C, False, False, id="1e-12"),
        pytest.param(0x20C, False, True, id="2e-12"),
        pytest.param(0xF0E, False, False, id="15e-14"),
        pytest.param(0xF0D, False, True, id="15e-13"),
        pytest.param(0x100, False, True, id="one"),
    ],
)
def test_packed_rates(packed: int, floor: bool, above: bool) -> None:
    """Exponent in the low byte, mantissa in the four bits above."""
    assert (is_floor(packed), ber_above(packed, 12)) == (floor, above)
