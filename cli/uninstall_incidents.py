"""Bring open incidents to their end: pause the policies, wait for what runs, cancel the rest in the controller's own way.

A cancelled incident is closed by the controller, which puts its node back as it was found. What no controller closes in time
is put back later from the Node's annotation, when no program of ours can write any more.
"""

from collections.abc import Sequence

from cli.release_leader import LeaderWatch
from cli.release_nodes import Tell, read_node
from cli.release_tries import listed, tried
from cli.uninstall_plan import PAUSED_BY, is_cancelled, is_given_back, to_pause, to_resume, why_wait
from controller.incident import is_open
from kube import paths
from kube.api import Api, PatchType
from kube.clock import Clock
from kube.policy import RemediationPolicy
from kube.remediation import CANCEL, Remediation
from kube.timestamps import micro_time

CLOSED_WITHIN_S = 60.0
_LOOK_S = 2.0
_QUICK_LOOK_S = 1.0


class Incidents:
    """Policies and open incidents. Every method raises Failure."""

    def __init__(self, api: Api, clock: Clock, tell: Tell, namespace: str) -> None:
        self._api = api
        self._clock = clock
        self._tell = tell
        self._leader = LeaderWatch(api, clock, namespace)
        self._told: dict[str, str] = {}
        self._cancelled: dict[str, Remediation] = {}

    def policies(self, odd: list[str]) -> list[RemediationPolicy]:
        return listed(self._api, self._clock, paths.policies(), RemediationPolicy, "remediationpolicies", odd)

    def standing(self, odd: list[str]) -> list[Remediation]:
        found = listed(self._api, self._clock, paths.remediations(), Remediation, "remediations", odd)
        return [one for one in found if is_open(one)]

    def pause(self) -> None:
        """Pause every policy: from now on no node is quarantined, drained or repaired anew. Recoveries go on."""
        for policy in to_pause(self.policies([])):
            mark = {PAUSED_BY: micro_time(self._clock.now())}
            self._patch_policy(policy, {"metadata": {"annotations": mark}, "spec": {"paused": True}})
            self._tell(f"paused policy {policy.metadata.name}")

    def resume(self) -> None:
        """End the pauses of ours; for when the policies stay and nothing is there any more to act on them."""
        for policy in to_resume(self.policies([])):
            self._patch_policy(
                policy, {"metadata": {"annotations": {PAUSED_BY: None}}, "spec": {"paused": False}}
            )
            self._tell(f"policy {policy.metadata.name} is no longer paused, as it was found")

    def settle(self, *, wait_s: float, cancel: bool) -> None:
        """Wait for what runs (not with `cancel`, nor without a controller), cancel the rest, see it closed."""
        self._wait(0.0 if cancel else wait_s)
        until = self._clock.monotonic() + CLOSED_WITHIN_S
        while left := self._unsettled():
            if not self._leader.look():
                self._tell(
                    f"no controller leads: {_names(left)} will be put back from the Nodes' own annotations"
                )
                return
            if self._clock.monotonic() >= until:
                self._tell(
                    f"not closed by the controller in {CLOSED_WITHIN_S:g} s: {_names(left)}; their nodes come later"
                )
                return
            self._clock.sleep(_QUICK_LOOK_S)

    def _wait(self, wait_s: float) -> None:
        until = self._clock.monotonic() + wait_s
        while True:
            standing = self.standing([])
            may_wait = bool(self._leader.look()) and self._clock.monotonic() < until
            waiting = [one for one in standing if why_wait(one) and not is_cancelled(one)] if may_wait else []
            for one in standing:
                if one not in waiting:
                    self._cancel(one)
            if not waiting:
                return
            for one in waiting:
                self._say_once(one, f"waiting: {why_wait(one)}")
            self._clock.sleep(_LOOK_S)

    def _unsettled(self) -> list[Remediation]:
        """Give what is open, or closed with something of it still on its Node; what was opened meanwhile is cancelled."""
        standing = self.standing([])
        for one in standing:
            self._cancel(one)
        names = {one.metadata.name for one in standing}
        left = list(standing)
        for name, one in list(self._cancelled.items()):
            if name in names:
                continue
            if is_given_back(read_node(self._api, self._clock, one.spec.node_name), name):
                self._say_once(one, "closed, its node is as it was found")
                del self._cancelled[name]
            else:
                left.append(one)
        return left

    def _cancel(self, one: Remediation) -> None:
        name = one.metadata.name
        if not is_cancelled(one):
            body = {"metadata": {"annotations": {CANCEL: micro_time(self._clock.now())}}}
            path = paths.remediation(name)
            tried(
                self._clock,
                f"patch remediation {name}",
                lambda: self._api.patch(path, body, PatchType.MERGE),
            )
            self._say_once(one, f"cancelled (was {one.status.phase})")
        self._cancelled.setdefault(name, one)

    def _patch_policy(self, policy: RemediationPolicy, body: dict[str, object]) -> None:
        path, name = paths.policy(policy.metadata.name), policy.metadata.name
        tried(
            self._clock,
            f"patch remediationpolicy {name}",
            lambda: self._api.patch(path, body, PatchType.MERGE),
        )

    def _say_once(self, one: Remediation, words: str) -> None:
        if self._told.get(one.metadata.name) != words:
            self._told[one.metadata.name] = words
            self._tell(f"incident {one.metadata.name} on {one.spec.node_name}: {words}")


def release_health(api: Api, clock: Clock, name: str) -> None:
    """Take back what an incident asked of a node's agent. Raises Failure."""
    body = {"spec": {"release": None}}
    tried(
        clock,
        f"patch nodehealth {name}",
        lambda: api.patch(paths.node_health(name), body, PatchType.MERGE),
    )


def _names(incidents: Sequence[Remediation]) -> str:
    return ", ".join(f"{one.metadata.name} on {one.spec.node_name}" for one in incidents)
