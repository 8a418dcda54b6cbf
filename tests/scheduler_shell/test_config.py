"""scheduler.toml: defaults that work, and errors that name file, key, value and what would be right."""

from pathlib import Path

import pytest

from controller.config import ConfigError
from controller.scheduler.model import Order
from controller.scheduler.rules import COMPATIBLE, DEFAULT
from controller.scheduler.shell.config import Config, load, parse, shown

FILE = "scheduler.toml"


def test_an_empty_file_is_the_default_configuration() -> None:
    """Nothing has to be said."""
    assert parse("", FILE) == Config()
    assert Config().rules is DEFAULT


def test_what_is_shown_reads_back_as_the_same() -> None:
    """`--check-config` prints a file that could be used."""
    config = parse(
        'mode = "compatible"\npool = "h200"\n[placement]\ngpu = "spread"\n[graces]\nvolumes = "5m"\n', FILE
    )
    assert parse(shown(config), FILE) == config
    assert config.rules is COMPATIBLE
    assert config.settings().gpu_order is Order.SPREAD


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mod = 'default'", "mod: unknown key"),
        ("mode = 'kai'", "mode: 'kai' is not one of default, compatible"),
        ("unseen = 'maybe'", "unseen: 'maybe' is not one of admit, refuse"),
        ("enable_fractions = 'yes'", "enable_fractions: 'yes' is not true or false"),
        ("listen = '9478'", "listen: '9478' is not HOST:PORT; 0.0.0.0:9478 would be right"),
        ("scheduler_name = 'default-scheduler'", "scheduler_name: 'default-scheduler' is Kubernetes' own"),
        ("queue_label = ''", "queue_label: is empty"),
        ("[placement]\ngpu = 'pack'", "placement.gpu: 'pack' is not one of binpack, spread"),
        ("[graces]\nstale_gang = '-1s'", "graces.stale_gang"),
        (
            "[graces]\nstart_failures = '0s'",
            "graces.start_failures: 0s is not between 1s and 2h; 10m would be right",
        ),
        ("[graces]\nstart_failures = '3h'", "graces.start_failures: 3h is not between 1s and 2h"),
        ("[graces]\nstale_gang = 5", "graces.stale_gang: 5 is not a string"),
        ("[leader]\nlease_duration = '1500ms'", "leader.lease_duration: 1s500ms is not in whole seconds"),
        ("[leader]\nrenew_deadline = '20s'", "15s, 10s, 2s would be right"),
        ("[agents]\nsilent_after = '10s'", "agents.silent_after: 10s is less than two renewals"),
        ("[kube]\nserver = 'https://api'", "kube: server, token_file and ca_file belong together"),
        ("mode = ", "not TOML"),
    ],
)
def test_what_cannot_work_is_said_with_file_key_and_value(text: str, words: str) -> None:
    """One sentence for each mistake."""
    with pytest.raises(ConfigError) as caught:
        parse(text, FILE)
    assert str(caught.value).startswith(FILE)
    assert words in str(caught.value)


def test_all_mistakes_are_said_at_once() -> None:
    """Nobody has to start it five times."""
    with pytest.raises(ConfigError) as caught:
        parse("mode = 'kai'\nunseen = 'maybe'\nlisten = ''\n", FILE)
    assert len(caught.value.problems) == 3


def test_a_file_that_is_named_must_be_there(tmp_path: Path) -> None:
    """The default one may be absent, a named one not."""
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "absent.toml")
