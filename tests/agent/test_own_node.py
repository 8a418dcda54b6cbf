"""Which Node is ours: no doubt that comes while it is being read is lost, and no time once the server answers again."""

from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

import msgspec
import pytest

from agent.own_node import LOOK_S, Met, News, OwnNode, Seen
from kube import paths
from kube.api import Unavailable
from kube.store import Change
from kube.types import Node
from tests.agent.scene import NODE, Scene
from tests.fakes import FakeApi, FakeClock, request_to


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


def test_an_agent_that_started_in_an_outage_reads_its_node_as_soon_as_a_watch_hears_the_server(
    tmp_path: Path,
) -> None:
    """Not after the rest of its pause: what it judged meanwhile is published at once. Where all is well, nothing is read."""
    scene = Scene(tmp_path)
    scene.api.fail_next(request_to("*", "/"), Unavailable("connection refused"), times=None)
    scene.wait(60)
    scene.read()
    scene.line("FAULT GateStuck 0000:01:00")
    scene.go()
    scene.api.stop_failing()
    node = msgspec.convert(scene.api.read(paths.node(NODE)), type=Node)
    scene.agent.node_changed(Change.ADDED, node)
    assert scene.agent.write_due()
    scene.go()
    assert scene.shown() == ("True", "GateStuck")
    before = len(scene.api.requests)
    scene.agent.node_changed(Change.MODIFIED, node)
    scene.go()
    assert len(scene.api.requests) == before
