"""A named pipe for each test."""

import os
from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    pipe = tmp_path / "kmsg"
    os.mkfifo(pipe)
    return pipe
