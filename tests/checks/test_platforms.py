"""The table of platforms: what it holds, and that a damaged one is refused by row and field."""

import pytest

from checks.check import CheckDefect
from checks.platforms import COLUMNS, parse, platforms
from sandbox.platforms import platforms as simulated_platforms

ROW = "AWS p5.48xlarge,p5.48xlarge,8,NVIDIA H100 80GB HBM3,18,4,212.5,5,16,32,100,torchx"
HEADER = ",".join(COLUMNS)


def table(*rows: str, header: str = HEADER) -> str:
    return "\n".join([header, *rows]) + "\n"


def with_cell(field: str, value: str) -> str:
    cells = ROW.split(",")
    cells[COLUMNS.index(field)] = value
    return ",".join(cells)


@pytest.mark.parametrize(
    ("instance_type", "gpus"),
    [
        pytest.param("p5.48xlarge", 8, id="AWS"),
        pytest.param("a3-highgpu-8g", 8, id="GCP"),
        pytest.param("Standard_ND96isr_H100_v5", 8, id="Azure"),
        pytest.param("BM.GPU.H100.8", 8, id="OCI"),
        pytest.param("p6e-gb200.36xlarge", 4, id="a tray of a rack"),
    ],
)
def test_an_instance_type_says_how_many_gpus(instance_type: str, gpus: int) -> None:
    """By the name that Kubernetes' label shows."""
    assert platforms().by_instance_type[instance_type].gpus == gpus


def test_every_row_names_its_source_and_only_a_providers_row_an_instance_type() -> None:
    """A machine that no label names is found by its name alone."""
    table = platforms()
    assert len(table.by_name) > len(table.by_instance_type) > 0
    assert all(platform.source for platform in table.by_name.values())
    assert "HGX H100 8-GPU" in table.by_name
    assert all(name in platform.name for name, platform in table.by_instance_type.items())


def test_rates_are_whole_numbers_and_what_is_not_known_is_not_zero() -> None:
    """212.5 Gb/s is 212,500 Mb/s; no NVLink is 0, an unknown PCIe generation None."""
    named = platforms().by_name
    assert named["DGX H100"].nvlink_mbps_per_link == 212_500
    assert named["L40S PCIe server"].nvlink_links_per_gpu == 0
    assert named["DGX B300"].pcie_gen is None
    assert named["GCP a3-highgpu-8g"].ib_ports == 0


def test_what_is_simulated_is_what_the_table_says() -> None:
    """The sandbox has a table of its own, of those platforms that it can play."""
    named = platforms().by_name
    for name, simulated in simulated_platforms().items():
        assert (named[name].gpus, named[name].gpu_model) == (simulated.gpus, simulated.gpu_model)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(table(ROW, header="platform,gpus"), "the header is", id="an unknown header"),
        pytest.param(table(), "holds no row", id="no row"),
        pytest.param(table(ROW, ROW), "line 3 (AWS p5.48xlarge): platform", id="a platform twice"),
        pytest.param(
            table(ROW, with_cell("platform", "AWS again")),
            "line 3 (AWS again): instance_type 'p5.48xlarge' is there twice",
            id="an instance type twice",
        ),
        pytest.param(table("a,b"), "line 2: has 2 fields", id="too few fields"),
        pytest.param(table('"'), "not valid CSV", id="no CSV"),
    ],
)
def test_a_damaged_table_is_refused(text: str, said: str) -> None:
    """At load, with the place."""
    with pytest.raises(CheckDefect, match=r"platforms\.csv") as refused:
        parse(text, "platforms.csv")
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param("gpus", "0", id="no GPU"),
        pytest.param("gpus", "", id="GPUs not known"),
        pytest.param("gpus", "eight", id="a word for a number"),
        pytest.param("platform", " ", id="no name"),
        pytest.param("instance_type", "two words", id="no label's value"),
        pytest.param("gpu_model", "H100", id="not the driver's name of a model"),
        pytest.param("pcie_gen", "-5", id="a negative number"),
        pytest.param("nvlink_gbps_per_link", "212.55", id="more decimals than are kept"),
        pytest.param("ib_rate_gbps", "1e3", id="a number in other words"),
        pytest.param("source", "", id="no source"),
    ],
)
def test_a_bad_cell_is_named(field: str, value: str) -> None:
    """With row, field and value, and what would be right."""
    with pytest.raises(CheckDefect) as refused:
        parse(table(with_cell(field, value)), "platforms.csv")
    said = str(refused.value)
    assert f"{field} {value!r} is not valid; it must be " in said
    assert "platforms.csv line 2" in said
