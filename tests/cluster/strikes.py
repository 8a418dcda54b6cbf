"""The faults that strike a fleet while its incidents are under way, and what goes on meanwhile.

Each strikes every case at once and returns when the fault is over. What held the incidents is taken away while it lasts, as
far as that can be done, so that the world moves on unseen: Jobs end, machines boot, budgets are lifted.
"""

import base64
import http.client
import os
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from cli import intent
from cli.failure import Failure
from kube import paths
from kube.api import ApiError, Gone, TooManyRequests
from kube.clock import SYSTEM
from kube.remediation import CANCEL
from sandbox.actors import CONTROLLER, SYSTEM_NAMESPACE
from sandbox.nodes import await_calm, why_not_played
from sandbox.pod_player import NAMESPACE
from tests.cluster.forwarder import Forwarder
from tests.cluster.holds import Case, Held, let_go, open_gate, why_not_held
from tests.cluster.stage import Stage, leads

OUTAGE_S = 20.0
LEADER_WITHIN_S = 60.0
HELD_AGAIN_WITHIN_S = 60.0
WATCHED = (
    paths.nodes(),
    paths.node_healths(),
    paths.remediations(),
    paths.policies(),
    paths.leases(SYSTEM_NAMESPACE),
    paths.pods(),
    paths.jobs(NAMESPACE),
    paths.daemonsets(),
)


class Fault(StrEnum):
    """What strikes."""

    CONTROLLER_KILLED = "kill -9 of the controller"
    AGENT_KILLED = "kill -9 of the agent"
    API_DOWN = "the API server is down for 20 s"
    LEADER_CHANGED = "the leader hangs, its stand-in leads, it wakes again"
    WATCH_GONE = "watches are too old (410)"
    NODE_REPLACED = "the Node is deleted and made anew"
    UNCORDONED = "a person uncordons"
    CANCELLED = "a person cancels"
    CORDONED_BEFORE = "a person had cordoned before, and cancels"


Cases = Sequence[Case]


def release(stage: Stage, cases: Cases) -> None:
    """Take away what holds the incidents."""
    for case in cases:
        open_gate(stage, case)
        let_go(stage, case)


def kill_controller(stage: Stage, cases: Cases) -> None:
    """Kill -9; the world moves on without it; another process takes over."""
    stage.controllers.left_alone.set()
    for actor in stage.controllers.actors:
        actor.kill()
    release(stage, cases)
    time.sleep(3.0)
    stage.controllers.left_alone.clear()


def kill_agents(stage: Stage, cases: Cases) -> None:
    """Kill -9 all of them; each is started again like a DaemonSet's pod."""
    for case in cases:
        stage.agents[case.name].kill()
    release(stage, cases)


def stop_api_server(stage: Stage, cases: Cases) -> None:
    """Down for 20 s, in which Jobs end and machines boot; what needs the server happens right after."""
    down = time.monotonic()
    stage.sandbox.stop_apiserver()
    for case in cases:
        open_gate(stage, case)
    time.sleep(max(0.0, OUTAGE_S - (time.monotonic() - down)))
    stage.sandbox.start_apiserver()
    release(stage, cases)


def change_leader(stage: Stage, cases: Cases) -> None:
    """The leader's process stops for longer than its Lease, another leads and acts, and the old one wakes up."""
    old = stage.controllers.leader()
    assert old is not None
    stage.controllers.left_alone.set()
    old.pause()
    release(stage, cases)
    others = [actor for actor in stage.controllers.actors if actor is not old]
    stage.wait(lambda: any(leads(one.logs) for one in others), "the stand-in to lead", LEADER_WITHIN_S)
    time.sleep(1.0)
    old.resume()
    old.process.wait(30)
    stage.controllers.left_alone.clear()


class CutOff:
    """The controllers' way to the API server, which loses them; meanwhile the server forgets what they had seen."""

    def __init__(self, way: Forwarder) -> None:
        self.way = way
        self.answers: list[str] = []

    def settings(self, stage: Stage) -> dict[str, Any]:
        """Give the controller's settings: this way, and a Lease that outlasts the cut, so that it is the watches' test."""
        kube = {
            "server": self.way.url,
            "token_file": str(stage.sandbox.token_file(SYSTEM_NAMESPACE, CONTROLLER)),
            "ca_file": str(stage.sandbox.ca_file),
        }
        lease = {"lease_duration": "90s", "renew_deadline": "80s", "retry_period": "1s"}
        return {"kube": kube, "leader": lease}

    def __call__(self, stage: Stage, cases: Cases) -> None:
        versions = {path: _collection_version(stage, path) for path in WATCHED}
        self.way.cut()
        release(stage, cases)
        time.sleep(1.0)
        stage.sandbox.stop_apiserver()
        compact(stage.sandbox.state_dir)
        stage.sandbox.start_apiserver()
        self.answers += [_answer_to_watch(stage, path, version) for path, version in versions.items()]
        self.way.mend()


def _collection_version(stage: Stage, path: str) -> str:
    listed = msgspec.json.decode(stage.admin.get(path, {"limit": "1"}))
    return str(listed["metadata"]["resourceVersion"])


def _answer_to_watch(stage: Stage, path: str, version: str) -> str:
    """Give what the server answers to whoever had seen everything up to `version`."""
    query = {"watch": "true", "resourceVersion": version, "timeoutSeconds": "2"}
    deadline = time.monotonic() + 30
    while True:
        try:
            for line in stage.admin.stream(path, query, 5.0):
                event = msgspec.json.decode(line)
                code = event["object"].get("code") if event["type"] == "ERROR" else None
                return str(code or event["type"])
        except Gone:
            return "410"
        except TooManyRequests as error:  # a custom resource's storage is still being set up again
            if time.monotonic() > deadline:
                return str(error)
            time.sleep(0.5)
        except (ApiError, TimeoutError) as error:
            return str(error)
        else:
            return "nothing"


def compact(state_dir: Path) -> int:
    """Let etcd forget every revision but the last; give that one. By its JSON gateway, on the sandbox's own socket."""
    answer = _ask_etcd(state_dir, "/v3/kv/range", {"key": base64.b64encode(b"\0").decode()})
    revision = int(answer["header"]["revision"])
    with suppress(ValueError):
        _ask_etcd(state_dir, "/v3/kv/compaction", {"revision": revision, "physical": True})
    return revision


def _ask_etcd(state_dir: Path, path: str, body: dict[str, Any]) -> Any:
    folder = os.open(state_dir, os.O_PATH | os.O_DIRECTORY)
    connection = http.client.HTTPConnection("etcd")
    try:
        connection.sock = socket.socket(socket.AF_UNIX)
        # By way of the folder's descriptor: a socket's path has room for 107 bytes only.
        connection.sock.connect(f"/proc/self/fd/{folder}/etcd.sock")
        connection.request("POST", path, msgspec.json.encode(body))
        response = connection.getresponse()
        answer = response.read()
        if response.status != 200:
            raise ValueError(f"etcd answers {response.status}: {answer[:300]!r}")
        return msgspec.json.decode(answer)
    finally:
        connection.close()
        os.close(folder)


def replace_nodes(stage: Stage, cases: Cases) -> None:
    """Delete every Node; kubelets make theirs anew at once, one whose machine is down at its next boot.

    Where the machine is still ill, the new Node has an incident of its own, held in the same place, before what holds both
    is taken away. KWOK too has to play the new Node: it would not end a pod that is evicted before.
    """
    old = {case.name: [one.metadata.name for one in stage.incidents(case.name)] for case in cases}

    def replace(case: Case) -> None:
        await_calm(stage.admin, case.node)
        case.node.delete(stage.admin)
        if case.held is not Held.REBOOTING:
            case.node.register(stage.admin)

    with ThreadPoolExecutor(len(cases)) as pool:
        list(pool.map(replace, cases))
    ill = [case for case in cases if case.held not in (Held.REBOOTING, Held.REVALIDATING)]

    def opened(case: Case) -> bool:
        incident = stage.incident(case.name)
        new = incident is not None and incident.metadata.name not in old[case.name]
        return new and not why_not_held(stage, case)

    if not stage.watching.wait_for(lambda: all(opened(case) for case in ill), HELD_AGAIN_WITHIN_S):
        for case in ill:
            case.trouble = "" if opened(case) else f"not held again: {why_not_held(stage, case)}"
    stage.watching.wait_for(
        lambda: all(why_not_played(stage.admin, case.node) is None for case in ill), HELD_AGAIN_WITHIN_S
    )
    for case in ill:
        case.trouble = case.trouble or why_not_played(stage.admin, case.node) or ""
    release(stage, cases)


def uncordon(stage: Stage, cases: Cases) -> None:
    """`kubectl uncordon` of every node."""
    for case in cases:
        stage.set_cordon(case.name, False)
    for case in cases:
        if case.held is not Held.SUSPECTED:  # nothing was cordoned there yet
            _wait_closed(stage, case)
    release(stage, cases)


def cancel(stage: Stage, cases: Cases) -> None:
    """What `kubectl nodemend cancel` does, for every node whose incident is held."""
    cases = [case for case in cases if case.held is not Held.JUST_TRUE]
    for case in cases:
        try:
            chosen, word = intent.prepare(
                stage.admin, annotation=CANCEL, node=case.name, incident="", now=SYSTEM.now()
            )
            intent.give(stage.admin, chosen, word)
        except Failure as why:
            case.trouble = f"cancel: {why}"
    for case in cases:
        _wait_closed(stage, case)
    release(stage, cases)


def _wait_closed(stage: Stage, case: Case) -> None:
    """Hold on until the word was acted on: what comes after it must change nothing. No word, no wait's end: said later."""
    stage.watching.wait_for(
        lambda: bool(stage.incidents(case.name)) and stage.incident(case.name) is None, 20
    )


# WATCH_GONE is a CutOff.
STRIKES: dict[Fault, Callable[[Stage, Cases], None]] = {
    Fault.CONTROLLER_KILLED: kill_controller,
    Fault.AGENT_KILLED: kill_agents,
    Fault.API_DOWN: stop_api_server,
    Fault.LEADER_CHANGED: change_leader,
    Fault.NODE_REPLACED: replace_nodes,
    Fault.UNCORDONED: uncordon,
    Fault.CANCELLED: cancel,
    Fault.CORDONED_BEFORE: cancel,
}
