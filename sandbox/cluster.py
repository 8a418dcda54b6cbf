"""A real Kubernetes on this machine, as a context manager: `with Sandbox() as it: it.kubectl("get", "nodes")`.

Guarantees: several stand side by side; leaving the block leaves no process and no folder; after kill -9 of the owner the
next start of any sandbox removes what was left. Not its job: nodemend's manifests, nodes and programs (`sandbox.install`,
`sandbox.nodes`, `sandbox.actors`).
"""

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from kube import paths
from kube.clock import SYSTEM
from kube.session import Session, connect, user_agent
from sandbox import certificates, control_plane, processes, programs, state, tokens
from sandbox.processes import Children, Process

# What would lead a program of the sandbox to a cluster of the user's.
_NEVER_INHERITED = ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")


class KubectlError(Exception):
    """kubectl ended with another status than 0; the message holds its command and its words."""


class Sandbox:
    """One control plane with its state folder, credentials and the programs started beside it."""

    def __init__(
        self,
        state_dir: Path | None = None,
        *,
        programs: Mapping[str, Path] | None = None,
        with_kwok: bool = True,
        audit: bool = False,
        node_lease_s: int = 40,
        progress: Callable[[str], None] = print,
    ) -> None:
        """`state_dir` must be empty or absent and is kept; without it one is made and removed at the end.

        `audit` keeps a record of every write, for `audit_events`. `node_lease_s` is how long a KWOK node's Lease lasts;
        longer than kubelet's 40 s where the renewals of a large fleet would be most of what a small machine does.
        """
        self._wanted_state_dir = state_dir
        self._given_programs = programs
        self._with_kwok = with_kwok
        self._audit = audit
        self._node_lease_s = node_lease_s
        self._progress = progress
        self._started = False

    def __enter__(self) -> Self:
        """Start; raises MissingProgramError (this machine lacks something) or NotReady (with the log's end)."""
        state.remove_dead(self._progress)
        found = self._given_programs or programs.find_or_build(progress=self._progress)
        self.programs: Mapping[str, Path] = found
        self._instance = state.claim(self._wanted_state_dir)
        self._port = control_plane.reserve_port()
        self._children = Children(self._instance.children)
        layout = control_plane.Layout(
            root=self._instance.state_dir,
            port=self._port.getsockname()[1],
            audit=self._audit,
            node_lease_s=self._node_lease_s,
        )
        self._layout = layout
        self._tokens = tokens.TokenFiles(layout.root / "tokens", lambda: self.admin)
        control_plane.prepare(layout, SYSTEM.now())
        self._plane = control_plane.ControlPlane(layout, found, self._children, self.environment())
        self._started = True
        try:
            self._progress(f"starting Kubernetes on {layout.server}, state in {layout.root}")
            self._plane.start(with_kwok=self._with_kwok)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End every program, youngest first, and remove the record and the folder we made. Safe to call twice."""
        if not self._started:
            return
        self._started = False
        self._tokens.close()
        if "admin" in self.__dict__:
            self.__dict__.pop("admin").close()
        # nodemend's own programs are asked to end while the API server still answers them; the rest is killed.
        own = {process.pid for process in self._plane.running.values()}
        others = [process for process in self._children.running() if process.pid not in own]
        self._children.end(others[::-1])
        self._plane.close()
        self._children.close()
        state.end_children(self._instance.record)
        self._port.close()
        self._instance.release()

    @property
    def id(self) -> str:
        """The random id that each of our processes carries in its environment as `state.MARK`."""
        return self._instance.id

    @property
    def state_dir(self) -> Path:
        return self._layout.root

    @property
    def server(self) -> str:
        return self._layout.server

    @property
    def control_plane(self) -> Mapping[str, Process]:
        """The programs of the control plane that were started and not stopped, by name."""
        return dict(self._plane.running)

    @property
    def ca_file(self) -> Path:
        return self._layout.pki / "ca.crt"

    @property
    def admin_kubeconfig(self) -> Path:
        return self._layout.kubeconfig(certificates.ADMIN)

    @cached_property
    def admin(self) -> Session:
        """The API as system:masters: for setting up and for looking, never for what nodemend itself does."""
        return connect(kubeconfig=self.admin_kubeconfig, user_agent=user_agent("nodemend-sandbox"))

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout_s: float = 60.0) -> str:
        """Run kubectl as the admin and return what it printed; raises KubectlError."""
        command = [
            str(self.programs["kubectl"]),
            f"--kubeconfig={self.admin_kubeconfig}",
            f"--cache-dir={self.state_dir / 'kubectl-cache'}",
            *arguments,
        ]
        done = subprocess.run(
            command,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode != 0:
            raise KubectlError(
                f"kubectl {' '.join(arguments)}: status {done.returncode}: {done.stderr.strip()}"
            )
        return done.stdout

    def create_namespace(self, name: str) -> None:
        """Create a namespace; returns when pods can be created in it. Raises ApiError."""
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        self.admin.create(paths.namespaces(), namespace)
        self._plane.await_service_account(name, "default")

    def stop_apiserver(self) -> None:
        """End the API server; everything else, its port and its data stay."""
        self._plane.stop_apiserver()

    def start_apiserver(self) -> None:
        """Start the API server again on the same port and data; returns when it is ready."""
        self._plane.start_apiserver()

    def check(self) -> None:
        """Raise NotReady where a program of the control plane has ended by itself."""
        self._plane.check()

    def token(
        self,
        namespace: str,
        service_account: str,
        *,
        pod: tuple[str, str] | None = None,
        seconds: int = 3600,
    ) -> str:
        """Return a token of a ServiceAccount, bound to `pod` (name, uid) where given. Raises ApiError."""
        bound = tokens.PodRef(name=pod[0], uid=pod[1]) if pod else None
        return tokens.request(self.admin, namespace, service_account, bound=bound, seconds=seconds)

    def token_file(
        self,
        namespace: str,
        service_account: str,
        *,
        pod: tuple[str, str] | None = None,
        seconds: int = 3600,
    ) -> Path:
        """Return a file with such a token, renewed in it for as long as the sandbox stands. Raises ApiError."""
        bound = tokens.PodRef(name=pod[0], uid=pod[1]) if pod else None
        return self._tokens.path(namespace, service_account, pod=bound, seconds=seconds)

    def kubeconfig_for(self, namespace: str, service_account: str) -> Path:
        """Return a kubeconfig that reads `token_file(namespace, service_account)`. Raises ApiError."""
        path = self.state_dir / "kubeconfigs" / namespace / f"{service_account}.json"
        user = {"tokenFile": str(self.token_file(namespace, service_account))}
        control_plane.write_kubeconfig(path, self._layout, user, namespace=namespace)
        return path

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the environment for programs of this sandbox: ours without other clusters, its own HOME, its mark."""
        kept = {key: value for key, value in os.environ.items() if key not in _NEVER_INHERITED}
        return {**kept, "HOME": str(self.state_dir), state.MARK: self._instance.id, **(extra or {})}

    def spawn(
        self,
        name: str,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        log: Path | None = None,
        *,
        cwd: Path | None = None,
    ) -> Process:
        """Start a program that ends with the sandbox at the latest; `env` is added to `environment()`.

        Its output is appended to `log`, by default `logs/NAME.log` in the state folder.
        """
        return self._children.start(
            name,
            argv,
            env=self.environment(env),
            log=log or self._layout.log(name),
            cwd=cwd or self.state_dir,
        )

    def logs(self, name: str) -> str:
        """Return the end (at most 256 KiB) of what the program `name` has written; empty where it wrote nothing."""
        return processes.tail(self._layout.log(name))

    def audit_events(self) -> list[dict[str, Any]]:
        """Return the API server's audit record of all writes so far, oldest first (events and leases left out).

        Each is an audit.k8s.io/v1 Event: `user.username`, `verb`, `objectRef`, `responseStatus.code`.
        """
        record = self._layout.log("audit").read_bytes()
        return [msgspec.json.decode(line) for line in processes.whole_lines(record)]
