"""Fair shares: what each queue may count on of a capacity, worked out from the roots of the tree down. Pure.

Each resource by itself, in its own unit; children divide their parent's fair share (kai.md 3.2, KAI's proportion plugin):

1. Quota: everybody gets what it wants up to its quota, whatever its priority.
2. Surplus: what is left goes by priority, inside one by weight, less to who used much in the past (`k_milli`). GPUs are
   given whole, since a job that needs a whole one has no use for a part.
3. Rounding: what the whole GPUs left over goes one by one to the largest remainders, older queues first.

Two rules differ from KAI's (`rules.py`). `round_within_priority`: step 3 is done for a priority before the next gets
anything, nobody gets more than it wants, and whole GPUs are for queues that ask in whole GPUs: a queue that asks for 1.5
is served in halves, one that asks for 0.7 in tenths (the largest part of a GPU that its request is a multiple of).
`share_shortage`: where the quotas wanted exceed the capacity, each gets its part in proportion to its quota.

Largest remainders are not monotone: with more capacity a queue may get one unit less (as seats in parliaments do).
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from math import gcd

from controller.scheduler.amounts import GPU, RESOURCES, UNLIMITED, WHOLE_GPU, Amounts
from controller.scheduler.model import Settings
from controller.scheduler.rules import Rules
from controller.scheduler.state import QueueState

_USAGE = 1_000_000
_MILLI = 1000
_NO_REST = (0, 1)


class Claimant:
    """One queue's part in the division of one resource. `share` is the result, and `quota` what its quota is worth.

    `cap`: up to where the present step may raise the share; `pull`: its weight in it. `rest`: what rounding took from it,
    as numerator and denominator.
    """

    __slots__ = (
        "cap",
        "created",
        "deserved",
        "name",
        "priority",
        "pull",
        "quota",
        "rest",
        "share",
        "step",
        "usage",
        "want",
        "weight",
    )

    def __init__(
        self,
        name: str,
        *,
        request: int,
        deserved: int = 0,
        limit: int = UNLIMITED,
        weight: int = 0,
        priority: int = 0,
        created: int = 0,
        usage: int = 0,
    ) -> None:
        self.name = name
        self.created = created
        self.priority = priority
        self.deserved = self.quota = deserved
        self.weight = weight
        self.usage = usage
        self.want = request if limit == UNLIMITED else min(request, limit)
        self.step = request
        self.share = 0
        self.cap = 0
        self.pull = 0
        self.rest = _NO_REST


def divide(queues: dict[str, QueueState], total: Amounts, settings: Settings, rules: Rules) -> None:
    """Set `fair_share` and `quota` of every queue of the tree for a capacity."""
    level: list[tuple[Iterable[QueueState], Sequence[int]]] = [
        ([state for state in queues.values() if state.parent is None], total)
    ]
    while level:
        siblings, amounts = level.pop()
        for resource in RESOURCES:
            _divide_resource(siblings, resource, amounts[resource], settings.k_milli, rules)
        level.extend((state.children, state.fair_share) for state in siblings if state.children)


def divide_models(queues: dict[str, QueueState], cards: Mapping[str, int], rules: Rules) -> None:
    """Set `model_quota` of every queue to what it is worth where there are fewer cards of a model than its quotas: as with
    all GPUs each gets its part in proportion to its quota, as far as it asks for GPUs. `cards` in milli-GPU."""
    level: list[tuple[Iterable[QueueState], Mapping[str, int]]] = [
        ([state for state in queues.values() if state.parent is None], cards)
    ]
    while level:
        siblings, cards = level.pop()
        for model in sorted({model for state in siblings for model in state.model_quota}):
            states = [state for state in siblings if model in state.model_quota]
            claimants = [
                Claimant(
                    state.name,
                    request=state.requested[GPU],
                    deserved=state.model_quota[model],
                    created=state.spec.created,
                )
                for state in states
            ]
            divide_one(claimants, cards.get(model, 0), whole=WHOLE_GPU, k_milli=0, rules=rules)
            for state, claimant in zip(states, claimants, strict=True):
                state.model_quota[model] = claimant.quota
        level.extend((state.children, {**cards, **state.model_quota}) for state in siblings if state.children)


def _divide_resource(
    siblings: Iterable[QueueState], resource: int, total: int, k_milli: int, rules: Rules
) -> None:
    """Divide one resource among siblings; who asks for nothing has no part in it."""
    claimants: list[Claimant] = []
    states: list[QueueState] = []
    for state in siblings:
        state.fair_share[resource] = 0
        state.quota[resource] = state.deserved[resource]
        request = state.requested[resource]
        if request > 0 and state.limit[resource] != 0:
            states.append(state)
            claimants.append(
                Claimant(
                    state.name,
                    request=request,
                    deserved=state.deserved[resource],
                    limit=state.limit[resource],
                    weight=state.weight[resource],
                    priority=state.spec.priority,
                    created=state.spec.created,
                    usage=state.usage[resource],
                )
            )
    divide_one(claimants, total, whole=WHOLE_GPU if resource == GPU else 1, k_milli=k_milli, rules=rules)
    for state, claimant in zip(states, claimants, strict=True):
        state.fair_share[resource] = claimant.share
        state.quota[resource] = claimant.quota


def divide_one(claimants: Iterable[Claimant], total: int, *, whole: int, k_milli: int, rules: Rules) -> int:
    """Divide an amount among siblings: set each one's `share`, return what nobody got.

    `whole` is the unit in which surplus is given (1000 for milli-GPU, 1 for millicores and bytes). The shares of KAI's
    rule may add up to more than the total, and then 0 is returned.
    """
    order = sorted(claimants, key=lambda one: (-one.priority, one.created, one.name))
    for one in order:
        one.step = gcd(one.step, whole) if rules.round_within_priority else whole
        one.share = one.cap = min(total if one.deserved == UNLIMITED else one.deserved, one.want)
    left = total - sum(one.share for one in order)
    if left < 0 and rules.share_shortage:
        return _share_shortage(order, total)
    if left <= 0:
        return 0
    for one in order:
        one.cap = one.want
        one.pull = one.weight
    priorities = [list(group) for _priority, group in groupby(order, key=lambda one: one.priority)]
    for group in priorities:
        left = _pour(group, left, k_milli)
        if rules.round_within_priority:
            left = _settle(group, left)
    if not rules.round_within_priority:
        for group in priorities:
            left = _settle_as_kai(group, left, whole)
    return left


def _share_shortage(order: list[Claimant], total: int) -> int:
    """Divide what is less than the quotas wanted, in proportion to them and whatever the priority.

    The quota is then worth no more than that: else who runs beyond its part could not be asked to give it back.
    """
    for one in order:
        one.share = 0
        one.pull = total if one.deserved == UNLIMITED else one.deserved
    left = _settle(order, _pour(order, total, 0))
    for one in order:
        one.quota = one.share
    return left


def _pour(group: list[Claimant], left: int, k_milli: int) -> int:
    """Offer an amount by weight, in rounds for as long as somebody needs less than it is offered. Return what is left."""
    while left > 0:
        thirsty = [one for one in group if one.cap > one.share]
        pulls = _pulls(thirsty, k_milli)
        whole = sum(pulls)
        if whole == 0:
            break
        amount = left
        again = False
        for one, pull in zip(thirsty, pulls, strict=True):
            if one.pull == 0:
                continue
            offer, need = amount * pull, one.cap - one.share
            if need * whole <= offer:
                give = need
                one.rest = _NO_REST
                again = again or need * whole < offer
            else:
                give = offer // (whole * one.step) * one.step
                if offer > give * whole:
                    one.rest = (offer - give * whole, whole)
            one.share += give
            left -= give
        if not again:
            break
    return left


def _pulls(thirsty: list[Claimant], k_milli: int) -> list[int]:
    """Weights of one round: n + k (n - usage), never below 0, where n is the weight's part of all. Scaled to integers."""
    if k_milli == 0 or not any(one.usage for one in thirsty):
        return [one.pull for one in thirsty]
    everybody = sum(one.pull for one in thirsty)
    gain = (_MILLI + k_milli) * _USAGE
    return [max(0, one.pull * gain - k_milli * one.usage * everybody) for one in thirsty]


def _by_rest(group: list[Claimant]) -> list[Claimant]:
    """Sort by largest remainder, then age and name; exact, for with twice the bits of the largest denominator behind the
    point two different ratios are different integers."""
    bits = 2 * max((one.rest[1].bit_length() for one in group), default=0)
    return sorted(group, key=lambda one: (-((one.rest[0] << bits) // one.rest[1]), one.created, one.name))


def _settle(group: list[Claimant], left: int) -> int:
    """Give what rounding left, one step each by largest remainder, to those who can use a whole step of it; then what is
    left of that to the first who can use it."""
    order = _by_rest([one for one in group if one.pull > 0 and one.cap > one.share]) if left > 0 else []
    for once in (True, False):
        for one in order:
            need, room = one.cap - one.share, min(left, one.step) if once else left
            give = need if need <= room else room // one.step * one.step
            one.share += give
            left -= give
    return left


def _settle_as_kai(group: list[Claimant], left: int, whole: int) -> int:
    """Give what rounding left, one unit each (or what there is) by largest remainder, even beyond what is wanted."""
    for one in _by_rest([one for one in group if one.rest[0] > 0]):
        give = min(whole, left)
        one.share += give
        left -= give
    return left
