"""The work that runs on the simulated nodes: a team's GPU pods, placed by the real kube-scheduler."""

import json

from sandbox.cluster import Sandbox
from sandbox.node_files import PAUSE
from sandbox.watching import WORK_NAMESPACE


def start(sandbox: Sandbox, replicas: int, gpus: int, *, may_be_away: str = "50%") -> None:
    """Create the team's namespace and a Deployment of `replicas` pods of `gpus` GPUs each. Raises KubectlError.

    A PodDisruptionBudget lets `may_be_away` of them be away at a time.
    """
    sandbox.create_namespace(WORK_NAMESPACE)
    labels = {"app": "training"}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "training", "namespace": WORK_NAMESPACE},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "topologySpreadConstraints": [
                        {
                            "maxSkew": 1,
                            "topologyKey": "kubernetes.io/hostname",
                            "whenUnsatisfiable": "ScheduleAnyway",
                            "labelSelector": {"matchLabels": labels},
                        }
                    ],
                    "containers": [
                        {
                            "name": "train",
                            "image": PAUSE,  # which a real node has; a simulated one asks nobody
                            "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
                        }
                    ],
                },
            },
        },
    }
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "training", "namespace": WORK_NAMESPACE},
        "spec": {"maxUnavailable": may_be_away, "selector": {"matchLabels": labels}},
    }
    for body in (deployment, budget):
        sandbox.kubectl("create", "--filename=-", stdin=json.dumps(body))
