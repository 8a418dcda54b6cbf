"""Act 4 of the demo: two teams lend and take back idle quota, a gang starts whole, a sick GPU alone is avoided.

Each part counts its seconds anew from what begins it (a Job's create, a Job's end, the kernel line). The kernel line goes
the way of the other acts; the stand-in for the device plugin withholds the card in that instant, as NVIDIA's does at an XID.
"""

import math
from collections.abc import Callable

import msgspec

from kube.clock import SYSTEM
from sandbox import sharing_steps as steps
from sandbox.shared_pool import SharedPool
from sandbox.sharing_objects import POOL, SPEECH, VISION
from sandbox.sharing_steps import GANG, OWN, SWEEP, TRIALS, PoolScene
from sandbox.stage import Stage
from sandbox.story import Reached

FATAL = (167, "PCIE_FATAL_TIMEOUT")
_WITHIN_S = 30.0
_LOOK_S = 2.0
_TOGETHER_S = 2.0
"""A gang's pods are bound one request after the other; what is half a gang stays half."""


class Shared(msgspec.Struct, frozen=True, kw_only=True):
    """What came of the three parts, and what was reached in which time."""

    lent_and_taken_back: bool
    gang_whole: bool
    sick_part_avoided: bool
    reached: tuple[Reached, ...]


class _Telling:
    """Waits for one step after the other and tells each; the clock starts anew with each part."""

    def __init__(self, stage: Stage, pool: SharedPool) -> None:
        self.stage, self.pool = stage, pool
        self.reached: list[Reached] = []
        self._started = SYSTEM.monotonic()

    def begin(self, words: str) -> None:
        self.stage.say(words)
        self._started = SYSTEM.monotonic()

    def until(
        self,
        name: str,
        title: str,
        seen: Callable[[PoolScene], str | None],
        look: Callable[[], PoolScene] | None = None,
    ) -> bool:
        """Wait until it is so; False where it was not in time. Raises ApiError."""
        words: list[str] = []

        def now() -> bool:
            found = seen(look() if look is not None else self.pool.scene())
            words.extend([found] if found is not None else [])
            return found is not None

        if not self.pool.watching.wait_for(now, _WITHIN_S):
            self.stage.fail(f"not reached within {_WITHIN_S:g} s: {title}")
            return False
        after_s = SYSTEM.monotonic() - self._started
        one = Reached(name=name, title=title, words=words[-1], after_s=after_s, at=SYSTEM.now())
        self.reached.append(one)
        self.stage.milestone(one)
        return True

    def show(self, *words: str) -> None:
        """Let the viewer see the table that a person who types this sees; remarks beneath it are left out."""
        lines = self.pool.typed(*words)
        end = lines.index("") if "" in lines else len(lines)
        self.stage.typed("kubectl nodemend " + " ".join(words), lines[:end])


def play(stage: Stage, pool: SharedPool) -> Shared:
    """Play the three parts; each needs what the one before it left. Raises ApiError, KubectlError."""
    telling = _Telling(stage, pool)
    lent = _lend(telling)
    whole = lent and _start_whole(telling)
    avoided = whole and _avoid(telling)
    return Shared(
        lent_and_taken_back=lent,
        gang_whole=whole,
        sick_part_avoided=avoided,
        reached=tuple(telling.reached),
    )


def _lend(telling: _Telling) -> bool:
    pool = telling.pool
    telling.begin(f"team {VISION} asks for all GPUs, team {SPEECH} for none")
    pool.create_job(SWEEP, VISION, pods=steps.SWEEP_PODS, gpus=steps.SMALL_GPUS)
    if not telling.until("lent", "idle quota lent", steps.lent):
        return False
    telling.show("queues", "--pool", POOL)
    telling.begin(f"now {SPEECH} asks for its own half")
    pool.create_job(OWN, SPEECH, pods=steps.OWN_PODS, gpus=steps.SMALL_GPUS)
    held = (
        telling.until("reclaimed", "surplus evicted", steps.evicted)
        and telling.until("served", "lender has its quota", steps.served)
        and telling.until("kept", "borrower keeps its own", steps.kept)
    )
    telling.show("queues", "--pool", POOL)
    telling.stage.outcome(held, "what was lent came back, and not one GPU more")
    return held


def _start_whole(telling: _Telling) -> bool:
    """Let a gang meet half of its room, then all of it."""
    pool = telling.pool
    pool.end_job(SWEEP)
    pool.watching.wait_for(lambda: not pool.scene().placed(SWEEP), _WITHIN_S)
    total = steps.GANG_PODS * steps.GANG_GPUS
    telling.begin(
        f"{VISION} is done with that and starts a gang: {steps.GANG_PODS} pods of {steps.GANG_GPUS} GPUs, {total} together"
    )
    pool.create_job(GANG, VISION, pods=steps.GANG_PODS, gpus=steps.GANG_GPUS, least=steps.GANG_PODS)
    if not telling.until("gang_waits", "gang waits whole", steps.waits_whole):
        return False
    pool.watching.wait_for(lambda: bool(pool.scene().placed(GANG)), _LOOK_S)
    scene = pool.scene()
    early = len(scene.placed(GANG))
    telling.stage.say(
        f"{_LOOK_S:g} s later {steps.free_gpus(scene)} GPUs are free, and {early or 'none'} of the gang is bound"
    )
    telling.begin(f"the job of {SPEECH} ends")
    pool.end_job(OWN)
    if not telling.until("gang_started", "gang starts whole", steps.started_whole):
        return False
    spread_s = pool.spread_s(pool.scene().running(GANG))
    held = not early and spread_s < _TOGETHER_S
    shown_s = max(1, math.ceil(spread_s * 100)) / 100  # a watch tells of several pods at once
    early_words = f"; {early} came before the others had room" if early else "; none came alone"
    telling.stage.outcome(held, f"first to last pod bound within {shown_s:.2f} s{early_words}")
    return held


def _avoid(telling: _Telling) -> bool:
    """Let a GPU that nobody holds fail on the node that the gang leaves room on, and start new pods."""
    pool = telling.pool
    gang = pool.scene().running(GANG)
    on = [pod.spec.node_name for pod in gang]
    node = min(set(on), key=on.count)
    kubelet, machine = pool.kubelets[node], pool.nodes[node]
    taken = {uuid for uuids in kubelet.held().values() for uuid in uuids}
    sick = next(gpu for gpu in machine.gpus if gpu.uuid not in taken)
    disrupted = pool.scene().disrupted
    telling.begin(
        f"GPU {sick.index} of {node} fails beside the gang; its device plugin (a stand-in) withholds the card"
    )
    kubelet.withhold(sick.uuid)
    telling.stage.record(machine.write_xid(*FATAL, gpu=sick.index))
    reached = _until_avoided(telling, node, sick.uuid)
    telling.show("gpus", node, "--sick")
    scene = pool.scene(node, sick.uuid)
    wrong = [
        *(() if reached else ("a step is missing",)),
        *(() if steps.uids(gang) == steps.uids(scene.running(GANG)) else ("the gang lost a pod",)),
        *(f"{name} was evicted" for name in scene.disrupted.keys() - disrupted.keys()),
        *(f"kubelet had no card for {name}: {why}" for name, why in kubelet.refused.items()),
    ]
    telling.stage.outcome(
        not wrong, "; ".join(wrong) or "7 of 8 GPUs go on, the gang among them; nobody was evicted or refused"
    )
    return not wrong


def _until_avoided(telling: _Telling, node: str, sick: str) -> bool:
    """Wait for what follows the kernel line. Until kubelet is known to withhold the card, no new pod may come."""
    pool = telling.pool

    def look() -> PoolScene:
        return pool.scene(node, sick)

    if not telling.until("sick", "GPU known to be sick", steps.ill, look):
        return False
    pool.create_job(TRIALS, VISION, pods=steps.TRIAL_PODS, gpus=1)
    return (
        telling.until("held_back", "no new pod meanwhile", steps.held_back, look)
        and telling.until("fenced", "GPU fenced", steps.fenced, look)
        and telling.until(
            "avoided", "new pods beside it", steps.avoided, lambda: pool.scene(node, sick, cards=True)
        )
        and telling.until("left_open", "node left open", steps.left_open, look)
    )
