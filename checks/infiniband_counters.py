"""What the counters of a port of the compute fabric say: growth within a window against a threshold, never a value. Pure.

A link that trains has errors, and so has one whose other end is switched off: what counts them is judged from one look at
which the port was active to the next such look.

The thresholds are NVSentinel's (nic-health-monitor) and, for EFA, those of Amazon's own alerts; what NVSentinel calls fatal
is a fault here and what it calls degraded a warning, but for rnr_nak_retry_err, which an application that died causes at
its healthy peers. A rate per second is judged over `window_seconds`, so that one burst is no rate. A counter that stopped
at its end tells nothing more; one that sank began anew, and what it shows then is no growth: a driver that was loaded anew
counts what it did to the link itself.
"""

from collections.abc import Iterator, Sequence

import msgspec

from checks import infiniband_reasons as reasons
from checks.check import Context
from checks.finding import Part, Reason
from checks.infiniband_names import BITS, CONGESTION, EFA_BYTES, EFA_EVENTS, EFA_PACKETS
from checks.infiniband_reading import PortReading
from checks.polled import Said, Word
from checks.rates import Rates

HOUR_S, MINUTE_S = 3600, 60


class CounterRule(msgspec.Struct, frozen=True, kw_only=True):
    """The counter `name` may not grow by more than the setting's value within `per_s` seconds."""

    reason: Reason
    name: str
    setting: str
    per_s: int = 1

    @property
    def is_of_signals(self) -> bool:
        """Whether a link that trains makes it grow too."""
        return self.name in OF_SIGNALS


OF_SIGNALS = {"symbol_error", "local_link_integrity_errors", "port_rcv_errors"}


def _rule(reason: Reason, name: str, setting: str, per_s: int) -> CounterRule:
    return CounterRule(reason=reason, name=name, setting=setting, per_s=per_s)


RULES = (
    _rule(reasons.SYMBOL_ERRORS, "symbol_error", "symbol_errors_per_hour", HOUR_S),
    _rule(reasons.LINK_INTEGRITY, "local_link_integrity_errors", "link_integrity_errors_per_hour", HOUR_S),
    _rule(reasons.BUFFER_OVERRUN, "excessive_buffer_overrun_errors", "buffer_overruns_per_hour", HOUR_S),
    _rule(reasons.RNR_RETRIES, "rnr_nak_retry_err", "rnr_retries_per_hour", HOUR_S),
    _rule(reasons.ERROR_RECOVERY, "link_error_recovery", "link_recoveries_per_minute", MINUTE_S),
    _rule(reasons.RECEIVE_ERRORS, "port_rcv_errors", "receive_errors_per_second", 1),
    _rule(reasons.DISCARDS, "port_xmit_discards", "discards_per_second", 1),
    _rule(reasons.ACK_TIMEOUTS, "local_ack_timeout_err", "ack_timeouts_per_second", 1),
    _rule(reasons.SLOW_RESTARTS, "roce_slow_restart", "slow_restarts_per_second", 1),
)
EFA_RULES = (
    (EFA_EVENTS, "efa_events_per_second"),
    ((EFA_PACKETS,), "efa_retransmitted_packets_per_second"),
    ((EFA_BYTES,), "efa_retransmitted_bytes_per_second"),
)
LONGEST_WINDOW_S = HOUR_S


class Counted:
    """The rates of one judgement: `short` over window_seconds, `hour`, and `long` over flap_window_hours."""

    def __init__(self, short: Rates, hour: Rates, long: Rates, context: Context) -> None:
        self.short, self.hour, self.long = short, hour, long
        self.settings = context.settings
        self.window_s = window_s(context)

    def grows(self, key: str, rule: CounterRule) -> bool:
        """Tell whether a counter grew by more than its rule allows."""
        most = int(self.settings[rule.setting])
        if rule.per_s == HOUR_S:
            return self.hour.grown(key, HOUR_S * 1000) > most
        return self.short.grown(key, self.window_s * 1000) > most * self.window_s // rule.per_s

    def count(self, key: str, value: int, rule: CounterRule, *, settled: bool) -> None:
        """Take a counter's value now; `settled`: the link was up from the last look to this one."""
        rates = self.hour if rule.per_s == HOUR_S else self.short
        if settled or not rule.is_of_signals:
            count_on(rates, key, value)
        else:
            rates.take(key, value)


def count_on(rates: Rates, key: str, value: int) -> None:
    """Count a counter's growth; one that sank began anew, which is no growth."""
    last = rates.last(key)
    if last is not None and value < last:
        rates.take(key, value)
    else:
        rates.count(key, value)


def window_s(context: Context) -> int:
    """Give the window for rates per second, within what can be."""
    return max(1, min(int(context.settings["window_seconds"]), LONGEST_WINDOW_S))


def counter_words(port: PortReading, part: Part, counted: Counted, *, settled: bool) -> Iterator[Word]:
    """Give the words about the counters of one port that is no EFA; `settled`: it was active from the last look to this."""
    values = {**port.hw_counters, **port.counters}
    ended = sorted(name for name, bits in BITS.items() if values.get(name, 0) >= 2**bits - 1)
    yield _word(
        Said.BAD if ended else Said.GOOD,
        reasons.SATURATED,
        part,
        f"{', '.join(ended)} cannot count on",
        values,
        ended,
    )
    silent = sorted({*ended, *(name for name in BITS if name not in values and name not in port.errors)})
    why = f"what it does not count: {', '.join(silent)}"
    for rule in RULES:
        name, key = rule.name, f"{part.name} {rule.name}"
        if name in port.errors:
            yield _word(Said.UNREADABLE, rule.reason, part, f"{name}: {port.errors[name]}")
            continue
        if name in values:
            counted.count(key, values[name], rule, settled=settled)
        if name in values and counted.grows(key, rule):
            detail = f"{name} grows by more than {_allowed(rule, counted)}"
            yield _word(Said.BAD, rule.reason, part, detail, values, [name])
        elif name in silent:
            yield _word(Said.NOT_SHOWN, rule.reason, part, why)
        elif name in values:
            yield _word(Said.GOOD, rule.reason, part)


def efa_words(port: PortReading, part: Part, counted: Counted) -> Iterator[Word]:
    """Give the word about the counters of an EFA device."""
    unread = [
        f"{name}: {port.errors[name]}" for names, _ in EFA_RULES for name in names if name in port.errors
    ]
    if unread:
        yield _word(Said.UNREADABLE, reasons.EFA_ERRORS, part, unread[0])
        return
    there = [name for names, _ in EFA_RULES for name in names if name in port.hw_counters]
    over: list[str] = []
    for names, setting in EFA_RULES:
        most = int(counted.settings[setting]) * counted.window_s
        for name in names:
            if name in there:
                count_on(counted.short, f"{part.name} {name}", port.hw_counters[name])
            if counted.short.grown(f"{part.name} {name}", counted.window_s * 1000) > most:
                over.append(name)
    if over:
        detail = f"{', '.join(over)} grow{'' if len(over) > 1 else 's'} faster than allowed"
        yield _word(Said.BAD, reasons.EFA_ERRORS, part, detail, port.hw_counters, over)
    elif there:
        yield _word(Said.GOOD, reasons.EFA_ERRORS, part)
    else:
        yield _word(Said.NOT_SHOWN, reasons.EFA_ERRORS, part, "its driver counts no errors")


def _allowed(rule: CounterRule, counted: Counted) -> str:
    per = {HOUR_S: "an hour", MINUTE_S: "a minute"}.get(rule.per_s, "a second")
    return f"{counted.settings[rule.setting]} {per}"


def _word(
    said: Said,
    reason: Reason,
    part: Part,
    detail: str = "",
    values: dict[str, int] | None = None,
    names: Sequence[str] = (),
) -> Word:
    held = values or {}
    lines = tuple(f"{name} {held[name]}" for name in (*names, CONGESTION) if name in held)
    return Word(said=said, reason=reason, part=part, detail=detail, evidence=lines)
