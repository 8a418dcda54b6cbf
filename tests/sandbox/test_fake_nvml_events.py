"""Events of the fake NVML: who gets which, waits that end by time, and the loop that a lost GPU makes."""

from pathlib import Path

import pytest

from sandbox.fake_nvml import FakeDriver, make_gpus
from tests.sandbox.nvml_program import built_or_skip, run, running, said

BEGIN = """
    from pathlib import Path
    from sandbox.fake_nvml import FakeDriver
    driver = FakeDriver.attach(Path(sys.argv[1]).parents[3])
    other = nvmlDeviceGetHandleByIndex(1)
    events = nvmlEventSetCreate()
    def wait(milliseconds):
        try:
            event = nvmlEventSetWait_v2(events, milliseconds)
        except NVMLError as error:
            return error.value
        same = ctypes.cast(event.device, ctypes.c_void_p).value == ctypes.cast(h, ctypes.c_void_p).value
        return [same, event.eventType, event.eventData, event.gpuInstanceId]
    nvmlDeviceRegisterEvents(h, 8 | 2, events)
"""
NONE, TIMEOUT, LOST = 0xFFFFFFFF, 10, 15


@pytest.fixture
def driver(tmp_path: Path) -> FakeDriver:
    return FakeDriver(tmp_path / "root", make_gpus(2), built=built_or_skip())


def test_only_what_was_registered_for_and_only_what_came_afterwards(driver: FakeDriver) -> None:
    """An older event, another bit and another GPU are not delivered; the rest is, in order, once."""
    driver.event(0, 8, 13)
    program = (
        BEGIN
        + """
    driver.event(1, 8, 31)
    driver.event(0, 0x100)
    driver.event(0, 8, 79)
    driver.event(0, 2, 0, gpu_instance=3)
    story = [wait(0), wait(0), wait(0)]
    nvmlDeviceRegisterEvents(other, 8, events)
    driver.event(1, 8, 48)
    say([*story, wait(0), wait(0), code(nvmlEventSetFree, events), code(nvmlEventSetFree, events)])
    """
    )
    assert run(driver, program) == [
        [True, 8, 79, NONE],
        [True, 2, 0, 3],
        TIMEOUT,
        [False, 8, 48, NONE],
        TIMEOUT,
        0,
        2,
    ]


def test_a_wait_ends_when_something_happens(driver: FakeDriver) -> None:
    """Long before its time is up; without an event it ends by its time."""
    program = (
        BEGIN
        + """
    began = time.monotonic()
    say("waiting")
    event = wait(20000)
    took = time.monotonic() - began
    began = time.monotonic()
    timeout = wait(150)
    say([event, took < 5, timeout, 0.1 < time.monotonic() - began < 5])
    """
    )
    with running(driver, program) as process:
        assert said(process) == "waiting"
        driver.event(0, 8, 119)
        assert said(process) == [[True, 8, 119, NONE], True, TIMEOUT, True]


def test_an_unsupported_bit_makes_the_registration_fail(driver: FakeDriver) -> None:
    """Nothing of it is registered then, the supported bits neither."""
    driver.set(0, "event_types", 8)
    program = """
        from pathlib import Path
        from sandbox.fake_nvml import FakeDriver
        events = nvmlEventSetCreate()
        refused = code(nvmlDeviceRegisterEvents, h, 8 | 2, events)
        FakeDriver.attach(Path(sys.argv[1]).parents[3]).event(0, 8, 79)
        try:
            nvmlEventSetWait_v2(events, 0)
        except NVMLError as error:
            say([refused, nvmlDeviceGetSupportedEventTypes(h), error.value])
    """
    assert run(driver, program) == [3, 8, TIMEOUT]


def test_a_lost_gpu_makes_every_wait_fail_at_once(driver: FakeDriver) -> None:
    """What was said before is delivered still; a set without that GPU waits as before."""
    program = (
        BEGIN
        + """
    without = nvmlEventSetCreate()
    nvmlDeviceRegisterEvents(other, 8, without)
    driver.event(0, 8, 79)
    driver.lose(0)
    began = time.monotonic()
    story = [wait(20000), wait(20000), wait(20000), time.monotonic() - began < 5]
    events = without
    say([*story, wait(10)])
    """
    )
    assert run(driver, program) == [[True, 8, 79, NONE], LOST, LOST, True, TIMEOUT]


@pytest.mark.parametrize(
    ("change", "code"), [("unload()", 9), ("mismatch()", 18)], ids=["unloaded", "another driver"]
)
def test_a_wait_ends_with_the_driver(driver: FakeDriver, change: str, code: int) -> None:
    """A driver that goes away under a wait ends it with its code."""
    program = BEGIN + f'    say("waiting")\n    driver.{change}\n    say(wait(20000))\n'
    assert run(driver, program) == code


def test_a_set_can_be_freed_and_the_library_shut_down_under_a_wait(driver: FakeDriver) -> None:
    """The real one crashes there; this one ends the wait, so that a test fails with words."""
    program = (
        BEGIN
        + """
    answers = []
    thread = threading.Thread(target=lambda: answers.append(wait(20000)))
    thread.start()
    time.sleep(0.1)
    nvmlShutdown()
    thread.join(10)
    say(answers)
    """
    )
    assert run(driver, program) == [1]


def test_system_events_tell_of_a_driver_bound_and_unbound(driver: FakeDriver) -> None:
    """Several come at once, the GPU as the number of its address; without any the list is empty."""
    program = """
        from pathlib import Path
        from sandbox.fake_nvml import FakeDriver
        driver = FakeDriver.attach(Path(sys.argv[1]).parents[3])
        events = nvmlSystemEventSetCreate(nvmlSystemEventSetCreateRequest_v1)
        nvmlSystemRegisterEvents(nvmlSystemRegisterEventRequest_v1, 3, events)
        room = (c_nvmlSystemEventData_v1_t * 4)()
        def wait(): return nvmlSystemEventSetWait(nvmlSystemEventSetWaitRequest_v1, events, 10, room, 4)
        driver.system_event(0, 1)
        driver.system_event(1, 2)
        driver.event(0, 8, 79)
        say([wait(), wait()])
    """
    assert run(driver, program) == [
        [{"eventType": 1, "gpuId": 0x1800}, {"eventType": 2, "gpuId": 0x2A00}],
        [],
    ]
