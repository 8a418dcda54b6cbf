"""Who a kubelet is to the API server: a client certificate of the sandbox's authority, and a kubeconfig that names it."""

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

from sandbox import certificates
from sandbox.node_files import SERVICE


def write_credentials(pki: Path, folder: Path, name: str) -> None:
    """Write certificate, authority and kubeconfig of node `name` into `folder`, which is kubelet's own in the node."""
    client = certificates.node_client(name)
    certificates.issue_client(pki, client, datetime.now(UTC))
    files = {f"{client.name}.crt": "kubelet.crt", f"{client.name}.key": "kubelet.key", "ca.crt": "ca.crt"}
    for source, target in files.items():
        shutil.copy2(pki / source, folder / target)
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "sandbox",
                "cluster": {"server": f"https://{SERVICE}:443", "certificate-authority": "ca.crt"},
            }
        ],
        "users": [
            {"name": "node", "user": {"client-certificate": "kubelet.crt", "client-key": "kubelet.key"}}
        ],
        "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "node"}}],
        "current-context": "sandbox",
    }
    (folder / "kubeconfig.json").write_text(json.dumps(config, indent=1))
