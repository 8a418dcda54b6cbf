"""A pod of an elastic job whose bind is refused for ever: it pauses by itself, and its siblings are placed at once."""

from kube.api import Forbidden
from tests.fakes import request_to, wait_until
from tests.scheduler_shell.running_scheduler import running

TIME_S = 10.0


def test_a_sibling_of_a_pod_that_is_refused_again_and_again_is_bound_at_once() -> None:
    """It came while the other one paused for five seconds after its third try."""
    with running() as it:
        it.api.fail_next(
            request_to("CREATE", "refused/binding"), Forbidden("a policy says no", code=403), times=None
        )
        it.queue("q", gpus=8)
        it.node("a")
        it.group("elastic", least=1)
        it.pod("refused", group="elastic")
        wait_until(lambda: it.binds().count("refused") == 3, TIME_S)
        it.pod("sibling", group="elastic")
        wait_until(it.bound("sibling"), 3.0)
        assert it.on_node("refused") == ""
        assert it.binds().count("refused") == 3
