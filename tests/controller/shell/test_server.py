"""controller.server: three pages and nothing else."""

import urllib3
from prometheus_client import CollectorRegistry, Gauge

from controller.server import Server


def test_what_is_served() -> None:
    """Metrics, liveness with its reason, readiness with its reason, and 404 for anything else."""
    registry = CollectorRegistry()
    Gauge("nodemend_leader", "x", registry=registry).set(1)
    whys: list[str | None] = [None, "the store of pods is not in yet"]
    server = Server("127.0.0.1:0", registry, why_not_healthy=lambda: whys[0], why_not_ready=lambda: whys[1])
    server.start()
    try:
        with urllib3.PoolManager(retries=False, headers={"connection": "close"}) as http:
            found = {
                path: http.request("GET", f"http://127.0.0.1:{server.port}{path}", timeout=5)
                for path in ("/metrics", "/healthz", "/readyz", "/debug")
            }
    finally:
        server.stop()
    assert b"nodemend_leader 1.0" in found["/metrics"].data
    assert [(found[path].status, found[path].data) for path in ("/healthz", "/readyz")] == [
        (200, b"ok\n"),
        (503, b"the store of pods is not in yet\n"),
    ]
    assert found["/debug"].status == 404
