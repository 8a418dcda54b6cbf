"""`nodemend-agent reset-gpu --uuid U [--uuid V] --boot-id ID`: reset these GPUs and no others, and prove it for each.

Nothing is reset unless all of them may be: another boot, MIG, GPUs that can only be reset together, or anybody who still has
one of them open ends it with the reason, before anything is changed. The one thing that only the host can stop is
persistence mode: it is switched off for these GPUs and back on afterwards, whatever comes of the reset.

Each GPU has a row in the report, which is left as JSON where the Job's termination message is read. Exit 0 all of them were
reset and answer, 1 refused or failed, 2 bad use, 3 the machine lacks something.
"""

import re
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path

import msgspec

from agent.config import Config
from agent.host.boot import BootIdUnreadable, read_boot_id
from agent.host.gpu_clients import clients_of
from agent.host.inventory import Gpu, Inventory, read_inventory
from agent.host.nvidia_smi import Answer, NvidiaSmi, NvidiaSmiMissing
from agent.host.nvswitch import has_nvswitch
from kube.clock import Clock

MOST_GPUS = 16
MESSAGE_LIMIT_BYTES = 4096

_UUID = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# nvidia-smi(1), --gpu-reset. Older than Ampere: only together with every NVLink peer.
_BEFORE_AMPERE = re.compile(r"\b[VP]100[ -]SXM", re.IGNORECASE)
_AMPERE_SXM = re.compile(r"\bA[18]00[ -]SXM", re.IGNORECASE)
_QUERY_S = 30.0
_RESET_S = 180.0
_CLIENTS_S = 60.0  # a client that was just told to go may take its grace
_ANSWERS_S = 60.0
_LOOK_S = 2.0
_SHOWN_CLIENTS = 4
_NOTHING_TO_DO = ("None", "N/A", "[N/A]", "[Not Supported]")


class Result(StrEnum):
    RESET = "Reset"
    REFUSED = "Refused"
    FAILED = "Failed"
    MISSING = "Missing"
    NOT_TRIED = "NotTried"


EXIT_CODES = {Result.RESET: 0, Result.REFUSED: 1, Result.FAILED: 1, Result.MISSING: 3}


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One GPU, or the machine; `at` is when the GPU answered again, by this machine's clock."""

    name: str
    result: Result
    message: str = ""
    at: datetime | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. `checks` are named as in the report of `validate`, so that one reader serves both."""

    result: Result
    boot_id: str = msgspec.field(name="bootID")
    checks: tuple[Row, ...] = ()


class _Stopped(Exception):
    """It ends here, with this report."""

    def __init__(self, result: Result, name: str, message: str) -> None:
        super().__init__(message)
        self.row = Row(name=name, result=result, message=message)


def why_not_uuids(uuids: Sequence[str]) -> str | None:
    """Say what is wrong with the GPUs that were named, or None."""
    if not 1 <= len(uuids) <= MOST_GPUS:
        return f"{len(uuids)} GPUs are named; give 1 to {MOST_GPUS}"
    for uuid in uuids:
        if not _UUID.fullmatch(uuid):
            return (
                f"--uuid {uuid!r} is no UUID of a GPU; it looks like GPU-8a1f0f4e-11d2-4c8b-9f57-0f6d4c1a2b3c"
            )
    return "a GPU is named twice" if len(set(uuids)) < len(uuids) else None


def reset_gpus(
    config: Config,
    uuids: Sequence[str],
    boot_id: str,
    clock: Clock,
    *,
    timeout_s: float,
    driver_root: Path | None = None,
) -> Report:
    """Reset the GPUs if `boot_id` is the present boot, within about `timeout_s` seconds. Never raises."""
    run = _Run(config, clock, clock.monotonic() + timeout_s)
    try:
        rows = run.reset(uuids, boot_id, driver_root or config.nvml.driver_root)
    except _Stopped as stopped:
        rest = [Row(name=uuid, result=Result.NOT_TRIED) for uuid in uuids if uuid != stopped.row.name]
        return Report(result=stopped.row.result, boot_id=boot_id, checks=(stopped.row, *rest))
    done = all(row.result is Result.RESET for row in rows)
    return Report(result=Result.RESET if done else Result.FAILED, boot_id=boot_id, checks=rows)


class _Run:
    def __init__(self, config: Config, clock: Clock, deadline: float) -> None:
        self._config = config
        self._clock = clock
        self._deadline = deadline

    def reset(self, uuids: Sequence[str], boot_id: str, driver_root: Path) -> tuple[Row, ...]:
        gpus = self._look(uuids, boot_id)
        try:
            smi = NvidiaSmi(driver_root)
        except NvidiaSmiMissing as error:
            raise _Stopped(Result.MISSING, "nvidia-smi", str(error)) from None
        persistent = [gpu for gpu in gpus if self._is_persistent(smi, gpu)]
        words: list[str] = []
        try:
            words += [self._switch_persistence(smi, gpu, on=False) for gpu in persistent]
            for gpu in gpus:
                self._wait_for_nobody(gpu)
            rows = self._reset_each(smi, gpus)
        finally:
            # Also the ones that were not reached: switching on what is on changes nothing.
            words += [self._switch_persistence(smi, gpu, on=True) for gpu in persistent]
        return _with_words(rows, [word for word in words if word])

    # Before anything is changed

    def _look(self, uuids: Sequence[str], boot_id: str) -> tuple[Gpu, ...]:
        roots = self._config.roots
        try:
            current = read_boot_id(roots.proc)
        except BootIdUnreadable as error:
            raise _Stopped(Result.MISSING, "boot", f"the present boot id is unreadable: {error}") from None
        if current != boot_id:
            raise _Stopped(Result.REFUSED, "boot", f"this is boot {current}, boot {boot_id} is over")
        inventory = read_inventory(roots.sys, roots.proc)
        if not isinstance(inventory, Inventory):
            raise _Stopped(Result.MISSING, "gpus", inventory.error)
        known = {gpu.part.uuid: gpu for gpu in inventory.gpus}
        for uuid in uuids:
            if uuid not in known:
                raise _Stopped(Result.REFUSED, uuid, "the driver shows no GPU with this UUID")
            if why := self._why_only_together(known[uuid]):
                raise _Stopped(Result.REFUSED, uuid, why)
        return tuple(known[uuid] for uuid in uuids)

    def _why_only_together(self, gpu: Gpu) -> str | None:
        if not gpu.model:
            return "the driver does not say which model it is"
        if _BEFORE_AMPERE.search(gpu.model):
            return f"{gpu.model}: GPUs older than Ampere are reset together with all their NVLink peers"
        if _AMPERE_SXM.search(gpu.model):
            try:
                switched = has_nvswitch(self._config.roots.sys)
            except OSError as error:
                return f"{gpu.model}: cannot tell whether NVSwitches join it to others ({error})"
            if switched:
                return f"{gpu.model} on a board with NVSwitches cannot be counted on to be reset alone"
        return None

    def _is_persistent(self, smi: NvidiaSmi, gpu: Gpu) -> bool:
        """Tell whether persistence mode is on. Stops under MIG: a reset would end every instance of the GPU."""
        uuid = gpu.part.uuid
        answer = self._query(smi, uuid, "uuid,persistence_mode,mig.mode.current")
        words = answer.lines[-1].split(", ") if answer.status == 0 and answer.lines else []
        if len(words) != 3 or words[0] != uuid:
            # A GPU that waits for its reset may say nothing more. Its MIG instances stand in procfs all the same.
            words = [uuid, "", ""]
        mig = words[2]
        if mig == "Enabled" or (mig != "Disabled" and _mig_instances(self._config.roots.proc, gpu)):
            raise _Stopped(Result.REFUSED, uuid, "MIG is on: a reset would end every instance on this GPU")
        return words[1] == "Enabled"

    # Changing

    def _switch_persistence(self, smi: NvidiaSmi, gpu: Gpu, *, on: bool) -> str:
        """Switch it; give what went wrong. That it is still on shows at the reset itself."""
        uuid = gpu.part.uuid
        answer = smi.run("-pm", "1" if on else "0", "-i", uuid, timeout_s=_QUERY_S)
        if answer.status == 0:
            return ""
        return (
            f"persistence mode of {uuid} could not be switched {'on again' if on else 'off'}: {answer.said}"
        )

    def _wait_for_nobody(self, gpu: Gpu) -> None:
        if gpu.minor is None:
            return  # whose it is cannot be told; the driver refuses by itself
        until = min(self._deadline, self._clock.monotonic() + _CLIENTS_S)
        while clients := clients_of(self._config.roots.proc, gpu.minor):
            if self._clock.monotonic() >= until:
                shown = ", ".join(client.shown() for client in clients[:_SHOWN_CLIENTS])
                more = f" and {len(clients) - _SHOWN_CLIENTS} more" if len(clients) > _SHOWN_CLIENTS else ""
                raise _Stopped(Result.REFUSED, gpu.part.uuid, f"it is held by {shown}{more}")
            self._clock.sleep(_LOOK_S)

    def _reset_each(self, smi: NvidiaSmi, gpus: Sequence[Gpu]) -> tuple[Row, ...]:
        rows: list[Row] = []
        for gpu in gpus:
            uuid = gpu.part.uuid
            if rows and rows[-1].result is not Result.RESET:
                rows.append(Row(name=uuid, result=Result.NOT_TRIED))
                continue
            answer = smi.run("--gpu-reset", "-i", uuid, timeout_s=min(_RESET_S, self._left_s()))
            why = (
                self._why_not_well(smi, uuid)
                if answer.status == 0
                else answer.said or f"status {answer.status}"
            )
            if why:
                rows.append(Row(name=uuid, result=Result.FAILED, message=why))
            else:
                rows.append(Row(name=uuid, result=Result.RESET, at=self._clock.now()))
        return tuple(rows)

    def _why_not_well(self, smi: NvidiaSmi, uuid: str) -> str:
        """Say what is missing from the proof: the driver initialises a GPU again only when it is first asked."""
        until = min(self._deadline, self._clock.monotonic() + _ANSWERS_S)
        while True:
            why = self._why_not_answering(smi, uuid)
            if not why or self._clock.monotonic() >= until:
                return why
            self._clock.sleep(_LOOK_S)

    def _why_not_answering(self, smi: NvidiaSmi, uuid: str) -> str:
        answer = self._query(smi, uuid, "uuid")
        if answer.status != 0 or answer.lines[-1:] != (uuid,):
            return f"nvidia-smi does not answer for it after the reset: {answer.said or 'nothing said'}"
        asked = self._query(smi, uuid, "gpu_recovery_action")
        # A driver that is older than the field has nothing to add.
        action = asked.lines[-1] if asked.status == 0 and asked.lines else _NOTHING_TO_DO[0]
        return "" if action in _NOTHING_TO_DO else f"after the reset the driver asks for {action!r}"

    def _query(self, smi: NvidiaSmi, uuid: str, fields: str) -> Answer:
        return smi.run(f"--query-gpu={fields}", "--format=csv,noheader", "-i", uuid, timeout_s=_QUERY_S)

    def _left_s(self) -> float:
        return max(1.0, self._deadline - self._clock.monotonic())


def _mig_instances(proc_root: Path, gpu: Gpu) -> bool:
    """Tell whether the kernel driver lists a GPU instance (gi0, gi1, ...) of this GPU."""
    folder = proc_root / "driver/nvidia/capabilities" / f"gpu{gpu.minor}" / "mig"
    try:
        return any(entry.name.startswith("gi") for entry in folder.iterdir())
    except OSError:
        return False


def _with_words(rows: tuple[Row, ...], words: Sequence[str]) -> tuple[Row, ...]:
    """Add what went wrong in passing to the first row; it takes nothing from the reset."""
    if not words or not rows:
        return rows
    message = "; ".join(filter(None, (rows[0].message, *words)))
    return (msgspec.structs.replace(rows[0], message=message), *rows[1:])


def as_text(report: Report) -> str:
    """Write the report for people."""
    rows = [f"  {row.result:<8} {row.name}: {row.message}".rstrip(": ") for row in report.checks]
    return "\n".join([f"{report.result}: boot {report.boot_id}", *rows])


def termination_message(report: Report, limit: int = MESSAGE_LIMIT_BYTES) -> bytes:
    """Write the report as JSON of at most `limit` bytes, which cuts words before rows."""
    for longest in (1024, 200, 60, 0):
        rows = tuple(msgspec.structs.replace(row, message=row.message[:longest]) for row in report.checks)
        raw = msgspec.json.encode(msgspec.structs.replace(report, checks=rows))
        if len(raw) <= limit:
            return raw
    return msgspec.json.encode(msgspec.structs.replace(report, checks=()))
