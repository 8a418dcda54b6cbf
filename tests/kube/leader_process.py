"""A program that runs for a Lease and, while it leads, writes its name into a ConfigMap as fast as it is let.

Its worker is careless on purpose: it never asks whether it leads; and it dies slowly when leadership is lost, as if its
workers woke up first. SIGTERM ends it in order: worker, then release.
Exit codes: 0 after SIGTERM, 1 when leadership was lost.
"""

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from kube.api import ApiError, PatchType
from kube.leader import LeaderElection
from kube.session import Session, connect

LEASE_DURATION_S = 5
RENEW_DEADLINE_S = 4.0
RETRY_PERIOD_S = 0.4
WRITE_PAUSE_S = 0.2
DYING_S = 1.0


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--token-file", type=Path)
    parser.add_argument("--ca-file", type=Path)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--identity", required=True)
    options = parser.parse_args(argv)

    def session(**more: float) -> Session:
        return connect(
            server=options.server,
            token_file=options.token_file,
            ca_file=options.ca_file,
            user_agent=options.identity,
            **more,  # type: ignore[arg-type]
        )

    election = LeaderElection(
        session(timeout_s=RENEW_DEADLINE_S / 2),
        options.namespace,
        "contested",
        options.identity,
        lease_duration=LEASE_DURATION_S,
        renew_deadline=RENEW_DEADLINE_S,
        retry_period=RETRY_PERIOD_S,
    )
    api = connect(
        server=options.server,
        token_file=options.token_file,
        ca_file=options.ca_file,
        user_agent=options.identity,
        write_guard=election.write_budget,
    )
    ending = threading.Event()
    worker = threading.Thread(
        target=_work, args=(api, options.namespace, options.identity, ending), daemon=True
    )

    def end(*_: object) -> None:
        ending.set()
        election.stop()

    signal.signal(signal.SIGTERM, end)

    def die(_: str) -> None:
        time.sleep(DYING_S)
        os._exit(1)

    election.run(on_started=worker.start, on_lost=die)
    if worker.is_alive():
        worker.join()
    election.release()
    return 0


def _work(api: Session, namespace: str, identity: str, ending: threading.Event) -> None:
    body = {"data": {"writer": identity}}
    while not ending.is_set():
        body["data"]["at"] = str(time.monotonic())
        try:
            api.patch(f"/api/v1/namespaces/{namespace}/configmaps/target", body, PatchType.MERGE)
        except ApiError:
            time.sleep(0.01)  # careless: hardly a pause, and not a thought
            continue
        time.sleep(WRITE_PAUSE_S)


if __name__ == "__main__":
    sys.exit(main())
