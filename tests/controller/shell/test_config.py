"""controller.config: everything optional, nothing unknown, every problem said at once and in full."""

from datetime import timedelta
from pathlib import Path

import pytest

from controller.config import Config, ConfigError, load, parse, shown
from controller.sections import show_duration
from controller.terms import parse_duration
from tests.controller.shell.samples import secret_file


def test_an_empty_file_gives_the_defaults() -> None:
    """Nothing must be configured; the one repair has its default command."""
    config = parse("", "c.toml")
    assert (config.listen, config.retention, config.dry_run) == ("0.0.0.0:9477", timedelta(hours=720), False)
    assert config.repairs["reboot"].command == ("nodemend-agent", "reboot")
    assert (config.leader.lease_duration, config.agents.silent_after) == (
        timedelta(seconds=15),
        timedelta(minutes=5),
    )


def test_every_section_is_read(tmp_path: Path) -> None:
    """Durations, lists, tables by name: as written."""
    text = f"""
        cluster_name = "west"
        dry_run = true
        [kube]
        server = "https://127.0.0.1:1"
        token_file = "/t"
        ca_file = "/c"
        [leader]
        lease_duration = "30s"
        renew_deadline = "20s"
        [jobs]
        image = "registry.example.com/nodemend@sha256:0"
        host_pid = false
        [repairs.reboot]
        command = ["python", "-m", "reboot"]
        [sinks.oncall]
        url = "https://hooks.example.com/a/b"
        secret_file = "{secret_file(tmp_path)}"
        retries = ["0s", "1m30s"]
    """
    config = parse(text, "c.toml")
    assert (config.cluster_name, config.dry_run, config.jobs.host_pid) == ("west", True, False)
    assert config.repairs["reboot"].command == ("python", "-m", "reboot")
    assert config.sinks["oncall"].retries == (timedelta(0), timedelta(seconds=90))
    assert config.leader.renew_deadline == timedelta(seconds=20)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("nope = 1", "c.toml: nope: unknown key; known here are", id="an unknown key at the top"),
        pytest.param(
            "[jobs]\nimge = 'x'", "c.toml: jobs.imge: unknown key; known here are", id="an unknown key below"
        ),
        pytest.param("dry_run = 'yes'", "c.toml: dry_run: 'yes' is not true or false", id="a wrong type"),
        pytest.param("jobs = 1", "c.toml: jobs: 1 is not a table", id="no table where one belongs"),
        pytest.param(
            "retention = '30d'",
            "c.toml: retention: '30d' is no duration; write it like 30s, 5m or 1h30m",
            id="an unknown unit of time",
        ),
        pytest.param("listen = '9477'", "c.toml: listen: '9477' is not HOST:PORT", id="a port without host"),
        pytest.param(
            "listen = 'x:²'", "c.toml: listen: 'x:²' is not HOST:PORT", id="a digit that is no number"
        ),
        pytest.param("a = " + "[" * 9000, "c.toml: not TOML: ", id="nested without end"),
        pytest.param(
            "[leader]\nrenew_deadline = '15s'",
            "c.toml: leader: retry_period 2.0 s, renew_deadline 15.0 s",
            id="an unsafe lease",
        ),
        pytest.param(
            "[agents]\nsilent_after = '10s'", "c.toml: agents.silent_after: 10s", id="a hasty silence"
        ),
        pytest.param(
            "[repairs.hammer]\n", "c.toml: repairs.hammer: there is no such repair", id="an unknown repair"
        ),
        pytest.param(
            "[repairs.reboot]\ncommand = []", "c.toml: repairs.reboot.command: []", id="an empty command"
        ),
        pytest.param(
            "[kube]\nserver = 'https://x'", "c.toml: kube: server, token_file", id="a server without token"
        ),
        pytest.param("a = ", "c.toml: not TOML", id="no TOML"),
    ],
)
def test_a_problem_names_file_key_value_and_what_would_be_right(text: str, expected: str) -> None:
    """One clear sentence for each kind of mistake."""
    with pytest.raises(ConfigError) as raised:
        parse(text, "c.toml")
    assert [problem for problem in raised.value.problems if problem.startswith(expected)]


@pytest.mark.parametrize(
    ("sink", "expected"),
    [
        pytest.param("url = 'ftp://x/y'", ".url: not an http(s) address", id="another scheme"),
        pytest.param(
            "url = 'https://u:p@x/y'", ".url: not an http(s) address", id="a password in the address"
        ),
        pytest.param(
            "url = 'http://hooks.example.com'", ".url: plain http to hooks.example.com", id="no TLS"
        ),
        pytest.param("timeout = '5m'", ".timeout: 5m is not within 1s and 30s", id="a long wait"),
        pytest.param("retries = []", ".retries: 0 tries", id="no tries"),
        pytest.param("secret_file = '/nowhere/x'", ".secret_file: /nowhere/x cannot be read", id="no secret"),
        pytest.param("ca_file = '/nowhere/ca'", ".ca_file: /nowhere/ca is no file", id="no authority"),
    ],
)
def test_a_sink_that_could_not_page_is_refused_at_start(sink: str, expected: str, tmp_path: Path) -> None:
    """A page must not fail for the first time at night."""
    good = {"url": "'https://x/y'", "secret_file": f"'{secret_file(tmp_path)}'"}
    given = dict(line.split(" = ") for line in sink.splitlines())
    lines = "\n".join(f"{key} = {value}" for key, value in {**good, **given}.items())
    with pytest.raises(ConfigError) as raised:
        parse(f"[sinks.oncall]\n{lines}", "c.toml")
    assert [problem for problem in raised.value.problems if f"sinks.oncall{expected}" in problem]


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param("url = 'http://127.0.0.1:8080/hook'", id="this host by address"),
        pytest.param("url = 'http://localhost/hook'", id="this host by name"),
        pytest.param("url = 'http://hooks.example.com/x'\nallow_http = true", id="allowed by its own key"),
    ],
)
def test_plain_http_is_for_this_host_or_by_permission(lines: str, tmp_path: Path) -> None:
    """Loopback needs no TLS; anything else needs the administrator's word."""
    config = parse(f"[sinks.a]\nsecret_file = '{secret_file(tmp_path)}'\n{lines}", "c.toml")
    assert config.sinks["a"].url.startswith("http://")


def test_all_problems_are_said_at_once() -> None:
    """Nobody should have to start three times to find three typos."""
    with pytest.raises(ConfigError) as raised:
        parse("nope = 1\ndry_run = 2\n[jobs]\nimge = ''", "c.toml")
    assert len(raised.value.problems) == 3


def test_an_absent_default_file_is_no_error_but_an_absent_named_one_is(tmp_path: Path) -> None:
    """A name that was given must lead somewhere."""
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "absent.toml")


def test_what_is_shown_can_be_read_again_and_holds_no_secret(tmp_path: Path) -> None:
    """The path of a receiver's address is often its password; the secret itself is only named by its file."""
    text = f'cluster_name = "w\\"x"\n[sinks.a]\nsecret_file = "{secret_file(tmp_path)}"\nurl = "https://h.example.com/T0/hush"'
    config = parse(text, "c.toml")
    text = shown(config)
    assert "hush" not in text
    assert "whsec_" not in text
    assert parse(text, "again.toml").sinks["a"].url == "https://h.example.com/..."
    assert parse(text, "again.toml").cluster_name == 'w"x'
    assert parse(shown(Config()), "d.toml") == parse("", "d.toml")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("90s", timedelta(seconds=90), id="seconds"),
        pytest.param("1h30m", timedelta(minutes=90), id="mixed units"),
        pytest.param("250ms", timedelta(milliseconds=250), id="milliseconds are not minutes"),
        pytest.param("0s", timedelta(0), id="nothing"),
    ],
)
def test_durations_are_read_and_written_alike(text: str, expected: timedelta) -> None:
    """Go's way of writing, as in policies."""
    assert parse_duration(text) == expected
    assert parse_duration(show_duration(expected)) == expected
