"""Kubelet's account on its way into NodeHealth: what is written at once, what may wait, what a restart keeps."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent import node_health
from agent.config import Config, KubeletSection, RootsSection
from agent.host.inventory import Gpu, Inventory
from agent.host.pod_resources import KubeletDevices, KubeletFailed
from agent.host.pod_resources_wire import Device, PodDevices
from agent.host.unary_call import Cause
from agent.judging import Judging
from checks.finding import Part, PartKind
from checks.xid import CHECK as XID
from tests.agent.scene import NODE, Scene
from tests.checks.kernel import BOOT, at, xid

UUIDS = tuple(f"GPU-{number:08d}-2222-3333-4444-555555555555" for number in (1, 2))
DOWN = KubeletFailed(cause=Cause.REFUSED, error="kubelet.sock: nobody listens; kubelet is not running")
GPUS = Inventory(
    gpus=tuple(
        Gpu(part=Part(kind=PartKind.GPU, pci=f"0000:{number + 1:02x}:00", uuid=uuid, index=number))
        for number, uuid in enumerate(UUIDS)
    )
)


def answer(*offered: str, pod: str = "", has: str = UUIDS[0]) -> KubeletDevices:
    """Say that these are offered, and that `pod` holds a GPU."""
    held = PodDevices(namespace="team-a", name=pod, devices=(Device("nvidia.com/gpu", has),))
    return KubeletDevices(
        allocatable=tuple(Device("nvidia.com/gpu", uuid) for uuid in offered), pods=(held,) if pod else ()
    )


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    scene = Scene(tmp_path)
    scene.inventory = GPUS
    return scene.begun()


def hear(scene: Scene, *answers: KubeletDevices | KubeletFailed) -> None:
    """Let kubelet give these answers, one a round."""
    for one in answers:
        scene.kubelet.put(one)
        scene.go(rounds=1)


def parts(scene: Scene) -> list[dict[str, Any]]:
    """Give what NodeHealth says of each GPU."""
    return list(scene.health()["status"]["parts"])


def source(scene: Scene) -> dict[str, Any]:
    """Give what NodeHealth says of kubelet as a source, {} for nothing."""
    rows = scene.health()["status"]["sources"]
    return next((row for row in rows if row["name"] == "pod-resources"), {})


def test_what_kubelet_offers_and_who_holds_it_is_in_node_health(scene: Scene) -> None:
    """The first answer is written at once."""
    assert "offered" not in parts(scene)[0]
    hear(scene, answer(*UUIDS, pod="trainer-0"))
    first, second = parts(scene)
    assert (first["offered"], first["held"], first["heldBy"]) == (True, True, "team-a/trainer-0")
    assert (second["offered"], second["held"]) == (True, False)
    assert source(scene)["readable"] is True


def test_a_card_taken_back_is_a_fact(scene: Scene) -> None:
    """It is written as soon as a second answer confirms it, and kubelet is asked for that soon."""
    hear(scene, answer(*UUIDS))
    hear(scene, answer(UUIDS[0]))
    assert scene.kubelet.asked_soon == 1
    assert parts(scene)[1]["offered"] is True
    scene.clock.advance(10)
    hear(scene, answer(UUIDS[0]))
    assert parts(scene)[1]["offered"] is False
    assert parts(scene)[1]["withdrawnAt"].startswith("2026-01-01T00:00:10")
    assert scene.kubelet.asked_soon == 1


def test_pods_that_come_and_go_cost_one_write_a_minute(scene: Scene) -> None:
    """Who holds what is written, and never more often than that; what is offered does not wait for it."""
    hear(scene, answer(*UUIDS))
    scene.wait(120)
    before = scene.health_writes()
    for number in range(60):
        hear(scene, answer(*UUIDS, pod=f"pod-{number}"))
        scene.wait(10)
    assert 9 <= scene.health_writes() - before <= 11
    scene.wait(60)
    assert parts(scene)[0]["heldBy"] == "team-a/pod-59"
    hear(scene, answer(*UUIDS, pod="pod-60"))
    writes = scene.health_writes()
    hear(scene, answer(UUIDS[0], pod="pod-61"), answer(UUIDS[0], pod="pod-61"))
    assert scene.health_writes() == writes + 1
    assert (parts(scene)[0]["heldBy"], parts(scene)[1]["offered"]) == ("team-a/pod-61", False)


def test_an_unchanged_account_costs_nothing(scene: Scene) -> None:
    """Kubelet says the same all the time."""
    hear(scene, answer(*UUIDS, pod="trainer-0"))
    before = scene.health_writes()
    for _ in range(10):
        hear(scene, answer(*UUIDS, pod="trainer-0"))
    assert scene.health_writes() == before


def test_a_kubelet_that_restarts_changes_nothing(scene: Scene) -> None:
    """Refused twice, then there without pods, then without its plugin, then as before: no write, no gap."""
    hear(scene, answer(*UUIDS, pod="trainer-0"))
    before = scene.health_writes()
    hear(scene, DOWN, DOWN, answer(), answer(pod="trainer-0"), answer(*UUIDS, pod="trainer-0"))
    assert scene.health_writes() == before
    assert [part["offered"] for part in parts(scene)] == [True, True]


def test_a_kubelet_that_stays_away_is_unknown_and_never_false(scene: Scene) -> None:
    """After three tries nothing is said of any card, the source says why, and all comes back with the next answer."""
    hear(scene, answer(*UUIDS, pod="trainer-0"), DOWN, DOWN)
    assert scene.kubelet.asked_soon == 2
    hear(scene, DOWN)
    assert all({"offered", "held"}.isdisjoint(part) for part in parts(scene))
    assert source(scene) == {"name": "pod-resources", "readable": False, "error": DOWN.error, "lost": 0}
    hear(scene, answer(*UUIDS), answer(*UUIDS))
    assert [part["offered"] for part in parts(scene)] == [True, True]
    assert source(scene)["readable"] is True


def test_a_restart_of_the_agent_forgets_nothing(scene: Scene) -> None:
    """Before kubelet answered the new run, what the old one had written stands, and so does what it had seen lost."""
    hear(scene, answer(*UUIDS), answer(UUIDS[0]), answer(UUIDS[0], pod="trainer-0"))
    scene.wait(70)
    before = parts(scene)
    assert (before[1]["offered"], before[0]["held"]) == (False, True)
    scene.start()
    scene.begun()
    assert parts(scene) == before
    hear(scene, DOWN, DOWN, DOWN)
    assert parts(scene)[1]["withdrawnAt"] == before[1]["withdrawnAt"]
    assert "offered" not in parts(scene)[1]


def test_another_boot_knows_nothing_of_the_last_one(scene: Scene) -> None:
    """What was offered before a reboot is no reason to call a card lost."""
    hear(scene, answer(*UUIDS))
    scene.set_boot("boot-2")
    scene.wait(10)
    assert "offered" not in parts(scene)[1]
    hear(scene, answer(UUIDS[0]), answer(UUIDS[0]))
    assert parts(scene)[1]["offered"] is False
    assert "withdrawnAt" not in parts(scene)[1]


def test_devices_that_fit_no_card_are_in_node_health(scene: Scene) -> None:
    """They are named, with who has them."""
    hear(scene, answer(*UUIDS, "GPU-99999999-2222-3333-4444-555555555555"))
    assert scene.health()["status"]["otherDevices"] == [
        {
            "resource": "nvidia.com/gpu",
            "id": "GPU-99999999-2222-3333-4444-555555555555",
            "offered": True,
            "heldBy": "",
        }
    ]


def test_a_machine_without_gpus_asks_nobody(tmp_path: Path) -> None:
    """No socket is opened, no source is named, nothing is said."""
    scene = Scene(tmp_path, gpus=0).begun()
    scene.wait(120)
    assert not scene.kubelet.begun
    assert source(scene) == {}


def test_asking_can_be_switched_off(tmp_path: Path) -> None:
    """Where the folder may not be mounted, kubelet is left alone."""
    config = Config(
        node_name=NODE,
        listen="",
        state_dir=tmp_path / "state",
        roots=RootsSection(proc=tmp_path / "proc", sys=tmp_path / "sys"),
        kubelet=KubeletSection(enabled=False),
    )
    scene = Scene(tmp_path, config=config).begun()
    assert not scene.kubelet.begun
    assert msgspec.structs.asdict(scene.config.kubelet)["resources"]


def test_a_finding_names_the_pod_that_had_the_card() -> None:
    """From kubelet's answer into the finding, and back out of NodeHealth."""
    judging = Judging([XID], Config())
    judging.begin_boot(BOOT)
    judging.count_parts(GPUS)
    judging.hear_kubelet(answer(*UUIDS, pod="trainer-0"), at(0))
    judging.judge([xid(1, 119, pci="0000:01:00"), xid(2, 119, pci="0000:02:00")], None, at(3))
    held = {finding.part.pci: finding.holder for _, finding in judging.findings()}
    assert held == {"0000:01:00": "team-a/trainer-0", "0000:02:00": ""}
    written = node_health.status(judging.report("1", ()), at(4))
    assert sorted(finding.holder for finding in written.findings) == ["", "team-a/trainer-0"]
