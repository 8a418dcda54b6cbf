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
        pytest.param(
            "nfs: server filer.acme.example not responding, still trying",
            "nfs: server server-1 not responding, still trying",
            id="a file server is named by nobody",
        ),
        pytest.param("nfs: server fd00:ac3e::12 OK", "nfs: server server-1 OK", id="nor by its IPv6 address"),
        pytest.param(
            "LustreError: 11-0: acme-OST0001-osc-ffff: operation ost_connect to node 10.1.1.1@o2ib failed",
            "LustreError: 11-0: server-1-OST0001-osc-ffff: operation ost_connect to node address-1@o2ib failed",
            id="nor a Lustre file system",
        ),
        pytest.param(
            "Lustre: MGC10.0.0.1@tcp: Connection restored",
            "Lustre: MGCaddress-1@tcp: Connection restored",
            id="an address that clings to a word",
        ),
        pytest.param(
            "EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2: comm acme train: reading directory",
            "EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2: comm redacted: reading directory",
            id="a program that met an error",
        ),
        pytest.param(
            "watchdog: BUG: soft lockup - CPU#1 stuck for 23s! [acme:train:4242]",
            "watchdog: BUG: soft lockup - CPU#1 stuck for 23s! [redacted:1]",
            id="a program in a lockup",
        ),
        pytest.param(
            "INFO: task acme train:12 blocked on a mutex likely owned by task acme eval:7.",
            "INFO: task redacted:1 blocked on a mutex likely owned by task redacted:1.",
            id="two tasks",
        ),
        pytest.param(
            'nvme nvme1: new ctrl: NQN "nqn.2014-08.com.acme:host.gpu", addr [fd00::7]:4420',
            'nvme nvme1: new ctrl: NQN "server-1", addr [address-1]:4420',
            id="a target and its address",
        ),
        pytest.param(
            "mlx5_core 0000:3b:00.0: ib0: 80:00:00:48:fe:80:00:00:00:00:00:00:0c:42:a1:03:00:6b:11:22 up",
            "mlx5_core 0000:3b:00.0: ib0: mac-1 up",
            id="the twenty bytes of IP over InfiniBand",
        ),
        pytest.param(
            "mlx5_core 0000:3b:00.0: gid FE80:0000:0000:0000:0C42:A103:006B:1122",
            "mlx5_core 0000:3b:00.0: gid address-1",
            id="a GID",
        ),
        pytest.param(
            "NVRM: loading NVIDIA UNIX Open Kernel Module 13.580.95.05 96.00.74.00.01 at 12:34:56",
            "NVRM: loading NVIDIA UNIX Open Kernel Module 13.580.95.05 96.00.74.00.01 at 12:34:56",
            id="versions and times are no addresses",
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


def test_what_names_the_server_is_taken_out_of_texts_too() -> None:
    """A message quotes it, and the evidence the options."""
    redactor = Redactor()
    options = "rw,relatime rw,vers=3.0,username=joe,addr=fd00::7,uid=1000"
    told = redactor.value(
        {
            "mounts": [{"fstype": "cifs", "source": "//filer/joe", "options": options}],
            "message": "mount /data: MountFailed (cifs //filer/joe: statvfs: Stale file handle)",
            "evidence": [f"options {options}"],
        }
    )
    assert told == {
        "mounts": [{"fstype": "cifs", "source": "server-1", "options": "rw,relatime rw,vers=3.0"}],
        "message": "mount /data: MountFailed (cifs server-1: statvfs: Stale file handle)",
        "evidence": ["options rw,relatime rw,vers=3.0"],
    }


def test_a_line_that_is_evidence_is_treated_as_in_the_log() -> None:
    """It quotes the same program."""
    told = Redactor().value({"evidence": ["NVRM: Xid (PCI:0000:3b:00): 31, pid=42, name=acme, Ch 0000000d"]})
    assert told == {"evidence": ["NVRM: Xid (PCI:0000:3b:00): 31, pid=1, name=redacted, Ch 0000000d"]}


def test_a_local_disk_keeps_its_name() -> None:
    """It names a place in the machine; a volume or a pool is named by a person."""
    named = ["/dev/nvme0n1p2", "/dev/mapper/acme-home", "tank/acme"]
    told = Redactor().value([{"fstype": "ext4", "source": source} for source in named])
    assert [one["source"] for one in told] == ["/dev/nvme0n1p2", "server-1", "server-2"]


def test_a_home_is_nobodys() -> None:
    """Errors quote paths."""
    for homes in ("home", "Users"):
        assert Redactor().text(f"/{homes}/joe/x: denied: '/{homes}/joe'") == (
            f"/{homes}/user/x: denied: '/{homes}/user'"
        )


def test_a_machine_with_an_ordinary_name_stays_readable() -> None:
    """Whole words only, in any case, and none of the words that readings are written in."""
    redactor = Redactor({"gpu": "node", "h17": "node"})
    assert redactor.value({"kind": "gpu", "text": "H17 is not h170, and h17-ib0 is"}) == {
        "kind": "gpu",
        "text": "node is not h170, and node-ib0 is",
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
