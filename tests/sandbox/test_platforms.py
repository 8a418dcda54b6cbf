"""The table of platforms, and what is refused in it."""

import pytest

from sandbox.platforms import PlatformDefect, parse, platform, platforms

HEADER = "platform,gpus,gpu_model,ib_ports,ib_rate_gbps,source\n"


def test_every_platform_has_a_source_and_fits_the_simulated_board() -> None:
    """No figure without saying where it comes from; at most eight GPUs have a slot."""
    assert all(kind.source for kind in platforms().values())
    assert all(1 <= kind.gpus <= 8 for kind in platforms().values())


def test_labels_are_those_of_gpu_feature_discovery() -> None:
    """The product label is the model with dashes; the slug fits a label's value."""
    hgx = platform("HGX H100 8-GPU")

    assert (hgx.gpus, hgx.gpu_product, hgx.slug) == (8, "NVIDIA-H100-80GB-HBM3", "hgx-h100-8-gpu")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("platform,gpus\n", "columns are", id="other columns"),
        pytest.param(
            HEADER + "X,eight,M,0,,s\n", "line 2: .*whole numbers", id="a word where a number belongs"
        ),
        pytest.param(HEADER + "X,8,M,0,,\n", "line 2: .*with a source", id="a row without a source"),
        pytest.param(HEADER + "X,8,M\n", "line 2: .*must be there", id="a row cut short"),
        pytest.param(HEADER + "X,8,M,0,,s\nX,8,M,0,,s\n", "line 3: X stands there twice", id="a name twice"),
    ],
)
def test_a_wrong_table_is_refused_by_line(text: str, why: str) -> None:
    """The error names the line and what would be right."""
    with pytest.raises(PlatformDefect, match=why):
        parse(text, "table.csv")


def test_an_unknown_platform_is_answered_with_the_known_ones() -> None:
    """A slip in a name leads to the right one."""
    with pytest.raises(PlatformDefect, match="known are HGX H100 8-GPU"):
        platform("HGX H1000")
