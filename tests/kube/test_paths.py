import pytest

from kube import paths


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (paths.node_status("gpu-1"), "/api/v1/nodes/gpu-1/status"),
        (paths.pods(), "/api/v1/pods"),
        (paths.pods("train"), "/api/v1/namespaces/train/pods"),
        (paths.eviction("train", "p"), "/api/v1/namespaces/train/pods/p/eviction"),
        (paths.lease("s", "l"), "/apis/coordination.k8s.io/v1/namespaces/s/leases/l"),
        (paths.job("r", "j"), "/apis/batch/v1/namespaces/r/jobs/j"),
        (paths.events("default"), "/apis/events.k8s.io/v1/namespaces/default/events"),
        (paths.token_request("s", "a"), "/api/v1/namespaces/s/serviceaccounts/a/token"),
        (paths.node_health_status("n"), "/apis/nodemend.dev/v1alpha1/nodehealths/n/status"),
        (paths.remediation("inc-1"), "/apis/nodemend.dev/v1alpha1/remediations/inc-1"),
        (paths.policy_status("p"), "/apis/nodemend.dev/v1alpha1/remediationpolicies/p/status"),
        (paths.collection("", "v1", "services"), "/api/v1/services"),
        (paths.collection("apps", "v1", "deployments", "s"), "/apis/apps/v1/namespaces/s/deployments"),
        (paths.member(paths.collection("", "v1", "services", "s"), "a"), "/api/v1/namespaces/s/services/a"),
    ],
)
def test_paths_are_the_servers(path: str, expected: str) -> None:
    """Each path is the one that the API server documents."""
    assert expected == path


def test_a_name_cannot_lead_to_another_path() -> None:
    """A slash in a name is encoded, not followed."""
    assert paths.node("../pods/x?y") == "/api/v1/nodes/..%2Fpods%2Fx%3Fy"


def test_an_empty_name_is_refused() -> None:
    """DELETE on a collection would delete everything in it."""
    with pytest.raises(ValueError, match="an empty name would address the whole collection"):
        paths.node("")
