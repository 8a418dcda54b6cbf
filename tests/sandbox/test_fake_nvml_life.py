"""The fake NVML over time: hangs, clients that come and go, several at once, read-only mounts, and nothing left behind."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sandbox.fake_nvml import LIBRARY, FakeDriver, make_gpus
from tests.sandbox.nvml_program import built_or_skip, go_on, run, running, said

_NOT_YET_S = 0.3  # long enough that a call which did come back would have said so

HANGS = """
    say("ready")
    sys.stdin.readline()
    say(code(nvmlDeviceGetName, h))
    say(code(nvmlDeviceGetUUID, h))
    sys.stdin.readline()
"""


@pytest.fixture
def driver(tmp_path: Path) -> FakeDriver:
    return FakeDriver(tmp_path / "root", make_gpus(2), built=built_or_skip())


def ended_within(process: subprocess.Popen[str], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def wait_until_called(driver: FakeDriver, call: str, gpu: int | None = 0) -> None:
    deadline = time.monotonic() + 10
    while not driver.calls().get((call, gpu)):
        assert time.monotonic() < deadline, f"{call} was not called"
        time.sleep(0.01)


def test_a_call_hangs_until_it_is_healed(driver: FakeDriver) -> None:
    """It does not come back by itself, then it does, and what comes then is the answer of that moment."""
    driver.hang("nvmlDeviceGetName", 0)
    with running(driver, HANGS) as process:
        assert said(process) == "ready"
        go_on(process)
        wait_until_called(driver, "nvmlDeviceGetName")
        time.sleep(_NOT_YET_S)
        assert ("nvmlDeviceGetUUID", 0) not in driver.calls()
        driver.answer("nvmlDeviceGetName", 999, 0)
        driver.answer("nvmlDeviceGetName", 15)
        driver.state()
        driver.heal("nvmlDeviceGetName", 0)
        assert said(process) == 15
        assert said(process) == 0


@pytest.mark.parametrize("blocks", [False, True], ids=["SIGTERM ends it", "SIGTERM does not end it"])
def test_a_hang_may_ignore_sigterm(driver: FakeDriver, blocks: bool) -> None:
    """As a call does that is stuck in the kernel; afterwards SIGTERM works as before."""
    driver.hang("nvmlDeviceGetName", blocks_sigterm=blocks)
    with running(driver, HANGS) as process:
        assert said(process) == "ready"
        go_on(process)
        wait_until_called(driver, "nvmlDeviceGetName")
        time.sleep(_NOT_YET_S)
        process.terminate()
        assert ended_within(process, _NOT_YET_S if blocks else 10) is not blocks
        if blocks:
            driver.heal()
            assert said(process) == 0
            assert said(process) == 0
            process.terminate()
            assert ended_within(process, 10)


def test_one_thread_hangs_and_the_others_go_on(driver: FakeDriver) -> None:
    """The other GPU can be asked while a call to the first is stuck, and a hang of every call spares the last one."""
    driver.hang("*", 0)
    program = """
        nvmlInit()
        other = nvmlDeviceGetHandleByIndex(1)
        thread = threading.Thread(target=nvmlDeviceGetHandleByIndex, args=(0,), daemon=True)
        thread.start()
        names = [nvmlDeviceGetName(other) for _ in range(100)]
        say([len(names), thread.is_alive(), code(nvmlShutdown)])
        os._exit(0)
    """
    assert run(driver, program, init=False) == [100, True, 0]


def test_clients_are_known_as_long_as_they_are_initialised(driver: FakeDriver) -> None:
    """The kernel keeps the list: shutdown, exit and SIGKILL all end it."""
    program = """
        say(os.getpid())
        sys.stdin.readline()
        nvmlShutdown()
        say(0)
        sys.stdin.readline()
        nvmlInit()
        say(0)
        sys.stdin.readline()
    """
    assert driver.clients() == ()
    with running(driver, program) as process:
        pid = said(process)
        assert driver.clients() == (pid,)
        go_on(process)
        said(process)
        assert driver.clients() == ()
        go_on(process)
        said(process)
        driver.wait_for_clients(1)
        process.kill()
        process.wait()
        driver.wait_for_clients(0)


def test_calls_are_counted_by_gpu(driver: FakeDriver) -> None:
    """So that a test can say: no more calls to that GPU, those that look for it included."""
    assert driver.calls() == {}
    run(
        driver,
        "nvmlDeviceGetName(h); say([nvmlDeviceGetName(nvmlDeviceGetHandleByIndex(1)) for _ in range(3)])",
    )
    calls = driver.calls()
    assert (calls["nvmlDeviceGetName", 0], calls["nvmlDeviceGetName", 1]) == (1, 3)
    assert calls["nvmlInitWithFlags", None] == 1
    assert (driver.calls_to(0), driver.calls_to(make_gpus(2)[1].uuid)) == (2, 6)


def test_nothing_is_left_behind_after_many_rounds(driver: FakeDriver) -> None:
    """Neither memory nor open files grow, over inits, event sets, handles and changes of the state."""
    program = """
        from pathlib import Path
        from sandbox.fake_nvml import FakeDriver
        from tests.sandbox.nvml_calls import codes
        driver = FakeDriver.attach(Path(sys.argv[1]).parents[3])
        def held():
            pages = int(open("/proc/self/statm").read().split()[1])
            return len(os.listdir("/proc/self/fd")), pages * 4
        def rounds(count):
            for number in range(count):
                nvmlInit()
                codes(nvmlDeviceGetHandleByIndex(number % 2))
                nvmlShutdown()
                if number % 5 == 0:
                    driver.event(0, 8, 79)
        nvmlShutdown()
        rounds(40)
        before = held()
        rounds(160)
        after = held()
        say([before, after])
    """
    (files, memory), (files_after, memory_after) = run(driver, program)
    assert files_after == files
    assert memory_after - memory < 512, f"{memory} KiB before, {memory_after} KiB after"


def test_readers_and_writers_at_once_see_whole_states(driver: FakeDriver) -> None:
    """Three threads and a second process read while the state changes; every answer is one of the two names."""
    program = """
        import threading
        seen, wrong = set(), []
        def read():
            until = time.monotonic() + 1.0
            while time.monotonic() < until:
                try:
                    seen.add(nvmlDeviceGetName(h))
                except NVMLError as error:
                    wrong.append(error.value)
        threads = [threading.Thread(target=read) for _ in range(3)]
        say("ready")
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        say([sorted(seen), wrong])
    """
    with running(driver, program) as one, running(driver, program) as other:
        said(one), said(other)
        until, number = time.monotonic() + 1.1, 0
        while time.monotonic() < until:
            number += 1
            driver.set(0, "name", f"name {number % 2}")
        for process in (one, other):
            names, wrong = said(process)
            assert wrong == []
            assert {"name 0", "name 1"} <= set(names)


def test_it_works_through_a_read_only_mount(driver: FakeDriver, tmp_path: Path) -> None:
    """As a pod has it by hostPath: answers and the list of clients work, counting quietly does not."""
    if os.geteuid() != 0:
        pytest.skip("a mount of its own needs root")
    inside = tmp_path / "inside"
    inside.mkdir()
    program = (
        "import ctypes, sys, pynvml; pynvml.nvmlLib = ctypes.CDLL(sys.argv[1]); pynvml.nvmlInit();"
        "print(pynvml.nvmlDeviceGetCount(), flush=True); sys.stdin.readline();"
        "print(pynvml.nvmlDeviceGetCount(), flush=True); sys.stdin.readline()"
    )
    mount = 'mount --bind "$1" "$2" && mount -o remount,bind,ro "$2" && exec "$3" -c "$4" "$5"'
    process = subprocess.Popen(
        [
            *("unshare", "--mount", "sh", "-c", mount, "sh"),
            *(str(driver.root), str(inside), sys.executable, program, str(inside / LIBRARY)),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        if not (first := process.stdout.readline()):
            pytest.skip(f"this machine lets nobody mount: {process.communicate()[1].strip()}")
        assert int(first) == 2
        assert driver.clients() == (process.pid,)
        driver.remove(0)
        go_on(process)
        assert int(process.stdout.readline()) == 1
        assert driver.calls() == {}
    finally:
        process.kill()
        process.communicate()
