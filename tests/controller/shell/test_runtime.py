"""controller.runtime and __main__: what starts, what ends in which order, and with which exit code."""

import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path

import pytest
import urllib3

from controller.__main__ import main
from controller.config import Config, LeaderSection, SinkSection
from controller.connections import Apis
from controller.runtime import Controller, meanings, settings_of
from kube import paths
from tests.controller.shell.samples import secret_file
from tests.controller.shell.world import config
from tests.fakes import FakeApi, wait_until


def test_a_replica_leads_serves_and_ends_in_order() -> None:
    """Ready when all is read; at the end the Lease is free at once."""
    api = FakeApi()
    controller = Controller(
        config(listen="127.0.0.1:0"),
        on_lost=lambda why: pytest.fail(why),
        connect=lambda _config, _guard: Apis(lease=api, reads=api, writes=api),
        senders={},
    )
    stop = threading.Event()
    thread = threading.Thread(target=controller.run, args=(stop,), daemon=True)
    thread.start()
    with urllib3.PoolManager(retries=False, headers={"connection": "close"}) as http:

        def get(page: str) -> tuple[int, str]:
            answer = http.request("GET", f"http://127.0.0.1:{controller.port}/{page}", timeout=5)
            return answer.status, answer.data.decode()

        wait_until(lambda: get("readyz")[0] == 200)
        assert get("healthz") == (200, "ok\n")
        wait_until(lambda: "nodemend_leader 1.0" in get("metrics")[1])
    lease = paths.lease("nodemend-system", "nodemend-controller")
    assert api.read(lease)["spec"]["holderIdentity"]
    stop.set()
    controller.wake()
    api.close()
    thread.join(15)
    assert (thread.is_alive(), api.read(lease)["spec"]["holderIdentity"]) == (False, "")


def test_the_write_guard_is_the_elections() -> None:
    """Before leadership no write may begin; the session is given the very same answer."""
    guards: list[Callable[[], float]] = []
    api = FakeApi()

    def connect(_config: Config, guard: Callable[[], float]) -> Apis:
        guards.append(guard)
        return Apis(lease=api, reads=api, writes=api)

    controller = Controller(config(listen="127.0.0.1:0"), on_lost=lambda _: None, connect=connect, senders={})
    assert guards[0]() == 0.0
    stop = threading.Event()
    stop.set()
    api.close()
    controller.run(stop)


def test_losing_the_lease_calls_for_the_end_of_the_process() -> None:
    """Another holds it: `on_lost` is called, and nothing more is written."""
    api = FakeApi()
    lost = threading.Event()
    controller = Controller(
        config(listen="127.0.0.1:0", leader=LeaderSection(retry_period=timedelta(milliseconds=50))),
        on_lost=lambda _: lost.set(),
        connect=lambda _config, _guard: Apis(lease=api, reads=api, writes=api),
        senders={},
    )
    stop = threading.Event()
    thread = threading.Thread(target=controller.run, args=(stop,), daemon=True)
    thread.start()
    lease = paths.lease("nodemend-system", "nodemend-controller")
    wait_until(lambda: "nodemend-controller" in api.names(paths.leases("nodemend-system")))
    held = api.read(lease)
    held["spec"]["holderIdentity"] = "somebody else"
    api.replace(lease, held)
    assert lost.wait(15)
    assert controller._why_not_write() == "this replica is stopping"
    stop.set()
    api.close()
    thread.join(15)
    assert thread.is_alive() is False


class Broken(FakeApi):
    """A defect of ours in what the election calls, and no answer of a server."""

    def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        raise RuntimeError(f"defect while reading {path} {query}")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_replica_whose_election_died_ends() -> None:
    """It would look well, and never lead; its Deployment starts another one."""
    api = FakeApi()
    controller = Controller(
        config(listen="127.0.0.1:0"),
        on_lost=lambda why: pytest.fail(why),
        connect=lambda _config, _guard: Apis(lease=Broken(), reads=api, writes=api),
        senders={},
    )
    stop = threading.Event()
    thread = threading.Thread(target=controller.run, args=(stop,), daemon=True)
    thread.start()
    thread.join(15)
    api.close()
    assert (thread.is_alive(), stop.is_set()) == (False, True)


def test_what_the_core_is_told_of_the_configuration(tmp_path: Path) -> None:
    """Sinks with their waits, the repairs of a ladder, our own namespaces."""
    told = settings_of(
        config(sinks={"a": SinkSection(url="https://x", secret_file=str(secret_file(tmp_path)))})
    )
    assert (set(told.sinks), told.repairs) == ({"a"}, frozenset({"reboot", "reset-gpu"}))
    assert told.system_namespaces == {"nodemend-system", "nodemend-repairs"}


def test_every_reason_of_the_public_table_has_its_two_texts() -> None:
    """A page names no reason that it cannot explain."""
    found = meanings()
    assert found["Xid79FallenOffBus"].summary
    assert all(meaning.summary and meaning.runbook for meaning in found.values())


def test_check_config_prints_what_is_in_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 0, without secrets."""
    path = tmp_path / "controller.toml"
    path.write_text('cluster_name = "west"\n')
    assert main(["--config", str(path), "--check-config"]) == 0
    assert 'cluster_name = "west"' in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--check-config"], []], ids=["checked", "started"])
def test_a_configuration_that_cannot_be_used_is_exit_2(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line for each problem, naming file and key."""
    path = tmp_path / "controller.toml"
    path.write_text("nope = 1\n[jobs]\nimge = ''\n")
    assert main(["--config", str(path), *arguments]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": unknown key")[0] for line in lines] == [
        f"nodemend-controller: {path}: nope",
        f"nodemend-controller: {path}: jobs.imge",
    ]
