"""The copied Python: refused in words where there is no place for it."""

from pathlib import Path

import pytest

from bench.outcome import NotMeasured
from bench.own_python import copy_python


def test_a_folder_that_cannot_be_made_is_no_measurement(tmp_path: Path) -> None:
    """Nothing is measured on half a copy."""
    taken = tmp_path / "python"
    taken.touch()
    with pytest.raises(NotMeasured, match="cannot be copied to"):
        copy_python(taken)
