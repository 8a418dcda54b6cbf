"""The parts of starting a control plane that can be held against a table: ports, kubeconfigs, command lines."""

import json
import socket
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sandbox import certificates, control_plane
from sandbox.control_plane import Layout

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


def test_a_reserved_port_is_given_to_nobody_else_but_the_api_server() -> None:
    """Another program cannot bind it; one that shares ports on purpose, as --permit-port-sharing does, can."""
    with control_plane.reserve_port() as holder, socket.socket() as other, socket.socket() as apiserver:
        with pytest.raises(OSError, match="Address already in use"):
            other.bind(holder.getsockname())

        apiserver.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        apiserver.bind(holder.getsockname())
        apiserver.listen()
        with socket.create_connection(holder.getsockname(), timeout=5) as client:
            assert client.getpeername() == holder.getsockname()


def test_reserved_ports_differ() -> None:
    """Sandboxes side by side never get the same port, although each would share its own."""
    holders = [control_plane.reserve_port() for _ in range(50)]
    ports = {holder.getsockname()[1] for holder in holders}
    for holder in holders:
        holder.close()

    assert len(ports) == 50


def test_kubeconfigs_are_for_this_server_and_their_owner_only(tmp_path: Path) -> None:
    """Each component has its own client certificate; no file is readable by others."""
    layout = Layout(root=tmp_path, port=4711)

    control_plane.prepare(layout, NOW)

    for client in certificates.CLIENTS:
        path = layout.kubeconfig(client)
        config = json.loads(path.read_text())
        assert config["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:4711"
        assert Path(config["users"][0]["user"]["client-certificate"]).is_file()
        assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("stages", "config"),
    [
        pytest.param(Path("/s.yaml"), "--config=/s.yaml", id="our stages where they are"),
        pytest.param(None, "--config=/dev/null", id="never the user's own ~/.kwok/kwok.yaml"),
    ],
)
def test_kwok_reads_no_configuration_of_the_users(stages: Path | None, config: str) -> None:
    """What a sandbox does must not depend on whose home folder it runs in."""
    argv = control_plane.kwok_argv(Path("/kwok"), Layout(root=Path("/r"), port=1), stages)

    assert [argument for argument in argv if argument.startswith("--config")] == [config]


@pytest.mark.parametrize(
    ("audit", "flags"),
    [
        pytest.param(False, [], id="no audit log by default"),
        pytest.param(
            True,
            [
                "--audit-policy-file=/r/audit-policy.json",
                "--audit-log-path=/r/logs/audit.log",
                "--audit-log-maxsize=0",
            ],
            id="an audit log where asked for",
        ),
    ],
)
def test_the_audit_log_is_asked_for(audit: bool, flags: list[str]) -> None:
    """Benchmarks do not pay for what only tests read."""
    argv = control_plane.apiserver_argv(Path("/a"), Layout(root=Path("/r"), port=1, audit=audit))

    assert [argument for argument in argv if argument.startswith("--audit")] == flags


@pytest.mark.parametrize(
    ("layout", "lease", "grace"),
    [
        pytest.param(
            Layout(root=Path("/r"), port=1),
            "--node-lease-duration-seconds=40",
            "--node-monitor-grace-period=50s",
            id="as kubelet and a plain cluster have it",
        ),
        pytest.param(
            Layout(root=Path("/r"), port=1, node_lease_s=400),
            "--node-lease-duration-seconds=400",
            "--node-monitor-grace-period=410s",
            id="seldom renewed, and waited for accordingly",
        ),
    ],
)
def test_nodes_leases_and_the_patience_with_them_belong_together(
    layout: Layout, lease: str, grace: str
) -> None:
    """A node must not turn unreachable because its Lease is renewed less often."""
    assert lease in control_plane.kwok_argv(Path("/kwok"), layout, None)
    assert grace in control_plane.controller_manager_argv(Path("/kcm"), layout)
