"""Timestamps as the API server accepts them.

`metav1.Time` takes RFC 3339 in whole seconds; `metav1.MicroTime` (Lease, Event) is parsed with a layout of exactly six
fraction digits, so the fraction is written even where it is zero (k8s.io/apimachinery, meta/v1/micro_time.go).
"""

from datetime import UTC, datetime


def rfc3339(at: datetime) -> str:
    """Write `at` in UTC to the second, as 2026-01-31T08:15:00Z. Raises ValueError where `at` has no time zone."""
    return _utc(at).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time(at: datetime) -> str:
    """Write `at` in UTC to the microsecond, always with six digits. Raises ValueError where `at` has no time zone."""
    return _utc(at).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _utc(at: datetime) -> datetime:
    if at.tzinfo is None:
        raise ValueError(f"{at.isoformat()} has no time zone: give a UTC-aware datetime")
    return at.astimezone(UTC)
