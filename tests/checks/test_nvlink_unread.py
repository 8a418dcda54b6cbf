"""NVLinks and fabric that cannot be read: Unknown after three rounds, and never healthy."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks.condition import Status
from checks.gpu_health import Fabric, NvLink, NvLinks, NvmlRefusal
from checks.nvlink import CHECK, NvLinkMemory
from checks.observation import GpuReading, NvmlError
from tests.checks import nvml
from tests.checks.nvlink import A100_PCIE, B200, DOWN, H100, READY, eight, gpu, links, watched


@pytest.mark.parametrize(
    ("sick", "says"),
    [
        pytest.param(
            gpu(
                0,
                None,
                errors={"nvlinks": NvmlRefusal(call="nvmlDeviceGetFieldValues", code=999, name="Unknown")},
            ),
            "its NVLinks: nvmlDeviceGetFieldValues gives Unknown (999)",
            id="links",
        ),
        pytest.param(
            gpu(
                0,
                links(),
                None,
                errors={"fabric": NvmlRefusal(call="nvmlDeviceGetGpuFabricInfoV", code=3, name="X")},
            ),
            "the state of its fabric: nvmlDeviceGetGpuFabricInfoV gives X (3)",
            id="fabric",
        ),
        pytest.param(
            gpu(
                0,
                links(),
                errors={"nvlinks": NvmlRefusal(call="nvmlDeviceGetFieldValues", code=999, name="X")},
            ),
            "its NVLinks: nvmlDeviceGetFieldValues gives X (999)",
            id="a part of what links say",
        ),
        pytest.param(gpu(0, None), "its NVLinks: nobody asked for it", id="links that nobody asked for"),
        pytest.param(gpu(0, links(), None), "the state of its fabric: nobody asked", id="fabric, neither"),
        pytest.param(
            gpu(0, NvLinks(count=18, links=(NvLink(index=0),))),
            "the state of link 0 cannot be read",
            id="a state",
        ),
        pytest.param(
            gpu(0, links([1], state=7)), "the state of link 1 cannot be read", id="a state that is new"
        ),
        pytest.param(
            gpu(0, links(), Fabric(state=8)), "the state of its fabric is 8", id="a fabric state that is new"
        ),
        pytest.param(
            gpu(0, links(), Fabric(state=3, mask=0x1AB)),
            "bits 0 and 1 of the fabric's health mask hold 3",
            id="a mask",
        ),
        pytest.param(
            msgspec.structs.replace(
                gpu(0, links(range(18)), mig=None),
                errors=(NvmlError(call="nvmlDeviceGetMigMode", code=999, name="Unknown"),),
            ),
            "whether MIG is enabled cannot be read",
            id="links under what may be MIG",
        ),
    ],
)
def test_what_cannot_be_read_is_unknown_after_three_rounds(sick: GpuReading, says: str) -> None:
    """Until then nothing is said, and it passes with its cause."""
    watch = watched(eight(), 30)
    watch.waits(60, eight(sick))
    assert watch.shown == "False NvLinksHealthy"
    watch.waits(30, eight(sick))
    assert watch.shown == "Unknown NvLinkUnreadable"
    assert says in watch.message
    assert watch.waits(60, eight()).shown == "False NvLinksHealthy"


def test_without_nvml_nothing_is_known_and_what_stands_goes_on_standing() -> None:
    """A driver that is away heals nothing."""
    watch = watched(eight(DOWN))
    watch.waits(300, nvml.failed())
    assert watch.shown == "True NvLinkDown"
    assert watched(nvml.failed(), 90).shown == "Unknown NvLinkUnreadable"
    off = watched(eight(DOWN), nvml=False)
    assert (off.shown, off.reasons) == ("", [])
    assert "NVML is switched off" in off.rows[0]


_NUMBERS = st.none() | st.integers(-3, 2**70)
_LINKS = st.builds(
    NvLinks,
    count=st.integers(-2, 40),
    version=_NUMBERS,
    links=st.lists(
        st.builds(
            NvLink,
            index=st.integers(-5, 2**40),
            state=st.none() | st.integers(-1, 9),
            mbps=_NUMBERS,
            counters=st.dictionaries(
                st.sampled_from(
                    ["replay", "recovery", "crc_flit", "symbol_ber", "effective_ber", "remote", ""]
                ),
                st.integers(-5, 2**80),
            ),
        ),
        max_size=5,
    ).map(tuple),
)
_FABRICS = st.builds(
    Fabric,
    state=st.integers(-1, 9),
    status=st.integers(-1, 1000),
    mask=st.integers(0, 2**32),
    summary=_NUMBERS,
)
_GPUS = st.builds(
    gpu,
    st.integers(0, 3),
    st.none() | _LINKS,
    st.none() | _FABRICS,
    model=st.sampled_from([H100, A100_PCIE, B200, "", "NVIDIA GB200"]),
    mig=st.none() | st.booleans(),
    c2c=_NUMBERS,
    absent=st.sampled_from([(), ("nvlinks",), ("fabric", "nvlinks")]),
)


@given(st.lists(st.lists(_GPUS, max_size=3), max_size=4))
def test_no_reading_raises(rounds: list[list[GpuReading]]) -> None:
    """However odd."""
    watch = nvml.Watched(CHECK, down_seconds=0, boot_grace_seconds=0)
    for gpus in rounds:
        watch.waits(30, nvml.read(*gpus, count=len(gpus)) if gpus else nvml.failed())
        msgspec.json.decode(msgspec.json.encode(watch.judgement.memory), type=NvLinkMemory)


@given(st.booleans(), st.booleans(), st.sets(st.integers(0, 17), min_size=1))
def test_missing_data_is_never_healthy(no_links: bool, no_fabric: bool, unread: set[int]) -> None:
    """A group that gave an error, or links without a state, leave the condition at Unknown."""
    refusal = NvmlRefusal(call="nvmlDeviceGetFieldValues", code=999, name="Unknown")
    errors = {"nvlinks": refusal} if no_links else {}
    if no_fabric:
        errors["fabric"] = refusal
    states = tuple(NvLink(index=number, state=None if number in unread else 1) for number in range(18))
    sick = gpu(
        0,
        None if no_links else NvLinks(count=18, links=states),
        None if no_fabric else READY,
        errors=errors,
    )
    watch = watched(eight(sick), 120)
    assert watch.condition is not None
    assert watch.condition.status is Status.UNKNOWN


def test_errors_and_fabric_that_are_not_told_any_more_are_not_over() -> None:
    """A driver that shows no counter and no fabric for a while proves nothing; MIG, which hides links, ends theirs."""
    limited = Fabric(state=3, mask=0x1A9)
    watch = watched(eight(gpu(0, links(recovery=0), limited)), 180)
    watch.waits(30, eight(gpu(0, links(recovery=1), limited)))
    assert watch.reasons == ["FabricLimited", "NvLinkErrors"]
    watch.waits(4000, eight(gpu(0, links(), None, absent=("fabric",))))
    assert watch.reasons == ["FabricLimited", "NvLinkErrors"]
    assert watch.waits(30, eight(gpu(0, links(), limited, mig=True))).reasons == ["FabricLimited"]
    assert watch.waits(90, eight()).reasons == []
