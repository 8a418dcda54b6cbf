"""controller.deliver: beside the loop, never twice at once, nothing by a replica that does not lead."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from controller.deliver import QUEUED, WORKERS, Deliverer, Errand
from controller.view import Delivery
from controller.webhook import Answer, Sender
from tests.controller.shell.samples import NOW
from tests.fakes import FakeClock, wait_until


class Recorder:
    """A receiver that answers by a function and remembers ids."""

    def __init__(self, reply: Callable[[str], Answer] = lambda _: Answer(status=200)) -> None:
        self.sent: list[str] = []
        self._reply = reply

    def send(self, message_id: str, _body: bytes, _content_type: str, _now: datetime) -> Answer:
        self.sent.append(message_id)
        return self._reply(message_id)


def errand(id_: str, sink: str = "a", attempt: int = 1) -> Errand:
    return Errand(id=id_, sink=sink, attempt=attempt, body=lambda: b"{}")


@contextmanager
def delivering(may_send: Callable[[], bool] = lambda: True, **senders: Sender) -> Iterator[Deliverer]:
    """Run a deliverer for the given sinks."""
    deliverer = Deliverer(senders, FakeClock(now=NOW).clock, wake=lambda: None, may_send=may_send)
    deliverer.start()
    try:
        yield deliverer
    finally:
        deliverer.stop(5)


def test_what_is_offered_is_sent_once_and_answered() -> None:
    """Offered again while it is under way or not yet written down, it is not sent again."""
    sink = Recorder()
    with delivering(a=sink) as deliverer:
        for _ in range(3):
            deliverer.offer([errand("m1")])
        wait_until(lambda: bool(deliverer.deliveries()))
        deliverer.offer([errand("m1")])
        assert deliverer.deliveries() == {"m1": Delivery(attempt=1, at=NOW)}
    assert sink.sent == ["m1"]


def test_an_answer_is_kept_until_the_outbox_holds_it() -> None:
    """A Save that met a conflict must not lose it; one that is written down is forgotten, and a next try can go."""
    with delivering(a=Recorder(lambda _: Answer(error="500"))) as deliverer:
        deliverer.offer([errand("m1")])
        wait_until(lambda: bool(deliverer.deliveries()))
        deliverer.recorded({"m1": 0})
        assert list(deliverer.deliveries()) == ["m1"]
        deliverer.recorded({"m1": 1})
        assert deliverer.deliveries() == {}
        deliverer.offer([errand("m1", attempt=2)])
        wait_until(lambda: bool(deliverer.deliveries()))
        assert deliverer.deliveries()["m1"].attempt == 2


def test_an_answer_to_a_row_that_is_gone_is_forgotten() -> None:
    """What is kept is bounded by the outbox."""
    with delivering(a=Recorder()) as deliverer:
        deliverer.offer([errand("m1")])
        wait_until(lambda: bool(deliverer.deliveries()))
        deliverer.recorded({})
        assert deliverer.deliveries() == {}


def test_what_the_receiver_wishes_goes_with_the_answer() -> None:
    """410 is final; Retry-After becomes a time."""
    answers = {"m1": Answer(error="410", gone=True), "m2": Answer(error="503", wait=timedelta(minutes=2))}
    with delivering(a=Recorder(lambda id_: answers[id_])) as deliverer:
        deliverer.offer([errand("m1"), errand("m2")])
        wait_until(lambda: len(deliverer.deliveries()) == 2)
        found = deliverer.deliveries()
    assert (found["m1"].gone, found["m2"].not_before) == (True, NOW + timedelta(minutes=2))


def test_a_hung_receiver_holds_up_neither_the_loop_nor_another_receiver() -> None:
    """Its own workers and its own queue fill up; the rest stays in the outbox."""
    hold = threading.Event()

    def hang(_: str) -> Answer:
        hold.wait(10)
        return Answer(status=200)

    hung, well = Recorder(hang), Recorder()
    with delivering(hung=hung, well=well) as deliverer:
        deliverer.offer(errand(f"h{number}", "hung") for number in range(QUEUED + 100))
        deliverer.offer([errand("w1", "well")])
        wait_until(lambda: bool(well.sent))
        assert len(hung.sent) <= WORKERS
        hold.set()


def test_a_replica_that_does_not_lead_sends_nothing() -> None:
    """Asked right before the try; the row is the next leader's."""
    leads = threading.Event()
    sink = Recorder()
    with delivering(may_send=leads.is_set, a=sink) as deliverer:
        deliverer.offer([errand("m1")])
        wait_until(lambda: not deliverer._in_flight)
        assert (sink.sent, deliverer.deliveries()) == ([], {})
        leads.set()
        deliverer.offer([errand("m1")])
        wait_until(lambda: bool(deliverer.deliveries()))
    assert sink.sent == ["m1"]


def test_a_defect_in_a_sender_ends_neither_its_worker_nor_its_pages() -> None:
    """It is an answer like another, and tried again."""

    def fail(id_: str) -> Answer:
        if id_ == "m1":
            raise RuntimeError("boom")
        return Answer(status=200)

    with delivering(a=Recorder(fail)) as deliverer:
        deliverer.offer([errand("m1"), *(errand(f"n{number}") for number in range(WORKERS))])
        wait_until(lambda: len(deliverer.deliveries()) == WORKERS + 1)
        assert "boom" in deliverer.deliveries()["m1"].error


def test_an_unknown_sink_is_left_to_the_outbox() -> None:
    """The core says that it does not exist; here it is simply not taken."""
    with delivering(a=Recorder()) as deliverer:
        deliverer.offer([errand("m1", "b")])
        assert deliverer.deliveries() == {}
