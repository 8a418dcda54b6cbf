"""What a kubelet's node has in its `/etc`, beside what its distribution would bring: kubelet, containerd, CNI, accounts.

Paths are the usual ones, since the node has a root of its own (`sandbox.node_init`). What differs from a plain installation
says why.
"""

import json
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from sandbox.agent_files import toml

PAUSE = "sandbox/pause:1"
SERVICE = "10.0.0.1"  # the first of the service range, which the API server's certificate names too
KUBELET_PORT = 10250
NETWORKS = 512  # as many numbers as there are
_HOOK = "/opt/sandbox/simulate"
_SPEC = "/etc/containerd/spec.json"
_OVERLAY_MAGIC = 0x794C7630


class Network(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses of node `number`, from the range for benchmarks (RFC 2544), which no real network uses."""

    number: int

    @property
    def interface(self) -> str:
        return f"nodemend{self.number}"

    @property
    def host(self) -> str:
        """This machine's end of the cable."""
        return f"{self._prefix}.1"

    @property
    def node(self) -> str:
        return f"{self._prefix}.2"

    @property
    def pods(self) -> str:
        return f"{self._prefix}.128/25"

    @property
    def _prefix(self) -> str:
        return f"198.{18 + self.number // 256}.{self.number % 256}"


def write(
    root: Path,
    name: str,
    network: Network,
    *,
    cgroup: str,
    provider_id: str,
    taints: Sequence[Mapping[str, str]],
    snapshotter: str,
) -> None:
    """Write everything below `root`, the node's root folder; `cgroup` is the one its pods live in."""
    etc = root / "etc"
    files = {
        etc / "kubernetes/kubelet.json": json.dumps(_kubelet(cgroup, provider_id, taints), indent=1),
        etc / "containerd/config.toml": "version = 2\n" + toml(_containerd(snapshotter)),
        etc / "cni/net.d/10-sandbox.conflist": json.dumps(_bridge(network), indent=1),
        etc / "machine-id": uuid.uuid5(uuid.NAMESPACE_DNS, name).hex + "\n",
        etc / "hostname": f"{name}\n",
        etc / "hosts": f"127.0.0.1 localhost\n{network.node} {name}\n",
        etc / "resolv.conf": "",
        etc / "passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
        etc / "group": "root:x:0:\nnogroup:x:65534:\n",
        etc / "os-release": 'ID=nodemend-sandbox\nPRETTY_NAME="nodemend sandbox"\n',
        root / _HOOK.lstrip("/"): _SIMULATE,
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / _HOOK.lstrip("/")).chmod(0o755)
    for folder in ("root", "tmp", "opt/sandbox"):
        (root / folder).mkdir(parents=True, exist_ok=True)


def add_hook(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Give containerd's own default spec of a container with our hook in it: see `_SIMULATE`."""
    return {**spec, "hooks": {"createContainer": [{"path": _HOOK}]}}


def write_spec(root: Path, spec: Mapping[str, Any]) -> None:
    """Write the spec that every container of the node starts from."""
    (root / _SPEC.lstrip("/")).write_text(json.dumps(add_hook(spec)))


def kubelet_argv(name: str, network: Network, labels: Mapping[str, str]) -> list[str]:
    """Build kubelet's command line; labels that kubelet itself sets are left to it."""
    given = [f"{key}={value}" for key, value in labels.items() if not key.startswith("kubernetes.io/")]
    return [
        "/opt/sandbox/kubelet",
        "--config=/etc/kubernetes/kubelet.json",
        "--kubeconfig=/etc/kubernetes/kubeconfig.json",
        f"--hostname-override={name}",
        f"--node-ip={network.node}",
        *([f"--node-labels={','.join(given)}"] if given else []),
    ]


def snapshotter(folder: Path) -> str:
    """Say how containerd can keep its images in `folder`: an overlay cannot be laid over an overlay."""
    with_overlay = "\toverlay" in Path("/proc/filesystems").read_text()
    return "overlayfs" if with_overlay and not _is_overlay(folder) else "native"


def _is_overlay(folder: Path) -> bool:
    """Look for the mount that holds `folder` (proc(5), mountinfo); the longest mount point wins."""
    device = folder.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        if fields.split()[2] == wanted:
            return rest.split()[0] == "overlay"
    return False


def _kubelet(cgroup: str, provider_id: str, taints: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"x509": {"clientCAFile": "/etc/kubernetes/ca.crt"}},
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "port": KUBELET_PORT,
        "providerID": provider_id,
        "registerWithTaints": list(taints),
        # No systemd in the node; its cgroup is one below this machine's root, removed with the node.
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup,
        "failCgroupV1": False,
        "failSwapOn": False,
        # This machine's own disk and memory are no matter of the node's: nothing is reserved, evicted or thrown away.
        "enforceNodeAllocatable": [],
        "evictionHard": {},
        "localStorageCapacityIsolation": False,
        "imageGCHighThresholdPercent": 100,
        "imageMinimumGCAge": "24h",
        # A drill should not wait for brakes made for large fleets.
        "kubeAPIQPS": 200,
        "kubeAPIBurst": 400,
        "eventRecordQPS": 0,
        "syncFrequency": "10s",
        "nodeStatusUpdateFrequency": "5s",
        "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},
        "featureGates": {"KubeletCrashLoopBackOffMax": True},
    }


def _containerd(snapshotter: str) -> dict[str, Any]:
    cri = {
        "sandbox_image": PAUSE,
        # Where CAP_SYS_RESOURCE is missing, runc would die trying to lower a score ("can't get final child's PID").
        "restrict_oom_score_adj": True,
        "cni": {"bin_dir": "/usr/lib/cni", "conf_dir": "/etc/cni/net.d"},
        "containerd": {
            "snapshotter": snapshotter,
            "runtimes": {"runc": {"runtime_type": "io.containerd.runc.v2", "base_runtime_spec": _SPEC}},
        },
    }
    return {"plugins": {'"io.containerd.grpc.v1.cri"': cri}}


def _bridge(network: Network) -> dict[str, Any]:
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": network.pods}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    return {"cniVersion": "0.4.0", "name": "sandbox", "plugins": [bridge]}


# Runs in each container's namespaces before it starts (OCI runtime spec, createContainer). Kernel files that are not of any
# namespace would show this machine's boot and devices in a container's own /proc and /sys; so they show the node's. The pods
# of repairs reach the simulated machine's folder (`sandbox.simulated_reboot`), other pods do not.
_SIMULATE = r"""#!/bin/sh
bundle=$(sed -n 's/.*"bundle":"\([^"]*\)".*/\1/p')
root=$bundle/rootfs
mount --bind /proc/sys/kernel/random/boot_id "$root/proc/sys/kernel/random/boot_id" || exit 1
mount --bind /proc/driver "$root/proc/driver" || exit 1
mount --bind /sys/bus "$root/sys/bus" || exit 1
if [ -e /proc/sysrq-trigger ]; then
    mount --bind /proc/sysrq-trigger "$root/proc/sysrq-trigger" || exit 1
fi
if grep -q '"io.kubernetes.cri.sandbox-namespace":"nodemend-repairs"' "$bundle/config.json"; then
    mkdir -p "$root/dev/simulated"
    mount --bind /run/simulated/machine "$root/dev/simulated" || exit 1
fi
"""
