"""The rule switches: each has a reason, and the documents show all of them."""

import re
from pathlib import Path

from controller.scheduler.rules import COMPATIBLE, DEFAULT, REASONS, Rules, table

PAGE = (Path(__file__).parents[2] / "docs" / "scheduler.md").read_text()


def test_every_rule_has_a_reason() -> None:
    """A switch nobody can explain is none."""
    assert set(REASONS) == set(Rules.__struct_fields__)


def test_the_modes_are_all_ours_and_all_kais() -> None:
    """Nothing is mixed in either mode."""
    assert all(getattr(DEFAULT, name) for name in REASONS)
    assert not any(getattr(COMPATIBLE, name) for name in REASONS)


def test_the_page_shows_the_rules_as_they_are() -> None:
    """docs/scheduler.md holds what `controller.scheduler.rules.table()` gives."""
    found = re.search(r"<!-- rules:begin[^\n]*-->\n(.*?)<!-- rules:end -->", PAGE, re.DOTALL)
    assert found is not None
    assert found[1] == table()
