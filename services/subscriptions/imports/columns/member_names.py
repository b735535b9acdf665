"""Reads the name of each member in an imported file."""

import re
from collections.abc import Iterable, Mapping, Sequence
from unicodedata import normalize

from core.languages.shown_lines import JOINERS, fold_case
from services.subscriptions.formula_guard import unguard_cell
from services.subscriptions.imports.columns.column_layout import ColumnLayout
from services.subscriptions.imports.columns.column_vocabulary import NAME_OR_PART
from services.subscriptions.imports.columns.known_words import normalise_word

MAX_MEMBER_NAME_CHARACTERS = 200
# The order of first, middle and last names in a full name, except in Chinese, Japanese and Korean.
NAME_PARTS = ("first_name", "middle_name", "last_name")

# Matches names in Chinese, Japanese or Korean characters. In Japanese text, foreign names are
# written in katakana, and the first name comes first.
_EAST_ASIAN = re.compile(r"[\u3005\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3\uf900-\ufaff]+\Z")
_KATAKANA = re.compile(r"[\u30a0-\u30ff]+\Z")


def assign_name_column(
    layout: ColumnLayout, mapping: Mapping[str, str] | None, sample: Iterable[Sequence[str]]
) -> None:
    """Decide whether a column ``Name`` contains the first name, the last name or the full name.

    In a file with the German header ``Vorname;Name``, for example, the column ``Name`` contains the
    last name. In a file with the header ``Name;Surname``, the column ``Name`` contains the first
    name. If most cells in ``Name`` contain the text of the row's other name column, ``Name`` is the
    full name.
    """
    index = layout.find_first_column("name")
    first_names = layout.find_columns("first_name")
    last_names = layout.find_columns("last_name")
    has_other_part = bool(first_names) != bool(last_names)
    if index is None or not has_other_part or "name" in (mapping or {}).values():
        return
    if normalise_word(layout.header[index]) not in NAME_OR_PART:
        return
    part_index = (first_names or last_names)[0]
    pairs = [
        (tidy_cell(record[index]), tidy_cell(record[part_index]))
        for record in sample
        if max(index, part_index) < len(record)
    ]
    pairs = [pair for pair in pairs if all(pair)]
    repeated = sum(_contains(name, part) for name, part in pairs)
    if repeated * 2 < len(pairs):
        layout.roles["last_name" if first_names else "first_name"] = layout.roles.pop("name")


class NameReader:
    def __init__(self, layout: ColumnLayout) -> None:
        self._name = layout.find_first_column("name")
        self._is_full_name = (
            self._name is None or normalise_word(layout.header[self._name]) not in NAME_OR_PART
        )
        self._parts = [layout.find_columns(role) for role in NAME_PARTS]
        self._has_parts = any(self._parts)
        name_columns = () if self._name is None else (self._name,)
        self.indexes = [*name_columns, *(index for indexes in self._parts for index in indexes)]

    def read(self, cells: Sequence[str]) -> str:
        name = "" if self._name is None else tidy_cell(cells[self._name])
        if not self._has_parts or (name and self._is_full_name):
            return name
        first, middle, last = (
            _join_cells([tidy_cell(cells[index]) for index in indexes]) for indexes in self._parts
        )
        if not name:
            return _join_parts(first, middle, last)
        forenames = " ".join(filter(None, (first, middle)))
        if not forenames and not _contains(name, last):
            return _join_parts(name, "", last)
        if not last and not _contains(name, forenames):
            return _join_parts(first, middle, name)
        full_name = _join_parts(first, middle, last)
        return full_name if _contains(full_name, name) else name


def tidy_cell(cell: str) -> str:
    """Remove surrounding spaces, and the apostrophe that exports put before a formula."""
    return tidy_name(unguard_cell(cell) if "'" in cell else cell)


def tidy_name(name: str) -> str:
    name = name if name.isascii() else normalize("NFC", name)
    if name.isprintable() and len(name) <= MAX_MEMBER_NAME_CHARACTERS:
        return name.strip()
    characters = (
        c if c.isprintable() or c in JOINERS else " " if c.isspace() else ""
        for c in name[: 10 * MAX_MEMBER_NAME_CHARACTERS]
    )
    return " ".join("".join(characters).split())[:MAX_MEMBER_NAME_CHARACTERS].rstrip()


def _join_cells(cells: Iterable[str]) -> str:
    parts: list[str] = []
    for cell in cells:
        if cell and not any(_contains(part, cell) for part in parts):
            parts = [part for part in parts if not _contains(cell, part)] + [cell]
    return " ".join(parts)


def _join_parts(first: str, middle: str, last: str) -> str:
    if last and first != last and _contains(first, last):
        last = ""
    elif first and first != last and _contains(last, first):
        first = ""
    if _contains(first, middle) or _contains(last, middle):
        middle = ""
    parts = [part for part in (first, middle, last) if part]
    characters = "".join(parts)
    if len(parts) > 1 and _EAST_ASIAN.match(characters) and not _KATAKANA.match(characters):
        return (last + first + middle)[:MAX_MEMBER_NAME_CHARACTERS]
    return " ".join(parts)[:MAX_MEMBER_NAME_CHARACTERS].rstrip()


def _contains(name: str, part: str) -> bool:
    if _EAST_ASIAN.match(part):
        # Chinese, Japanese and Korean names are often written without spaces.
        return part in name
    return set(fold_case(part).split()) <= set(fold_case(name).split())
