"""Tests of the NVML child as a process, on the fake driver: what it says for every answer, and what it costs."""

import re
from pathlib import Path

import pynvml
import pytest

from agent.nvml_wire import FailedSaid, RoundSaid
from tests.agent.nvml.driver import Asking, asking, lay_out, parts

CODES = [*sorted(pynvml.NVMLError._errcode_to_string), 19, 21, 23, 27, 30, 777]
OF_THE_DRIVER = {1, 9, 18}
ABSENT = {3, 13}
PROBES = {
    "nvmlDeviceGetUUID": "uuid",
    "nvmlDeviceGetSerial": "serial",
    "nvmlDeviceGetName": "model",
    "nvmlDeviceGetMinorNumber": "minor",
    "nvmlDeviceGetMigMode": "mig",
}
KNOWN = tuple((part.index or 0, part.pci) for part in parts(2))


def said(child: Asking) -> RoundSaid:
    answer = child.ask()
    assert isinstance(answer, RoundSaid), answer
    return answer


def test_a_round_says_what_each_gpu_is(tmp_path: Path) -> None:
    """Versions, count, and of each GPU all that identifies it; each call was announced with its GPU."""
    fake = lay_out(tmp_path)
    fake.field(1, 230, 2)
    fake.mig(1, True)
    with asking(tmp_path) as child:
        answer = said(child)
    assert (answer.count, answer.driver, answer.library) == (2, "580.95.05", "13.580.95.05")
    second = answer.gpus[1]
    values = fake.state().gpus[1]
    assert (second.index, second.pci, second.uuid) == (1, parts()[1].pci, values["uuid"])
    assert (second.serial, second.model, second.minor) == (values["serial"], "NVIDIA H100 80GB HBM3", 1)
    assert (second.mig, second.recovery, second.errors) == (True, 2, ())
    assert ("nvmlDeviceGetSerial", 1, second.pci) in [(c.call, c.index, c.pci) for c in child.calls]
    assert set(answer.spent_us) == {"init", "system", "handles", "identity", "fields", "health"}


def test_what_programs_may_use_of_the_memory_is_asked_once(tmp_path: Path) -> None:
    """The whole less the driver's reserve; a refusal is an error of that GPU and asked again, an old library knows none."""
    fake = lay_out(tmp_path)
    call = "nvmlDeviceGetMemoryInfo_v2"
    fake.answer(call, 999, gpu=0)
    with asking(tmp_path) as child:
        first, second = said(child).gpus
        assert (first.memory_mib, [error.call for error in first.errors]) == (None, [call])
        fake.heal()
        first, again = said(child).gpus
        assert again.memory_mib == second.memory_mib == first.memory_mib
        fake.answer(call, 999)
        assert [(gpu.memory_mib, gpu.errors) for gpu in said(child).gpus] == [(first.memory_mib, ())] * 2
    total, reserved, _ = (int(number) for number in str(fake.state().gpus[1]["memory"]).split())
    assert first.memory_mib == (total - reserved) >> 20
    assert reserved > 0
    fake.answer(call, 13)
    with asking(tmp_path) as child:
        assert [(gpu.memory_mib, gpu.errors) for gpu in said(child).gpus] == [(None, ())] * 2


@pytest.mark.parametrize("call", PROBES)
def test_any_answer_to_a_call_of_one_gpu(tmp_path: Path, call: str) -> None:
    """A value, an error of that GPU alone, nothing for what the hardware lacks, or the end where it is the driver's."""
    fake = lay_out(tmp_path)
    with asking(tmp_path) as child:
        said(child)
        for code in sorted(set(CODES) - OF_THE_DRIVER - ABSENT):
            fake.answer(call, code, gpu=0)
            first, second = said(child).gpus
            assert [(error.call, error.code) for error in first.errors] == [(call, code)]
            assert re.fullmatch("[A-Z][A-Za-z]+|Code777", first.errors[0].name), first.errors
            assert not second.errors
            assert getattr(second, PROBES[call]) not in (None, "")
        for code in sorted(ABSENT):
            fake.answer(call, code, gpu=code == 13)
            assert not [gpu.errors for gpu in said(child).gpus if gpu.errors]
        fake.heal()
        assert getattr(said(child).gpus[0], PROBES[call]) in (None, ""), "what is absent is asked once only"


@pytest.mark.parametrize("code", sorted(OF_THE_DRIVER))
def test_an_answer_that_is_the_drivers_ends_the_round(tmp_path: Path, code: int) -> None:
    """From whatever call it comes, NVML as a whole cannot be used, and the child ends."""
    fake = lay_out(tmp_path)
    with asking(tmp_path) as child:
        said(child)
        fake.answer("nvmlDeviceGetName", code, gpu=1)
        answer = child.ask()
        assert isinstance(answer, FailedSaid)
        assert (answer.error.call, answer.error.code) == ("nvmlDeviceGetName", code)
        assert child.process.how_ended(5.0) == "exit status 1"


@pytest.mark.parametrize("code", [4, 9, 12, 15, 18, 999, 777])
@pytest.mark.parametrize("call", ["nvmlInitWithFlags", "nvmlDeviceGetCount_v2"])
def test_nvml_that_cannot_be_used_is_said_with_its_code(tmp_path: Path, call: str, code: int) -> None:
    """Every code of a call that is about no GPU."""
    lay_out(tmp_path).answer(call, code)
    with asking(tmp_path) as child:
        answer = child.ask()
    assert isinstance(answer, FailedSaid)
    assert (answer.error.call, answer.error.code) == (call, code)


def test_a_root_without_the_library_is_named(tmp_path: Path) -> None:
    """LibraryNotFound, and where it was looked for."""
    with asking(tmp_path) as child:
        answer = child.ask()
    assert isinstance(answer, FailedSaid)
    assert answer.error.name == "LibraryNotFound"
    assert str(tmp_path) in answer.detail


def test_a_library_that_is_none_is_not_found(tmp_path: Path) -> None:
    """A file that cannot be loaded is said with the loader's words."""
    library = lay_out(tmp_path).library
    library.write_bytes(b"no library")
    with asking(tmp_path) as child:
        answer = child.ask()
    assert isinstance(answer, FailedSaid)
    assert "libnvidia-ml.so.1" in answer.detail


def test_a_library_that_was_replaced_is_out_of_date(tmp_path: Path) -> None:
    """What is mapped goes on answering; only a new process meets what whoever starts now will meet."""
    library = lay_out(tmp_path).library
    with asking(tmp_path) as child:
        said(child)
        newer = library.with_suffix(".new")
        newer.write_bytes(library.read_bytes())
        newer.replace(library)
        answer = child.ask()
        assert isinstance(answer, FailedSaid), answer
        assert answer.error.name == "LibRmVersionMismatch"
        assert str(library) in answer.detail
        assert child.process.how_ended(5.0) == "exit status 1"


def test_a_library_that_was_taken_away_is_not_found(tmp_path: Path) -> None:
    """A driver that is taken off the disk goes on answering from memory."""
    library = lay_out(tmp_path).library
    with asking(tmp_path) as child:
        said(child)
        library.unlink()
        answer = child.ask()
        assert isinstance(answer, FailedSaid), answer
        assert answer.error.name == "LibraryNotFound"


def test_an_older_driver_lacks_functions(tmp_path: Path) -> None:
    """What it does not have is left open, and nothing is an error."""
    fake = lay_out(tmp_path)
    for symbol in ("nvmlDeviceGetMigMode", "nvmlDeviceGetFieldValues", "nvmlDeviceGetSerial"):
        fake.omit(symbol)
    with asking(tmp_path) as child:
        first = said(child).gpus[0]
    assert (first.mig, first.recovery, first.serial, first.errors) == (None, None, "", ())


def test_an_answer_that_passes_at_once_is_asked_again(tmp_path: Path) -> None:
    """Unknown, out of memory and their like are asked once more before they are said."""
    fake = lay_out(tmp_path, 1)
    fake.answer("nvmlDeviceGetName", 999)
    with asking(tmp_path) as child:
        said(child)
        assert [call.call for call in child.calls].count("nvmlDeviceGetName") == 2


def test_nvml_may_touch_the_entry_past_the_last_field_value(tmp_path: Path) -> None:
    """It does on some queries; then it is ours to be touched."""
    fake = lay_out(tmp_path)
    fake.setting("touch_past_end", 1)
    fake.field(0, 230, 1)
    with asking(tmp_path) as child:
        for _ in range(50):
            answer = said(child)
    assert [gpu.recovery for gpu in answer.gpus] == [1, 0]


def test_a_gpu_that_is_left_alone_is_not_touched(tmp_path: Path) -> None:
    """The others are found by their address; a child that never asked it before does not begin to."""
    fake = lay_out(tmp_path, 3)
    known = tuple((part.index or 0, part.pci) for part in parts(3))
    with asking(tmp_path) as child:
        answer = child.ask(known=known, quiet=(known[1][1],))
    assert isinstance(answer, RoundSaid)
    assert [gpu.index for gpu in answer.gpus] == [0, 2]
    assert (answer.count, fake.calls_to(1)) == (3, 0)


def test_what_only_sysfs_shows_is_no_answer(tmp_path: Path) -> None:
    """Asked by address, a GPU that the driver does not count is left out, as it is by index."""
    lay_out(tmp_path).remove(0)
    with asking(tmp_path) as child:
        answer = child.ask(known=KNOWN, by_pci=True)
    assert isinstance(answer, RoundSaid)
    assert (answer.count, [(gpu.index, gpu.pci) for gpu in answer.gpus]) == (1, [(0, KNOWN[1][1])])


def test_no_gpu_at_all_is_counted_as_zero(tmp_path: Path) -> None:
    """A driver without GPUs is a count, not a failure."""
    fake = lay_out(tmp_path)
    fake.remove(0)
    fake.remove(1)
    with asking(tmp_path) as child:
        assert said(child).count == 0
