"""Interprets files of suppressions, bounces and complaints: finds why each person gets no mail.

Only the type, event, reason or code in a row determines the reason. The reason must be right,
because an opt-out from such a file stays even if the import is undone.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import orjson

from models import ImportKind
from services.subscriptions.imports.column_layout import index_of
from services.subscriptions.imports.consent_cells import ROW_PROBLEMS, StatusValues
from services.subscriptions.imports.consent_readings import MAX_VALUES_COUNTED, MAX_VALUES_SHOWN
from services.subscriptions.imports.consent_words import items_of
from services.subscriptions.imports.known_words import (
    MAX_WORD_CHARACTERS,
    key,
    keys_of,
    load_words,
    split_words,
)
from services.subscriptions.imports.rows import (
    MemberRow,
    RejectedRecord,
    RowProblem,
    SuppressionStatus,
)

_UNLESS_NAMED = {
    ImportKind.SUPPRESSIONS: SuppressionStatus.UNSUBSCRIBED,
    ImportKind.BOUNCES: SuppressionStatus.BOUNCED,
    ImportKind.COMPLAINTS: SuppressionStatus.COMPLAINED,
}
_WORDS = load_words("suppression_files.toml")
_SUBJECTS = keys_of(_WORDS["headers"]["subjects"])
_OTHERS = _SUBJECTS | keys_of(_WORDS["headers"]["others"])
_ANSWERS = keys_of(_WORDS["headers"]["answers"])
_NUMBERS = {
    header: {
        str(number): SuppressionStatus(status)
        for status, numbers in statuses.items()
        for number in numbers
    }
    for header, statuses in _WORDS["numbers"].items()
}
_MEANINGS = {
    key(word): SuppressionStatus(status)
    for status, words in _WORDS["words"].items()
    for word in words
}
# The statuses are in the same order as in the TOML file. If several reasons apply, the first reason
# is used.
_FIRST = [SuppressionStatus(status) for status in _WORDS["words"]]
_MAY_PASS = SuppressionStatus.MAY_PASS
_EXACT = keys_of(_WORDS["exact"]["words"])
# SMTP status codes such as 550 and 5.1.1. "smtp;" may precede the code, and text may follow it.
_CODE = re.compile(
    r"(?:smtp ?[;:] ?)?[#<(\[\"']?([245])(?:\d\d|\.\d{1,3}\.\d{1,3})(?!\w|\.\d)",
    re.ASCII | re.IGNORECASE,
)
_ENHANCED_CODE = re.compile(r"[ -]{1,2}[#(\[]?([45])\.\d{1,3}\.\d{1,3}(?!\d)", re.ASCII)
_SOFT = frozenset({"soft", "transient", "temporary", "temporarily"})
_NEGATIONS = frozenset({"not", "no", "false", "never"})
_HAS_TYPES = "types"
_KIND_UNKNOWN = RowProblem(
    "row.kind_unknown", "The row gives no reason that we recognise for not mailing the person."
)


class SuppressionReader:
    """Reads the rows of a file of suppressions, bounces or complaints.

    Args:
        sample: some records of the file.
        mapping: maps columns to the roles that the owner assigned. A column with the role
            ``status`` contains the reason. status_values: maps values in the file to the status
            that the owner assigned. settled: what ``settled`` returned after the same file was read
            for the first time.
    """

    def __init__(
        self,
        header: Sequence[str],
        sample: Sequence[Sequence[str]],
        kind: ImportKind,
        *,
        mapping: Mapping[str, str] | None = None,
        status_values: Mapping[str, str] | None = None,
        settled: Mapping[str, bool] | None = None,
    ) -> None:
        self._header = header
        self._unless_named = _UNLESS_NAMED[kind]
        self._has_types = (settled or {}).get(_HAS_TYPES, False)
        self._took_kind = False
        self._values = StatusValues(status_values)
        self._sample = sample
        self._roles = {index_of(header, name): role for name, role in (mapping or {}).items()}
        self._find_columns()
        self._unknown: Counter[tuple[str, str]] = Counter()

    def read(
        self, rows: Iterable[MemberRow | RejectedRecord]
    ) -> Iterator[MemberRow | RejectedRecord]:
        """Yield each row with the reason why the person gets no mail, or with a problem."""
        for row in rows:
            if isinstance(row, RejectedRecord):
                yield row
                continue
            if len(self._header) > self._width:
                self._find_columns()
            status = self._status(row.cells)
            if status is None:
                unknown = SuppressionStatus.UNKNOWN
                yield row._replace(suppression=unknown, problem=_KIND_UNKNOWN)
            else:
                yield row._replace(suppression=status, problem=ROW_PROBLEMS.get(status))

    def settled(self) -> dict[str, bool]:
        """Return whether the file has a column with reasons. Call this after reading the file."""
        return {_HAS_TYPES: bool(self._types) or self._has_types}

    def differs(self) -> bool:
        """Return whether the file must be read again.

        The file must be read again if earlier rows were given the default reason for this kind of
        file, and a later row added a column with reasons.
        """
        return self._took_kind and bool(self._types)

    def unknown_values(self) -> list[dict[str, object]]:
        """Return the unrecognised values with columns and row counts, the most frequent first."""
        return [
            {"column": column, "value": value, "rows": rows}
            for (column, value), rows in self._unknown.most_common(MAX_VALUES_SHOWN)
        ]

    def _find_columns(self) -> None:
        """Find the columns with reasons. In JSON Lines, later rows may add more columns."""
        header, roles = self._header, self._roles
        self._width = len(header)
        free = [index for index in range(self._width) if index not in roles]
        types = [index for index, role in roles.items() if role == "status"]
        types += [index for index in free if _is_type(header[index])]
        self._types = types or self._types_by_cells(free)
        self._answers = [index for index in free if key(header[index]) in _ANSWERS]

    def _status(self, cells: Sequence[str]) -> SuppressionStatus | None:
        """Return the status that the row assigns, or ``None`` if its reason isn't recognised."""
        statuses = [self._type_status(index, _cell(cells, index)) for index in self._types]
        statuses += [_code_status(_cell(cells, index)) for index in self._answers]
        status = next((each for each in _FIRST if each in statuses), None)
        if status is None:
            for index in self._types:
                self._count_unknown(index, _cell(cells, index))
        if status or self._types or self._has_types:
            return status
        self._took_kind = True
        return self._unless_named

    def _type_status(self, index: int, cell: str) -> SuppressionStatus | None:
        name = key(self._header[index]) if index < len(self._header) else ""
        if (numbers := _NUMBERS.get(name)) is not None:
            return numbers.get(cell.strip())
        return self._cell_status(cell)

    def _cell_status(self, cell: str) -> SuppressionStatus | None:
        mapped = self._values.get(cell)
        if mapped is not None:
            return mapped if mapped in _FIRST else _MAY_PASS
        return _code_status(cell) or _word_status(_word(cell))

    def _count_unknown(self, index: int, cell: str) -> None:
        name = self._header[index].strip()[:MAX_WORD_CHARACTERS]
        value = name, cell.strip()[:MAX_WORD_CHARACTERS]
        if value in self._unknown or len(self._unknown) < MAX_VALUES_COUNTED:
            self._unknown[value] += 1

    def _types_by_cells(self, free: Iterable[int]) -> list[int]:
        """Return the columns in which at least half of the sampled cells are recognised reasons."""
        found = []
        for index in free:
            cells = [cell for record in self._sample if (cell := _cell(record, index).strip())]
            known = sum(self._cell_status(cell) is not None for cell in cells)
            if cells and known * 2 >= len(cells):
                found.append(index)
        return found


def _is_type(name: str) -> bool:
    """Return whether this header is the name of a column of types, events, reasons or codes."""
    words = split_words(name)
    return key(name) in _NUMBERS or (
        all(word in _OTHERS for word in words) and any(word in _SUBJECTS for word in words)
    )


def _code_status(cell: str) -> SuppressionStatus | None:
    """Return the status for the SMTP code that begins the cell, or ``None`` without a code."""
    text = cell.strip()[:MAX_WORD_CHARACTERS]
    code = _CODE.match(text)
    if code is None:
        return None
    enhanced = _ENHANCED_CODE.match(text, code.end())
    is_permanent = code[1] == "5" and (enhanced is None or enhanced[1] == "5")
    return SuppressionStatus.BOUNCED if is_permanent else _MAY_PASS


def _word_status(cell: str) -> SuppressionStatus | None:
    """Return the status for the words of a cell. If the cell is a list, interpret each item."""
    statuses = [_item_status(split_words(item)) for item in items_of(cell)]
    return next((each for each in _FIRST if each in statuses), None)


def _item_status(words: Sequence[str]) -> SuppressionStatus | None:
    for count in range(len(words), 0, -1):
        word = "".join(words[:count])
        status = _MEANINGS.get(word)
        has_rest = count < len(words)
        if status is None or (has_rest and word in _EXACT):
            continue
        if has_rest and _NEGATIONS.intersection(words[count:]):
            return None
        is_soft = status is SuppressionStatus.BOUNCED and _SOFT.intersection(words)
        return _MAY_PASS if is_soft else status
    return None


def _word(cell: str) -> str:
    """Return the cell, or only its ``code`` if the cell is a JSON object, as in Brevo's files."""
    if len(cell) > MAX_WORD_CHARACTERS * 10 or not cell.startswith("{"):
        return cell
    try:
        document = orjson.loads(cell)
    except orjson.JSONDecodeError:
        return cell
    code = document.get("code")
    return code if isinstance(code, str) else ""


def _cell(record: Sequence[str], index: int) -> str:
    return record[index] if index < len(record) else ""
