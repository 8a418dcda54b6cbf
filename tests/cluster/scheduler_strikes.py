"""The faults that strike a scheduler in the middle of its work, and what becomes of what was on its way.

Each returns when the fault is over. What stood at the gate is lost with the connection where the process or the server died;
it arrives late where that is how networks are.
"""

import threading
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from sandbox.actors import SchedulerActor, start_scheduler
from sandbox.cluster import Sandbox
from tests.cluster.gate import Asked, Word, passing
from tests.cluster.scheduler_phases import SETTINGS, Scene
from tests.cluster.stage import leads

LEADER_WITHIN_S = 30.0
STORM_S = 6.0
STALL_S = 35.0  # longer than a bind may take to show
OTHER_LEASE = "nodemend-scheduler-other"


class Fault(StrEnum):
    """What strikes."""

    KILLED = "kill -9 of the scheduler"
    LEADER_CHANGED = "the leader hangs, its stand-in leads, late requests arrive, it wakes again"
    API_DOWN = "the API server restarts"
    STORM = "429 for everything but the Lease, for 6 s"
    STALE = "the watches show nothing for 35 s"
    SECOND = "a second scheduler under another Lease"


class Deployment:
    """A process that ends is started again, unless `left_alone` is set."""

    def __init__(self, sandbox: Sandbox, count: int, settings: dict[str, Any]) -> None:
        self.left_alone = threading.Event()
        self.exits: list[int] = []
        self.actors: list[SchedulerActor] = start_scheduler(sandbox, replicas=count, settings=settings)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep_running, name="deployment", daemon=True)
        self._thread.start()

    def leader(self) -> SchedulerActor | None:
        """Give the replica whose log says that it leads."""
        return next((actor for actor in self.actors if actor.process.alive and leads(actor.logs)), None)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=10)
        for actor in self.actors:
            actor.resume()
            actor.stop()

    def _keep_running(self) -> None:
        while not self._stop.wait(0.2):
            if self.left_alone.is_set():
                continue
            for actor in self.actors:
                status = actor.process.poll()
                if status is not None:
                    self.exits.append(status)
                    actor.start()


def start(scene: Scene, fault: Fault) -> Deployment:
    """Start what the fault needs; returns when one leads."""
    settings = {"pool": scene.stage.pool, **SETTINGS, **scene.kube()}
    replicas = 2 if fault is Fault.LEADER_CHANGED else 1
    if replicas == 1:
        settings["listen"] = scene.stage.listen
    running = Deployment(scene.stage.sandbox, replicas, settings)
    scene.stage.actors = running.actors
    scene.stage.until(lambda: running.leader() is not None, "a scheduler to lead")
    return running


def kill(scene: Scene, running: Deployment) -> None:
    """Kill -9; what was on its way is lost; another process takes over."""
    running.left_alone.set()
    for actor in running.actors:
        actor.kill()
    scene.take_room()
    _pass(scene, goes_on=False)
    time.sleep(1.0)
    running.left_alone.clear()


def change_leader(scene: Scene, running: Deployment) -> None:
    """The leader stops for longer than its Lease, another one leads; then the old requests arrive, and the old one wakes."""
    old = running.leader()
    assert old is not None
    running.left_alone.set()
    old.pause()
    scene.take_room()
    scene.gate.rule = passing
    others = [actor for actor in running.actors if actor is not old]
    scene.stage.until(lambda: any(leads(one.logs) for one in others), "the stand-in to lead", LEADER_WITHIN_S)
    scene.stage.until(scene.has_gone_on, "the stand-in to go on", LEADER_WITHIN_S)
    _pass(scene, goes_on=True)
    time.sleep(1.0)
    old.resume()
    old.process.wait(30)
    running.left_alone.clear()


def restart_api_server(scene: Scene, _running: Deployment) -> None:
    """What was on its way finds nobody, and answers are lost."""
    scene.take_room()
    scene.stage.sandbox.stop_apiserver()
    scene.gate.decide(goes_on=False, word=Word.KEEP)
    _pass(scene, goes_on=True)
    time.sleep(2.0)
    scene.stage.sandbox.start_apiserver()


def storm(scene: Scene, _running: Deployment) -> None:
    """The server turns everything away for some seconds; what was on its way arrives in the midst of it."""
    scene.take_room()
    scene.gate.rule = _busy
    scene.gate.decide(goes_on=False, word=Word.HOLD)
    time.sleep(STORM_S)
    _pass(scene, goes_on=True)


def _busy(asked: Asked) -> Word:
    return Word.PASS if "/leases/" in asked.path or asked.is_watch else Word.BUSY


def stall(scene: Scene, _running: Deployment) -> None:
    """Requests go through, and the watches show nothing of what they did.

    What others do meanwhile is done before: nobody can know what is not shown, and a kubelet turns away what is too much.
    """
    scene.take_room()
    time.sleep(1.0)
    scene.gate.flowing.clear()
    _pass(scene, goes_on=True)
    time.sleep(STALL_S)
    scene.gate.flowing.set()


class Second:
    """Another scheduler for the same pods, which RBAC would not let run for another Lease: it has the admin's rights."""

    def __init__(self, scene: Scene) -> None:
        """Start it, and stop its clock as soon as it leads: its Lease lasts until it is needed."""
        leader = {
            "name": OTHER_LEASE,
            "lease_duration": "120s",
            "renew_deadline": "110s",
            "retry_period": "5s",
        }
        kube = {
            "server": "",
            "token_file": "",
            "ca_file": "",
            "kubeconfig": str(scene.stage.sandbox.admin_kubeconfig),
        }
        settings = {"pool": scene.stage.pool, **SETTINGS, "leader": leader, "kube": kube}
        (self.actor,) = start_scheduler(scene.stage.sandbox, settings=settings)
        scene.stage.until(lambda: leads(self.actor.logs), "the second scheduler to lead")
        time.sleep(1.0)
        self.actor.pause()

    def __call__(self, scene: Scene, _running: Deployment) -> None:
        """Wake it while the first is half done, and let that one's requests arrive in the same moment."""
        scene.take_room()
        self.actor.resume()
        _pass(scene, goes_on=True)
        scene.overfill()

    def stop(self) -> None:
        """End it, as whoever finds it would."""
        self.actor.resume()
        if self.actor.process.alive:
            self.actor.stop()


def _pass(scene: Scene, *, goes_on: bool) -> None:
    """Let new requests through, and decide about those that wait."""
    scene.gate.rule = passing
    scene.gate.decide(goes_on=goes_on)


# SECOND is a Second.
STRIKES: dict[Fault, Callable[[Scene, Deployment], None]] = {
    Fault.KILLED: kill,
    Fault.LEADER_CHANGED: change_leader,
    Fault.API_DOWN: restart_api_server,
    Fault.STORM: storm,
    Fault.STALE: stall,
}
