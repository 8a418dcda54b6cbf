"""Which Node is ours: a doubt that comes while it is being read must not be lost."""

from collections.abc import Callable, Mapping
from random import Random

import pytest

from agent.own_node import LOOK_S, Met, News, OwnNode, Seen
from kube import paths
from tests.agent.scene import NODE
from tests.fakes import FakeApi, FakeClock


class MeanwhileApi(FakeApi):
    """Lets something happen while one read of the Node is under way."""

    meanwhile: Callable[[], None] | None = None

    def get(self, path: str, query: Mapping[str, str] | None = None, **more: float) -> bytes:
        answer = super().get(path, query, **more)
        if path == paths.node(NODE) and self.meanwhile is not None:
            happen, self.meanwhile = self.meanwhile, None
            happen()
        return answer


@pytest.mark.parametrize(
    "looks_before",
    [
        pytest.param(0, id="while the Node is met"),
        pytest.param(1, id="while it is looked at again"),
    ],
)
def test_a_doubt_that_comes_during_a_look_is_acted_on_at_the_next_step(looks_before: int) -> None:
    """The loop forgets its Node when a patch is refused: without a new meeting it would publish nothing for long."""
    clock = FakeClock()
    api = MeanwhileApi(clock)
    api.add(paths.nodes(), {"metadata": {"name": NODE, "uid": "uid-1"}, "status": {"conditions": []}})
    told: list[News] = []
    own = OwnNode(api, NODE, clock.clock, Random(1), told.append)
    for _ in range(looks_before):
        own.step()
        clock.advance(2 * LOOK_S)
    told.clear()
    api.meanwhile = own.doubt
    own.step()
    assert own.step() > 0
    assert [type(news) for news in told] == [Seen if looks_before else Met, Met]
    clock.advance(2 * LOOK_S)
    own.step()
    assert isinstance(told[-1], Seen)
