"""Which RDMA devices are of the compute fabric, and which are for something else."""

from collections.abc import Sequence

import pytest

from checks.infiniband_reading import HcaReading, Netdev
from checks.infiniband_roles import For, roles_of
from tests.checks.infiniband import HDR, Machine, bond, down, hca, port

ROUTED = (Netdev(name="eno1", default_route=True),)
ROCE, SLOWER = port(link_layer="Ethernet"), port(link_layer="Ethernet", rate=HDR)


@pytest.mark.parametrize(
    ("devices", "expected", "others"),
    [
        pytest.param([hca(n) for n in range(4)], None, {}, id="all alike"),
        pytest.param(
            [*(hca(n) for n in range(4)), bond()],
            None,
            {"mlx5_bond_0": For.MANAGEMENT},
            id="a bond beside others",
        ),
        pytest.param([bond(), bond("mlx5_bond_1")], None, {}, id="nothing but bonds"),
        pytest.param(
            [*(hca(n) for n in range(4)), hca(9, netdevs=ROUTED)],
            4,
            {"mlx5_9": For.MANAGEMENT},
            id="the default route",
        ),
        pytest.param(
            [*(hca(n) for n in range(4)), hca(9, netdevs=ROUTED)],
            5,
            {},
            id="the default route over IPoIB on a port that is needed",
        ),
        pytest.param(
            [*(hca(n) for n in range(3)), hca(9, port(link_layer="Ethernet"), netdevs=ROUTED)],
            4,
            {"mlx5_9": For.MANAGEMENT},
            id="an Ethernet port with the default route never makes up for a missing one",
        ),
        pytest.param(
            [*(hca(n, ROCE) for n in range(4)), *(hca(n, SLOWER, board_id="BF3") for n in range(4, 8))],
            4,
            {f"mlx5_{n}": For.MANAGEMENT for n in range(4, 8)},
            id="as many slower ones of Ethernet",
        ),
        pytest.param(
            [*(hca(n) for n in range(4)), hca(9, numa=5)],
            None,
            {"mlx5_9": For.MANAGEMENT},
            id="far from every GPU",
        ),
        pytest.param(
            [*(hca(n) for n in range(4)), hca(9, numa=5)], 5, {}, id="far from every GPU and needed"
        ),
        pytest.param(
            [*(hca(n) for n in range(4)), hca(9, numa=None), hca(10, numa=-1)],
            None,
            {},
            id="no NUMA node told",
        ),
        pytest.param(
            [*(hca(n) for n in range(4)), hca(9, board_id="MT_X"), hca(10, hca_type="MT4123")],
            4,
            {"mlx5_9": For.MANAGEMENT, "mlx5_10": For.MANAGEMENT},
            id="another board and another type",
        ),
        pytest.param(
            [*(hca(n) for n in range(3)), hca(3, board_id="MT_X")],
            4,
            {},
            id="a replaced card of another board",
        ),
        pytest.param(
            [
                *(hca(n) for n in range(3)),
                hca(8, pci="0000:e0:00.0", board_id="MT_X"),
                hca(9, pci="0000:e0:00.1", board_id="MT_X"),
            ],
            4,
            {"mlx5_8": For.MANAGEMENT, "mlx5_9": For.MANAGEMENT},
            id="a dual-port storage card never makes up for a missing one",
        ),
        pytest.param(
            [
                *(hca(n) for n in range(2)),
                *(hca(n, port(link_layer="Ethernet"), board_id="B") for n in (8, 9)),
            ],
            None,
            {"mlx5_8": For.MANAGEMENT, "mlx5_9": For.MANAGEMENT},
            id="as many of Ethernet as of InfiniBand",
        ),
        pytest.param(
            [
                hca(0),
                hca(1, role="storage"),
                hca(2, role="management"),
                hca(3, role="compute", netdevs=ROUTED),
            ],
            None,
            {"mlx5_1": For.STORAGE, "mlx5_2": For.MANAGEMENT},
            id="what the configuration says",
        ),
        pytest.param(
            [hca(0), hca(1, virtual=True, left_out="it is a virtual function")],
            None,
            {"mlx5_1": For.NOTHING},
            id="a virtual function",
        ),
    ],
)
def test_roles(devices: Sequence[HcaReading], expected: int | None, others: dict[str, For]) -> None:
    """Which devices are of the compute fabric, and what the others are for."""
    read = Machine().read(devices)
    roles = roles_of(
        read, ["mlx5_9"] if any(d.netdevs and d.name == "mlx5_9" for d in devices) else [], {}, expected
    )
    assert {name: role.what for name, role in roles.items() if role.what is not For.COMPUTE} == others


def test_a_management_port_that_lost_its_route() -> None:
    """A port that is down has no route any more; it must not turn into a port of the compute fabric for that."""
    machine = Machine(expected_ports=2)
    machine.look(hca(0), hca(1), hca(2, netdevs=ROUTED))
    machine.look(hca(0), hca(1), hca(2, down()), seconds=90)
    assert machine.found() == [("ManagementPortDown", "mlx5_2/1")]
    assert "it carries the default route" in machine.not_evaluated()
