"""What a capture holds of people's names: nothing; and of a fault: all that matters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.redaction import Redactor

UUID = "GPU-5d1f0b1e-8d61-4f07-9a55-0d5a1a2b3c4d"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        pytest.param(
            "NVRM: Xid (PCI:0000:3b:00): 31, pid=1234, name=python train.py --key s3cr3t, Ch 0000000d, MMU Fault",
            "NVRM: Xid (PCI:0000:3b:00): 31, pid=1, name=redacted, Ch 0000000d, MMU Fault",
            id="a process is named by nobody",
        ),
        pytest.param(
            "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
            "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=redacted, GPU has fallen off the bus.",
            id="the code and the address stay",
        ),
        pytest.param(
            f"NVRM: GPU at PCI:0000:3b:00: {UUID}",
            "NVRM: GPU at PCI:0000:3b:00: GPU-00000000-0000-0000-0000-000000000001",
            id="a UUID becomes a numbered one",
        ),
        pytest.param(
            "NVRM: GPU Board Serial Number: 1650923001234",
            "NVRM: GPU Board Serial Number: serial-1",
            id="a serial number too",
        ),
        pytest.param(
            "nfs: server 10.11.12.13 not responding, timed out",
            "nfs: server address-1 not responding, timed out",
            id="an address too",
        ),
        pytest.param(
            "INFO: task train.py:4242 blocked for more than 120 seconds.",
            "INFO: task redacted:1 blocked for more than 120 seconds.",
            id="a task that hangs is named by nobody",
        ),
        pytest.param("audit: cmd=secret", None, id="what no driver says is left out"),
        pytest.param("oom-kill: task=train.py,pid=12", None, id="what quotes a program is left out"),
    ],
)
def test_a_kernel_record_without_names(text: str, kept: str | None) -> None:
    """The rest stands as it was."""
    assert Redactor().kernel_text(text) == kept


def test_the_same_name_becomes_the_same_wherever_it_stands() -> None:
    """In values, keys and texts."""
    redactor = Redactor({"gpu-17.example.com": "node"})
    told = redactor.value(
        {
            "uuid": UUID,
            "holders": {UUID: "team-a/train-0"},
            "part": {"held_by": "team-a/train-0", "serial": "1650923001234"},
            "error": f"{UUID.lower().replace('gpu', 'GPU')} on gpu-17.example.com",
            "counters": {"symbol_error": 5},
        }
    )
    one = "GPU-00000000-0000-0000-0000-000000000001"
    assert told == {
        "uuid": one,
        "holders": {one: "pod-1"},
        "part": {"held_by": "pod-1", "serial": "serial-1"},
        "error": f"{one} on node",
        "counters": {"symbol_error": 5},
    }


def test_a_mount_keeps_its_kind_and_loses_its_server() -> None:
    """Its path is replaced wherever it is quoted."""
    redactor = Redactor({"/projects/acme": "/mount-1"})
    mount = {
        "path": "/projects/acme",
        "fstype": "nfs4",
        "source": "filer:/acme",
        "error": "/projects/acme: ESTALE",
    }
    assert redactor.value({"mounts": [mount]}) == {
        "mounts": [{"path": "/mount-1", "fstype": "nfs4", "source": "server-1", "error": "/mount-1: ESTALE"}]
    }


def test_labels_say_what_kind_of_machine_it_is_and_nothing_else() -> None:
    """Others may hold anything."""
    labels = {"node.kubernetes.io/instance-type": "p5.48xlarge", "nvidia.com/gpu.count": "8", "team": "acme"}
    assert set(Redactor().labels(labels)) == {"node.kubernetes.io/instance-type", "nvidia.com/gpu.count"}


@given(
    st.recursive(
        st.none() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_nothing_raises_and_no_secret_stays(thing: object) -> None:
    """Whatever the shape."""
    told = Redactor({"secret-name": "node"}).value({"a": thing, "b": "x secret-name y"})
    assert told["b"] == "x node y"
