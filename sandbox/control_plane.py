"""The Kubernetes control plane on this machine: etcd, API server, controller manager, scheduler and KWOK as processes.

The flags are those of a plain cluster, admission plugins and RBAC included; what differs says why. etcd is reached over a
Unix socket in the state folder, so only the API server needs a port. Starting and ending are here; what one does with the
cluster is `sandbox.cluster`.
"""

import json
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import msgspec
import urllib3

from sandbox import certificates
from sandbox.processes import Children, Process, tail

KWOK_STAGES = Path(__file__).with_name("kwok_stages.yaml")
_READY_WITHIN_S = 180.0  # 5 s on an idle machine; builds on the same two cores stretch it
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "verbs": ["get", "list", "watch"]},
        {"level": "None", "resources": [{"group": "coordination.k8s.io"}, {"group": "events.k8s.io"}]},
        {"level": "None", "resources": [{"group": "", "resources": ["events"]}]},
        {"level": "Metadata"},
    ],
}


class NotReady(Exception):
    """A program of the control plane ended, or did not answer in time; the message ends with the end of its log."""


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """Where a control plane keeps what; every path is absolute but the sockets', whose length the kernel limits.

    `node_lease_s` is how long a KWOK node's Lease lasts: it is renewed every quarter of that. 40 s is kubelet's.
    """

    root: Path
    port: int
    audit: bool = False
    node_lease_s: int = 40

    @property
    def pki(self) -> Path:
        return self.root / "pki"

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def kubeconfig(self, client: certificates.Client) -> Path:
        return self.root / "kubeconfigs" / f"{client.name}.json"

    def log(self, name: str) -> Path:
        return self.root / "logs" / f"{name}.log"


def prepare(layout: Layout, now: datetime) -> None:
    """Write certificates, kubeconfigs and configuration files."""
    certificates.write_all(layout.pki, now)
    for client in certificates.CLIENTS:
        pair = layout.pki / client.name
        user = {
            "client-certificate": str(pair.with_suffix(".crt")),
            "client-key": str(pair.with_suffix(".key")),
        }
        write_kubeconfig(layout.kubeconfig(client), layout, user)
    scheduler = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        # The default of 50 requests a second would measure the scheduler's brake, not nodemend.
        "clientConnection": {
            "kubeconfig": str(layout.kubeconfig(certificates.SCHEDULER)),
            "qps": 500,
            "burst": 1000,
        },
    }
    (layout.root / "scheduler.json").write_text(json.dumps(scheduler))
    (layout.root / "audit-policy.json").write_text(json.dumps(_AUDIT_POLICY))


def write_kubeconfig(
    path: Path, layout: Layout, user: Mapping[str, str], *, namespace: str = "default"
) -> None:
    """Write a kubeconfig for `user` (JSON, which every YAML reader takes); readable by its owner only."""
    name = "sandbox"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": name,
                "cluster": {"server": layout.server, "certificate-authority": str(layout.pki / "ca.crt")},
            }
        ],
        "users": [{"name": name, "user": dict(user)}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": namespace}}],
        "current-context": name,
    }
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.touch(mode=0o600)
    path.write_text(json.dumps(config, indent=1))


def reserve_port() -> socket.socket:
    """Hold a free port of 127.0.0.1 for an API server that is started with --permit-port-sharing.

    The socket is bound with SO_REUSEPORT and never listens: the kernel hands the port to nobody else, and connections go
    to the API server alone, also after that was stopped and started again.
    """
    holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    holder.bind(("127.0.0.1", 0))
    return holder


def etcd_argv(program: Path) -> list[str]:
    """A single member. No fsync: the data are thrown away, and a slow disk must not be what is measured."""
    return [
        str(program),
        "--name=sandbox",
        "--data-dir=etcd",
        "--unsafe-no-fsync",
        "--listen-client-urls=unix://etcd.sock",
        "--listen-peer-urls=unix://etcd-peer.sock",
        # etcd insists on host:port in what it advertises; with one member nobody ever connects to it.
        "--advertise-client-urls=http://127.0.0.1:2379",
        "--initial-advertise-peer-urls=http://127.0.0.1:2380",
        "--initial-cluster=sandbox=http://127.0.0.1:2380",
        "--log-level=warn",
    ]


def apiserver_argv(program: Path, layout: Layout) -> list[str]:
    """Build the API server's command line."""
    pki = layout.pki
    audit = [
        f"--audit-policy-file={layout.root / 'audit-policy.json'}",
        f"--audit-log-path={layout.log('audit')}",
        "--audit-log-maxsize=0",  # one file: at 100 MB it would begin another, and `audit_events` would miss the first
    ]
    return [
        str(program),
        "--etcd-servers=unix://etcd.sock",
        "--bind-address=127.0.0.1",
        f"--secure-port={layout.port}",
        "--permit-port-sharing",
        # Without these two it looks for a default route, which a closed network need not have.
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        f"--cert-dir={pki}",
        f"--tls-cert-file={pki / 'apiserver.crt'}",
        f"--tls-private-key-file={pki / 'apiserver.key'}",
        f"--client-ca-file={pki / 'ca.crt'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki / 'sa.pub'}",
        f"--service-account-signing-key-file={pki / 'sa.key'}",
        "--authorization-mode=Node,RBAC",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--allow-privileged=true",
        # Who it is to a kubelet, for logs and exec (`sandbox.kubelet_node`).
        f"--kubelet-client-certificate={pki / f'{certificates.ADMIN.name}.crt'}",
        f"--kubelet-client-key={pki / f'{certificates.ADMIN.name}.key'}",
        "--kubelet-preferred-address-types=InternalIP",
        "--profiling=false",
        *(audit if layout.audit else []),
    ]


def controller_manager_argv(program: Path, layout: Layout) -> list[str]:
    """Build the controller manager's command line. Certificate signing stays off: it is given no signing key."""
    return [
        str(program),
        f"--kubeconfig={layout.kubeconfig(certificates.CONTROLLER_MANAGER)}",
        f"--service-account-private-key-file={layout.pki / 'sa.key'}",
        f"--root-ca-file={layout.pki / 'ca.crt'}",
        "--use-service-account-credentials",
        "--leader-elect=false",
        "--secure-port=0",
        # The default of 20 requests a second would measure its brake, not nodemend.
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        # As much longer than the Leases as by default (50 s for kubelet's 40 s), so that late ones are no sick nodes.
        f"--node-monitor-grace-period={layout.node_lease_s + 10}s",
        "--profiling=false",
    ]


def scheduler_argv(program: Path, layout: Layout) -> list[str]:
    """Build the scheduler's command line."""
    return [str(program), f"--config={layout.root / 'scheduler.json'}", "--secure-port=0"]


def kwok_argv(program: Path, layout: Layout, stages: Path | None) -> list[str]:
    """Build KWOK's command line: only nodes that carry its annotation are its own."""
    # A file is always named: without one KWOK reads the user's ~/.kwok/kwok.yaml.
    return [
        str(program),
        f"--kubeconfig={layout.kubeconfig(certificates.KWOK)}",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        f"--node-lease-duration-seconds={layout.node_lease_s}",
        f"--config={stages or os.devnull}",
    ]


class ControlPlane:
    """The running programs. `start` and `stop_apiserver`/`start_apiserver` are the only ways to change what runs."""

    def __init__(
        self, layout: Layout, programs: Mapping[str, Path], children: Children, env: Mapping[str, str]
    ) -> None:
        self.layout = layout
        self.running: dict[str, Process] = {}
        self._programs = programs
        self._children = children
        self._env = env
        pki = layout.pki
        self._pool = urllib3.PoolManager(
            ca_certs=str(pki / "ca.crt"),
            cert_file=str(pki / "admin.crt"),
            key_file=str(pki / "admin.key"),
            retries=False,
            timeout=urllib3.Timeout(connect=2, read=5),
        )

    def start(self, *, with_kwok: bool) -> None:
        """Start everything and return once the API server is ready and the controller manager works."""
        self._run("etcd", etcd_argv(self._programs["etcd"]))
        self.start_apiserver()
        manager = controller_manager_argv(self._programs["kube-controller-manager"], self.layout)
        self._run("kube-controller-manager", manager)
        self._run("kube-scheduler", scheduler_argv(self._programs["kube-scheduler"], self.layout))
        if with_kwok:
            stages = KWOK_STAGES if KWOK_STAGES.exists() else None
            self._run("kwok", kwok_argv(self._programs["kwok"], self.layout, stages))
        # The controller manager makes this ServiceAccount; without it no pod can be created.
        self.await_service_account("default", "default")

    def start_apiserver(self) -> None:
        """Start the API server on its port and its data, and wait until it is ready."""
        self._run("kube-apiserver", apiserver_argv(self._programs["kube-apiserver"], self.layout))
        self._await("kube-apiserver", "/readyz")

    def stop_apiserver(self, grace_s: float = 2.0) -> None:
        """End the API server; the others keep running and find it again later."""
        self.running.pop("kube-apiserver").stop(grace_s)

    def await_service_account(self, namespace: str, name: str) -> None:
        """Return once the controller manager has made the ServiceAccount. Raises NotReady."""
        self._await("kube-controller-manager", f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}")

    def check(self) -> None:
        """Raise NotReady where one of the programs has ended by itself."""
        for name, process in self.running.items():
            if not process.alive:
                raise NotReady(self._story(name, f"ended with status {process.poll()}"))

    def close(self) -> None:
        """Drop the connections and kill the programs: nothing they hold outlives the sandbox."""
        self._pool.clear()
        for process in reversed(self.running.values()):
            process.kill()
        self.running.clear()

    def _run(self, name: str, argv: list[str]) -> None:
        root = self.layout.root
        log = self.layout.log(name)
        self.running[name] = self._children.start(name, argv, env=self._env, log=log, cwd=root)

    def _await(self, name: str, path: str) -> None:
        deadline = time.monotonic() + _READY_WITHIN_S
        answer = "no answer"
        while time.monotonic() < deadline:
            self.check()
            with suppress(urllib3.exceptions.HTTPError):
                response = self._pool.request("GET", self.layout.server + path)
                if response.status == 200:
                    return
                answer = f"status {response.status}: {response.data[:300].decode(errors='replace')}"
            time.sleep(0.1)
        raise NotReady(self._story(name, f"not ready after {_READY_WITHIN_S:g} s ({path}: {answer})"))

    def _story(self, name: str, what: str) -> str:
        last = "\n".join(tail(self.layout.log(name)).splitlines()[-15:])
        return f"{name} {what}; the end of {self.layout.log(name)}:\n{last}"
