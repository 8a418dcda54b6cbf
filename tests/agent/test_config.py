"""The agent's configuration: every mistake is one sentence that names file, key, value and what would be right."""

from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.config import CheckSection, Config, ConfigError, load, parse, parse_duration
from tests.agent.scene import GATE


def test_an_empty_file_is_the_default() -> None:
    """Every key is optional."""
    assert parse("", "agent.toml", [GATE], {}) == Config()


def test_every_key_is_read() -> None:
    """A file that says everything gives exactly that."""
    text = """
        node_name = "gpu-7"
        listen = "127.0.0.1:0"
        state_dir = "/tmp/state"
        [kube]
        server = "https://127.0.0.1:6443"
        token_file = "/t"
        ca_file = "/c"
        [roots]
        proc = "/host/proc"
        sys = "/host/sys"
        [kernel_log]
        path = "/tmp/pipe"
        admit_foreign = true
        after_sequence = 7
        [publish]
        burst = 3
        refill = "5s"
        reassert = "1h30m"
        [lease]
        namespace = "elsewhere"
        interval = "1m"
        [reboot]
        command = ["reboot-it"]
        [storage]
        mounts = ["/data", "/home:ro"]
        local = ["/"]
        mounts_period = "30s"
        write_probe = true
        [host]
        enabled = false
        [checks.gate]
        enabled = false
        limit = 5
    """
    config = parse(text, "agent.toml", [GATE], {"NODE_NAME": "other"})
    assert config.node_name == "gpu-7"
    assert (config.kube.server, config.roots.proc) == ("https://127.0.0.1:6443", Path("/host/proc"))
    assert (config.kernel_log.admit_foreign, config.kernel_log.after_sequence) == (True, 7)
    assert (config.publish.burst, config.publish.reassert) == (3, timedelta(minutes=90))
    assert (config.lease.namespace, config.reboot.command) == ("elsewhere", ("reboot-it",))
    assert (config.storage.mounts, config.storage.local) == (("/data", "/home:ro"), ("/",))
    assert (config.storage.mounts_period, config.storage.write_probe) == (timedelta(seconds=30), True)
    assert not config.host.enabled
    assert config.check("gate") == CheckSection(enabled=False, settings={"limit": 5})


def test_the_nodes_name_comes_from_the_environment_unless_it_is_given() -> None:
    """The DaemonSet sets NODE_NAME from spec.nodeName."""
    assert parse("", "agent.toml", [], {"NODE_NAME": "gpu-7"}).node_name == "gpu-7"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(
            "nod_name = 'x'", "nod_name = 'x': unknown key; known here are checks,", id="an unknown key"
        ),
        pytest.param(
            "[publish]\nburts = 3",
            "publish.burts = 3: unknown key; known here are burst, reassert, refill",
            id="an unknown key in a table",
        ),
        pytest.param(
            "[publish]\nburst = 'six'",
            "publish.burst: 'six' is not a whole number",
            id="a string for a number",
        ),
        pytest.param(
            "[publish]\nburst = true", "publish.burst: True is not a whole number", id="a bool for a number"
        ),
        pytest.param(
            "[publish]\nburst = 0", "publish.burst: 0 is not within 1 and 100", id="a number too small"
        ),
        pytest.param(
            "[publish]\nrefill = 10", "publish.refill: 10 is not a string", id="a duration without its unit"
        ),
        pytest.param(
            "[publish]\nrefill = '10 s'",
            "publish.refill: '10 s' is no duration; write it like 30s, 5m or 1h30m",
            id="a duration with a blank",
        ),
        pytest.param(
            "[kubelet]\ninterval = '1s'",
            "kubelet.interval: 1s is not within 5s and 10m",
            id="kubelet asked too often",
        ),
        pytest.param(
            "[kubelet]\nresources = ['gpu']",
            "kubelet.resources: 'gpu' is no extended resource; nvidia.com/gpu would be one",
            id="a resource without its domain",
        ),
        pytest.param(
            "[lease]\ninterval = '1ms'",
            "lease.interval: 0.001s is not within 5s and 2m",
            id="a lease too often",
        ),
        pytest.param(
            "[kernel_log]\nadmit_foreign = 'yes'",
            "kernel_log.admit_foreign: 'yes' is not true or false",
            id="a string for a bool",
        ),
        pytest.param(
            "[kernel_log]\nafter_sequence = -1",
            "kernel_log.after_sequence: -1 is negative",
            id="a negative number",
        ),
        pytest.param("publish = 3", "publish: 3 is not a table", id="a number for a table"),
        pytest.param("listen = '9476'", "listen: '9476' is not HOST:PORT", id="an address without its host"),
        pytest.param(
            "[kube]\nserver = 'https://x'",
            "kube: server, token_file and ca_file belong together",
            id="half a server",
        ),
        pytest.param(
            "[checks.gat]\nenabled = true",
            "checks.gat: there is no such check; known are gate",
            id="no such check",
        ),
        pytest.param(
            "[checks.gate]\nlimt = 3",
            "checks.gate.limt = 3: unknown key; known here are enabled, limit",
            id="no such setting of a check",
        ),
        pytest.param(
            "[checks.gate]\nlimit = 'x'",
            "checks.gate.limit: 'x' is not a whole number",
            id="a setting of a wrong type",
        ),
        pytest.param(
            "[checks]\ngate = false", "checks.gate = False: is not a table", id="a check that is no table"
        ),
        pytest.param("checks = 3", "checks = 3: is not a table", id="checks that are no table"),
        pytest.param("[reboot]\ncommand = []", "reboot.command: [] names no program", id="an empty command"),
        pytest.param("[reboot]\ncommand = 'x'", "reboot.command: 'x' is not a list of strings", id="no list"),
        pytest.param("x = ", "not TOML:", id="no TOML"),
        pytest.param("x = " + "[" * 5000, "not TOML:", id="tables without end"),
        pytest.param(
            "[publish]\nrefill = '99999999999999999999h'",
            "publish.refill: '99999999999999999999h' is no duration",
            id="a duration beyond all years",
        ),
        pytest.param("listen = 'x:\u00b2'", "listen: 'x:\u00b2' is not HOST:PORT", id="a port of odd digits"),
        pytest.param(
            "state_dir = 'a\\u0000b'".replace("'", '"'),
            "state_dir: 'a\\x00b' is no path",
            id="a path that no file can have",
        ),
        pytest.param(
            "[storage]\nmounts = ['data']",
            "storage.mounts: 'data' is no absolute path; /data would be right",
            id="a relative mount",
        ),
        pytest.param(
            "[storage]\nmounts = ['/data/:ro']",
            "storage.mounts: '/data/:ro' is not in its shortest form '/data'; /data would be right",
            id="a mount as mountinfo does not write it",
        ),
        pytest.param(
            "[storage]\nmounts = ['/data', '/data:ro']",
            "storage.mounts: '/data' is there twice; name each mount once",
            id="a mount named twice",
        ),
        pytest.param(
            "[storage]\nlocal = ['var']", "storage.local: 'var' is no absolute path", id="a relative path"
        ),
        pytest.param(
            "[storage]\ndeadline = '5m'", "storage.deadline: 300s is not within 1s and 1m", id="too patient"
        ),
        pytest.param("[roots]\nproc = ''", "roots.proc: '' is no path", id="an empty path"),
    ],
)
def test_a_mistake_is_named(text: str, said: str) -> None:
    """The message begins with the file and says key, value and what would be right."""
    with pytest.raises(ConfigError) as raised:
        parse(text, "agent.toml", [GATE], {})
    assert len(raised.value.problems) == 1
    assert raised.value.problems[0].startswith(f"agent.toml: {said}")


def test_all_mistakes_are_said_at_once() -> None:
    """Whoever corrects a file is not sent round once per mistake."""
    text = "nod_name = 'x'\n[publish]\nburst = 'six'\nrefill = 'soon'\n[checks.gat]\n"
    with pytest.raises(ConfigError) as raised:
        parse(text, "agent.toml", [GATE], {})
    assert len(raised.value.problems) == 4


def test_a_file_that_was_asked_for_must_be_there(tmp_path: Path) -> None:
    """Only the default path may be absent."""
    missing = tmp_path / "agent.toml"
    with pytest.raises(ConfigError, match="cannot be read") as raised:
        load(missing, [GATE], {})
    assert str(missing) in str(raised.value)


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    """Bytes that are no UTF-8 are an error, not a guess."""
    path = tmp_path / "agent.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="UTF-8"):
        load(path, [GATE], {})


@given(st.integers(0, 100), st.integers(0, 59), st.integers(0, 59))
def test_durations_add_up(hours: int, minutes: int, seconds: int) -> None:
    """Whatever is written in h, m and s is read as their sum."""
    wanted = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    assert parse_duration(f"{hours}h{minutes}m{seconds}s") == wanted


def test_a_node_has_a_bounded_number_of_mounts() -> None:
    """Each is a process a look."""
    named = ", ".join(f"'/m{number}'" for number in range(33))
    with pytest.raises(ConfigError, match=r"storage\.mounts: 33 paths; at most 32"):
        parse(f"[storage]\nmounts = [{named}]", "agent.toml", [], {})
