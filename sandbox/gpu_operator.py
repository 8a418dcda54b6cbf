"""What GPU Operator would bring to a kubelet's nodes: the namespace `gpu-operator` and the device plugin's DaemonSet in it.

Names, labels and the node selector are GPU Operator's own, so that switching the plugin off by the node's label
`nvidia.com/gpu.deploy.device-plugin`, as driver upgrades and nodemend's reset do, works here too.
"""

import json
from typing import Any

from sandbox import image_build
from sandbox.install import Cluster

NAMESPACE = "gpu-operator"
DEVICE_PLUGIN = "nvidia-device-plugin-daemonset"
DEPLOY_DEVICE_PLUGIN = "nvidia.com/gpu.deploy.device-plugin"


def install_device_plugin(sandbox: Cluster) -> None:
    """Apply namespace and DaemonSet. May be called again. Raises KubectlError."""
    listed = {"apiVersion": "v1", "kind": "List", "items": [_namespace(), device_plugin()]}
    sandbox.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(listed))


def device_plugin() -> dict[str, Any]:
    """Describe the DaemonSet."""
    labels = {"app": DEVICE_PLUGIN}
    container = {
        "name": "nvidia-device-plugin",
        "image": image_build.DEVICE_PLUGIN,
        "command": ["python3", "-m", "sandbox.device_plugin"],
        "securityContext": {"privileged": True},
        "volumeMounts": [
            {"name": "device-plugins", "mountPath": "/var/lib/kubelet/device-plugins"},
            {"name": "driver", "mountPath": "/run/nvidia/driver", "readOnly": True},
        ],
    }
    pod = {
        "priorityClassName": "system-node-critical",
        "nodeSelector": {DEPLOY_DEVICE_PLUGIN: "true"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 2,
        "containers": [container],
        "volumes": [
            {"name": "device-plugins", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}},
            {"name": "driver", "hostPath": {"path": "/run/nvidia/driver", "type": "Directory"}},
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": DEVICE_PLUGIN, "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _namespace() -> dict[str, Any]:
    labels = {"pod-security.kubernetes.io/enforce": "privileged"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}
