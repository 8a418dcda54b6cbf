"""Reading the tables that came with the program: CSV files of this package, in which nothing is guessed.

Every defect is a load error that names file, row, field and value, and what would be right. What a row means is for the
module that owns the table.
"""

import csv
import importlib.resources
import io
import re
from collections.abc import Sequence
from typing import TypeVar

from checks.check import CheckDefect

R = TypeVar("R", bound="Row")


class Row:
    """One line of a table, which can say what is wrong with it. `columns` are the header, `named` says which row it is."""

    columns: Sequence[str] = ()

    def __init__(self, file: str, line: int, cells: list[str]) -> None:
        self._place = f"{file} line {line}"
        if len(cells) != len(self.columns):
            wanted = f"{len(self.columns)}: {','.join(self.columns)}"
            raise CheckDefect(f"{self._place}: has {len(cells)} fields; it must have {wanted}")
        self._cells = dict(zip(self.columns, cells, strict=True))

    @property
    def named(self) -> str:
        return self._cells[self.columns[0]]

    def defect(self, field: str, wrong: str) -> CheckDefect:
        return CheckDefect(f"{self._place} ({self.named}): {field} {self._cells[field]!r} {wrong}")

    def text(self, field: str, pattern: str, meaning: str) -> str:
        value = self._cells[field]
        if not re.fullmatch(pattern, value):
            raise self.defect(field, f"is not valid; it must be {meaning}")
        return value


def read_file(name: str) -> str:
    """Give the text of a file of this package. Raises CheckDefect."""
    try:
        return importlib.resources.files("checks").joinpath(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckDefect(f"{name}: cannot be read: {error}") from error


def rows(text: str, file: str, kind: type[R]) -> list[R]:
    """Read all rows under a header of exactly their columns. Raises CheckDefect for the first thing that is wrong."""
    columns = tuple(kind.columns)
    lines = csv.reader(io.StringIO(text), strict=True)
    try:
        header = next(lines, [])
        if tuple(header) != columns:
            raise CheckDefect(f"{file}: the header is {','.join(header)!r}; it must be {','.join(columns)!r}")
        return [kind(file, lines.line_num, cells) for cells in lines]
    except csv.Error as error:
        raise CheckDefect(f"{file} line {lines.line_num}: not valid CSV: {error}") from error
