"""The kernel log's reader: bounded, never silent about a failure, and never in the way of the loop."""

from random import Random

from agent.host.kmsg import Cursor
from agent.reader import STALE_S, Batch, Inbox, KernelLogFeed, Reader
from checks.observation import KERNEL_LOG, Observation, SourceFailed, SourceRead
from tests.fakes import EPOCH, FakeClock, wait_until

READ = SourceRead(source=KERNEL_LOG, seen_at=EPOCH)


class ScriptedSource:
    """A source that gives one answer after the other, then nothing."""

    def __init__(self, *answers: list[Observation] | Exception) -> None:
        self.answers = list(answers)
        self.cursor = Cursor(boot_id="boot-1", sequence=7)
        self.closed = False

    def poll(self, timeout_s: float) -> list[Observation]:  # noqa: ARG002 - the Protocol's signature
        answer = self.answers.pop(0) if self.answers else []
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.closed = True


def taken(inbox: Inbox) -> list[Observation]:
    return [seen for batch in inbox.take() for seen in batch.observations]


def test_what_is_read_arrives_with_its_cursor_and_wakes_the_loop() -> None:
    """The cursor is the source's after the poll, so what was judged is not read again."""
    woken: list[int] = []
    inbox = Inbox(lambda: woken.append(1))
    Reader(ScriptedSource([READ]), inbox, FakeClock().clock, Random(1)).round()
    assert inbox.take() == [Batch(observations=(READ,), cursor=Cursor(boot_id="boot-1", sequence=7))]
    assert woken == [1]


def test_nothing_read_wakes_nobody() -> None:
    """An idle log costs no round of the loop."""
    woken: list[int] = []
    inbox = Inbox(lambda: woken.append(1))
    Reader(ScriptedSource([]), inbox, FakeClock().clock, Random(1)).round()
    assert (inbox.take(), woken) == ([], [])


def test_a_source_that_raises_is_a_source_that_failed() -> None:
    """The error is named, its tries are counted, and the reader goes on."""
    inbox = Inbox(lambda: None)
    source = ScriptedSource(ValueError("odd"), ValueError("odd"), [READ])
    reader = Reader(source, inbox, FakeClock().clock, Random(1))
    reader.stop(timeout_s=0)  # so that the pause after a failure is none
    for _ in range(3):
        reader.round()
    assert [(s.error, s.tries) if isinstance(s, SourceFailed) else s for s in taken(inbox)] == [
        ("ValueError: odd", 1),
        ("ValueError: odd", 2),
        READ,
    ]


def test_a_full_box_makes_the_reader_wait() -> None:
    """What does not fit stays in the kernel, where its loss is counted."""
    inbox = Inbox(lambda: None, limit=2)
    batch = Batch(observations=(READ, READ))
    assert inbox.put(batch, timeout_s=0)
    assert not inbox.put(batch, timeout_s=0)
    inbox.take()
    assert inbox.put(batch, timeout_s=0)


def test_a_reader_that_hangs_is_a_source_that_cannot_be_read() -> None:
    """A read that does not come back is said once a minute, as a failure beyond its tries."""
    clock = FakeClock()
    source = ScriptedSource()
    feed = KernelLogFeed(lambda boot_id, cursor: source, clock.clock, Random(1), lambda: None)  # noqa: ARG005
    assert feed.hangs_s(clock.monotonic()) == 0
    feed.begin("boot-1", None)
    feed.end()
    wait_until(lambda: source.closed)
    feed._reader = Reader(source, Inbox(lambda: None), clock.clock, Random(1))
    clock.advance(STALE_S + 1)
    said = feed.take()[0] + feed.take()[0]
    assert [isinstance(seen, SourceFailed) and seen.tries for seen in said] == [3]
    clock.advance(STALE_S + 1)
    assert len(feed.take()[0]) == 1


def test_a_feed_that_ended_can_begin_with_another_boot() -> None:
    """What the reader of the old boot still held is dropped with it."""
    clock = FakeClock()
    began: list[tuple[str, Cursor | None]] = []

    def open_log(boot_id: str, cursor: Cursor | None) -> ScriptedSource:
        began.append((boot_id, cursor))
        return ScriptedSource([READ])

    feed = KernelLogFeed(open_log, clock.clock, Random(1), lambda: None)
    feed.begin("boot-1", None)
    feed.end()
    assert not feed.begun
    assert feed.take() == ([], None)
    feed.begin("boot-2", Cursor(boot_id="boot-2", sequence=3))
    wait_until(lambda: bool(feed.take()[0]))
    feed.end()
    assert began == [("boot-1", None), ("boot-2", Cursor(boot_id="boot-2", sequence=3))]
