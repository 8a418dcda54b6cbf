"""What the agents themselves say, read from their /metrics."""

from collections.abc import Iterable, Mapping

import urllib3
from prometheus_client.parser import text_string_to_metric_families

_TIMEOUT = urllib3.Timeout(connect=2, read=5)


def scrape(addresses: Iterable[str]) -> dict[str, float]:
    """Add up every sample of all agents' /metrics, by name without labels. Raises urllib3's HTTPError."""
    pool = urllib3.PoolManager(retries=False, timeout=_TIMEOUT)
    try:
        return added(pool.request("GET", f"http://{address}/metrics").data.decode() for address in addresses)
    finally:
        pool.clear()


def added(pages: Iterable[str]) -> dict[str, float]:
    """Add up the samples of several pages in Prometheus' text format, by name without labels."""
    sums: dict[str, float] = {}
    for page in pages:
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    return sums


def count(sums: Mapping[str, float], name: str) -> int:
    """Give a counter's sum as a whole number; 0 where no agent has it."""
    return round(sums.get(name, 0.0))
