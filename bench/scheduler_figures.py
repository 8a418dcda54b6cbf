"""The figures of `scheduler`, from what was measured. Pure."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from bench.audit import Asked, Kind
from bench.figures import Figure

GANG = 64
GANGS = 16
OURS, THEIRS, BARE = "nodemend-scheduler", "kube-scheduler", "bare"
_KAI = "KAI 0.17 bound 10 to 20 pods/s on such a machine"


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One turn: `pods` created and bound in `seconds`.

    `spent_s` are the processor seconds of the scheduler's process meanwhile. Of ours also `settled_s`, those until it was
    quiet again, and `asked`, what it wrote to the API server until then.
    """

    who: str
    pods: int
    seconds: float
    spent_s: float = 0.0
    settled_s: float = 0.0
    asked: Asked | None = None


class Whole(msgspec.Struct, frozen=True, kw_only=True):
    """Gangs: first create to last bind of them all, and the longest from the first bind to the last of one gang."""

    gangs: int
    seconds: float
    widest_s: float


def figures(turns: Sequence[Turn], whole: Whole) -> list[Figure]:
    """Compare all turns of one with all turns of the others. Each of the three has at least one."""
    ours, theirs, bare = (_rate(turns, who) for who in (OURS, THEIRS, BARE))
    counted = [turn for turn in turns if turn.asked is not None]
    sent = _sum([turn.asked for turn in counted if turn.asked is not None])
    gangs = f"{whole.gangs} gangs of {GANG}"
    return [
        Figure(
            name="bind_rate_vs_kube_scheduler",
            value=ours / theirs,
            aim=1.0,
            at_least=True,
            beside=f"{ours:.0f} pods/s against {theirs:.0f} of kube-scheduler (qps and burst 5000); {_KAI}",
        ),
        Figure(
            name="bind_rate_vs_bare",
            value=ours / bare,
            aim=0.7,
            at_least=True,
            beside=f"{ours:.0f} pods/s against {bare:.0f} of a client that creates all and then binds all",
        ),
        Figure(name="bind_rate", value=ours),
        Figure(name="kube_scheduler_rate", value=theirs),
        Figure(name="bare_rate", value=bare),
        Figure(
            name="requests_per_pod",
            value=sent.total / sum(turn.pods for turn in counted),
            aim=3,
            beside=f"writes until it was quiet again: {sent.words()}",
        ),
        Figure(
            name="gang_start_s",
            value=whole.seconds,
            beside=f"{gangs}, {whole.gangs * GANG / whole.seconds:.0f} pods/s",
        ),
        Figure(name="gang_spread_s", value=whole.widest_s, beside=f"the widest of {gangs}"),
        Figure(
            name="processor_ms_per_pod",
            value=_spent_ms(turns, OURS),
            beside=f"kube-scheduler {_spent_ms(turns, THEIRS):.2f} ms",
        ),
        Figure(
            name="settled_processor_ms_per_pod",
            value=1000 * sum(turn.settled_s for turn in counted) / sum(turn.pods for turn in counted),
            beside="with what it writes after the binds",
        ),
        Figure(name="kube_scheduler_processor_ms_per_pod", value=_spent_ms(turns, THEIRS)),
        Figure(name="turns", value=len(turns)),
    ]


def _rate(turns: Sequence[Turn], who: str) -> float:
    """Give pods a second over all turns of one."""
    mine = [turn for turn in turns if turn.who == who]
    return sum(turn.pods for turn in mine) / sum(turn.seconds for turn in mine)


def _spent_ms(turns: Sequence[Turn], who: str) -> float:
    mine = [turn for turn in turns if turn.who == who]
    return 1000 * sum(turn.spent_s for turn in mine) / sum(turn.pods for turn in mine)


def _sum(several: Sequence[Asked]) -> Asked:
    done: Counter[Kind] = Counter()
    refused: Counter[Kind] = Counter()
    for one in several:
        done.update(one.done)
        refused.update(one.refused)
    return Asked(done=dict(done), refused=dict(refused))
