"""Which volumes may serve a claim, as Kubernetes' volume binder has it."""

from typing import Any

import msgspec
import pytest

from controller.scheduler.volume_match import candidates, free_of, is_reached
from kube.storage import PersistentVolume, PersistentVolumeClaim


def volume(
    name: str = "v", *, meta: dict[str, Any] | None = None, phase: str = "Available", **spec: Any
) -> PersistentVolume:
    whole = {
        "storageClassName": "local",
        "capacity": {"storage": "2Gi"},
        "accessModes": ["ReadWriteOnce"],
        **spec,
    }
    body = {"metadata": {"name": name, **(meta or {})}, "spec": whole, "status": {"phase": phase}}
    return msgspec.convert(body, PersistentVolume)


def claim(size: str = "1Gi", **spec: Any) -> PersistentVolumeClaim:
    whole = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec}
    meta = {"namespace": "team", "name": "c", "uid": "1"}
    return msgspec.convert({"metadata": meta, "spec": whole}, PersistentVolumeClaim)


def ref(name: str = "c", uid: str = "") -> dict[str, str]:
    return {"namespace": "team", "name": name, "uid": uid}


DISK = {"matchLabels": {"disk": "ssd"}}


@pytest.mark.parametrize(
    ("wanted", "there", "names"),
    [
        pytest.param(claim(), [volume("b"), volume("a")], ["a", "b"], id="by name where equal"),
        pytest.param(
            claim(),
            [volume("a"), volume("b", capacity={"storage": "1Gi"})],
            ["b", "a"],
            id="the smallest first",
        ),
        pytest.param(claim("3Gi"), [volume()], [], id="too small"),
        pytest.param(claim(), [volume(capacity={"storage": "much"})], [], id="size that nobody can read"),
        pytest.param(claim(), [volume(storageClassName="nfs")], [], id="another class"),
        pytest.param(claim(volumeMode="Block"), [volume()], [], id="another mode"),
        pytest.param(claim(accessModes=["ReadWriteMany"]), [volume()], [], id="access mode that it lacks"),
        pytest.param(claim(selector=DISK), [volume()], [], id="labels that it lacks"),
        pytest.param(
            claim(selector=DISK), [volume(meta={"labels": {"disk": "ssd"}})], ["v"], id="labels as wanted"
        ),
        pytest.param(claim(volumeAttributesClassName="gold"), [volume()], [], id="another attributes class"),
        pytest.param(claim(), [volume(phase="Bound")], [], id="bound"),
        pytest.param(claim(), [volume(phase="Pending")], [], id="not available yet"),
        pytest.param(claim(), [volume(claimRef=ref("d"))], [], id="reserved for another"),
        pytest.param(
            claim(), [volume("a"), volume("z", claimRef=ref())], ["z"], id="reserved for it: that one alone"
        ),
        pytest.param(
            claim(), [volume("z", claimRef=ref(uid="2"))], [], id="reserved for an earlier one of that name"
        ),
        pytest.param(
            claim("9Gi"), [volume("z", claimRef=ref()), volume("a")], [], id="reserved for it, and too small"
        ),
        pytest.param(
            claim(), [volume(meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})], [], id="being deleted"
        ),
    ],
)
def test_candidates(wanted: PersistentVolumeClaim, there: list[PersistentVolume], names: list[str]) -> None:
    """In the order in which they are taken."""
    assert [one.metadata.name for one in candidates(wanted, "local", free_of(there))] == names


def test_a_size_that_is_none() -> None:
    """Said, not guessed."""
    with pytest.raises(ValueError, match="'lots' is no quantity"):
        candidates(claim("lots"), "local", free_of([volume()]))


@pytest.mark.parametrize(
    ("terms", "reached"),
    [
        pytest.param(None, True, id="from everywhere"),
        pytest.param(
            [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}], True, id="zone"
        ),
        pytest.param(
            [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}], True, id="name"
        ),
        pytest.param([{}], False, id="an empty term matches nothing"),
        pytest.param(
            [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}], False, id="other"
        ),
    ],
)
def test_reach(terms: list[Any] | None, reached: bool) -> None:
    """By node affinity alone."""
    affinity = {} if terms is None else {"required": {"nodeSelectorTerms": terms}}
    assert is_reached(volume(nodeAffinity=affinity), "n", {"zone": "a"}) is reached
