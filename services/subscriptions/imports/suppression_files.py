"""Finds out why the people in a file of suppressions, bounces or complaints must not get mail.

Cells with a type, event, reason or code state why a person must not get mail. A wrong opt-out
reason is hard to correct, because opt-outs from a suppression file stay even if the import is
undone.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import orjson

from models import ImportKind
from services.subscriptions.imports.column_layout import find_column
from services.subscriptions.imports.consent_cells import ROW_PROBLEMS, StatusValues
from services.subscriptions.imports.consent_interpreter import MAX_VALUES_COUNTED, MAX_VALUES_SHOWN
from services.subscriptions.imports.consent_words import split_items
from services.subscriptions.imports.known_words import (
    MAX_WORD_CHARACTERS,
    load_words,
    normalise_word,
    normalise_words,
    split_words,
)
from services.subscriptions.imports.rows import (
    MemberRow,
    RejectedRecord,
    RowProblem,
    SuppressionStatus,
)

# Maps each kind of file to the status of its rows if no column contains reasons.
_DEFAULT_STATUSES = {
    ImportKind.SUPPRESSIONS: SuppressionStatus.UNSUBSCRIBED,
    ImportKind.BOUNCES: SuppressionStatus.BOUNCED,
    ImportKind.COMPLAINTS: SuppressionStatus.COMPLAINED,
}
_WORDS = load_words("suppression_files.toml")
# The header of a column with reasons contains only words in ``_HEADER_WORDS``, and at least one
# word in ``_SUBJECTS``.
_SUBJECTS = normalise_words(_WORDS["headers"]["subjects"])
_HEADER_WORDS = _SUBJECTS | normalise_words(_WORDS["headers"]["others"])
# The headers of columns that contain the responses of mail servers.
_RESPONSES = normalise_words(_WORDS["headers"]["answers"])
# For each column whose reasons are numbers, maps the header to the status that each number stands
# for.
_NUMBERED_REASONS = {
    header: {
        str(number): SuppressionStatus(status)
        for status, numbers in statuses.items()
        for number in numbers
    }
    for header, statuses in _WORDS["numbers"].items()
}
# Maps each word for a suppression reason to a suppression status.
_MEANINGS = {
    normalise_word(word): SuppressionStatus(status)
    for status, words in _WORDS["words"].items()
    for word in words
}
# All statuses, in the order of the file ``suppression_files.toml``. If a row has several reasons,
# the status that comes first in ``suppression_files.toml`` is used.
_RANKED_STATUSES = [SuppressionStatus(status) for status in _WORDS["words"]]
_MAY_PASS = SuppressionStatus.MAY_PASS
# Words that are recognised as a suppression reason only if no text follows.
_EXACT_WORDS = normalise_words(_WORDS["exact"]["words"])
# Matches SMTP status codes such as 550 and 5.1.1. In a cell, "smtp;" may precede the status code,
# and text may follow the code.
_CODE = re.compile(
    r"(?:smtp ?[;:] ?)?[#<(\[\"']?([245])(?:\d\d|\.\d{1,3}\.\d{1,3})(?!\w|\.\d)",
    re.ASCII | re.IGNORECASE,
)
_ENHANCED_CODE = re.compile(r"[ -]{1,2}[#(\[]?([45])\.\d{1,3}\.\d{1,3}(?!\d)", re.ASCII)
_SOFT_WORDS = frozenset({"soft", "transient", "temporary", "temporarily"})
_NEGATIONS = frozenset({"not", "no", "false", "never"})
# The only key in the result of ``SuppressionReader.find_decisions``.
_HAS_REASONS = "types"
_KIND_UNKNOWN = RowProblem(
    "row.kind_unknown", "The row gives no known reason for suppressing the address."
)


class SuppressionReader:
    """A reader that determines for each row why the person must not get mail.

    Args:
        sample: the first records of the file.
        mapping: maps columns to the roles that the owner has assigned. Columns with the role
            ``status`` contain the reasons why people must not get mail.
        status_values: maps values in the file to the statuses that the owner has assigned.
        earlier_decisions: the result of ``find_decisions`` from the first reading of the file.
    """

    def __init__(
        self,
        header: Sequence[str],
        sample: Sequence[Sequence[str]],
        kind: ImportKind,
        *,
        mapping: Mapping[str, str] | None = None,
        status_values: Mapping[str, str] | None = None,
        earlier_decisions: Mapping[str, bool] | None = None,
    ) -> None:
        self._header = header
        self._default_status = _DEFAULT_STATUSES[kind]
        self._had_reasons = (earlier_decisions or {}).get(_HAS_REASONS, False)
        self._used_default = False
        self._values = StatusValues(status_values)
        self._sample = sample
        self._roles = {find_column(header, name): role for name, role in (mapping or {}).items()}
        self._find_columns()
        self._unknown: Counter[tuple[str, str]] = Counter()

    def read(
        self, rows: Iterable[MemberRow | RejectedRecord]
    ) -> Iterator[MemberRow | RejectedRecord]:
        """Yield the rows of a suppression file."""
        for row in rows:
            if isinstance(row, RejectedRecord):
                yield row
                continue
            if len(self._header) > self._width:
                self._find_columns()
            status = self._find_status(row.cells)
            if status is None:
                unknown = SuppressionStatus.UNKNOWN
                yield row._replace(suppression=unknown, problem=_KIND_UNKNOWN)
            else:
                yield row._replace(suppression=status, problem=ROW_PROBLEMS.get(status))

    def find_decisions(self) -> dict[str, bool]:
        """Return whether the file has a column with reasons for not mailing people.

        Call the method only after the whole file has been read.
        """
        return {_HAS_REASONS: bool(self._reason_columns) or self._had_reasons}

    def has_misread_rows(self) -> bool:
        """Return whether the file must be read again, because the first rows were misread.

        If a later record adds a column with reasons, the earlier rows have wrongly got the default
        status.
        """
        return self._used_default and bool(self._reason_columns)

    def list_unknown_values(self) -> list[dict[str, object]]:
        """Return the unrecognised reasons for not mailing people, the most frequent first."""
        return [
            {"column": column, "value": value, "rows": rows}
            for (column, value), rows in self._unknown.most_common(MAX_VALUES_SHOWN)
        ]

    def _find_columns(self) -> None:
        """Find the columns in the current header that contain reasons for not mailing people."""
        header = self._header
        roles = self._roles
        self._width = len(header)
        unmapped = [index for index in range(self._width) if index not in roles]
        reason_columns = [index for index, role in roles.items() if role == "status"]
        reason_columns += [index for index in unmapped if _is_reason_header(header[index])]
        self._reason_columns = reason_columns or self._find_reasons_by_cells(unmapped)
        self._response_columns = [
            index for index in unmapped if normalise_word(header[index]) in _RESPONSES
        ]

    def _find_status(self, cells: Sequence[str]) -> SuppressionStatus | None:
        """Return the status that a row's reason implies, or ``None`` for an unrecognised reason."""
        statuses = [
            self._find_reason_status(index, _get_cell(cells, index))
            for index in self._reason_columns
        ]
        statuses += [_find_code_status(_get_cell(cells, index)) for index in self._response_columns]
        status = next((each for each in _RANKED_STATUSES if each in statuses), None)
        if status is None:
            for index in self._reason_columns:
                self._count_unknown(index, _get_cell(cells, index))
        if status or self._reason_columns or self._had_reasons:
            return status
        self._used_default = True
        return self._default_status

    def _find_reason_status(self, index: int, cell: str) -> SuppressionStatus | None:
        name = normalise_word(self._header[index]) if index < len(self._header) else ""
        if (numbers := _NUMBERED_REASONS.get(name)) is not None:
            return numbers.get(cell.strip())
        return self._find_cell_status(cell)

    def _find_cell_status(self, cell: str) -> SuppressionStatus | None:
        mapped = self._values.get(cell)
        if mapped is not None:
            return mapped if mapped in _RANKED_STATUSES else _MAY_PASS
        return _find_code_status(cell) or _find_word_status(_extract_reason(cell))

    def _count_unknown(self, index: int, cell: str) -> None:
        name = self._header[index].strip()[:MAX_WORD_CHARACTERS]
        value = name, cell.strip()[:MAX_WORD_CHARACTERS]
        if value in self._unknown or len(self._unknown) < MAX_VALUES_COUNTED:
            self._unknown[value] += 1

    def _find_reasons_by_cells(self, unmapped: Iterable[int]) -> list[int]:
        """Return columns in which at least half the sampled cells are known suppression reasons."""
        reason_columns = []
        for index in unmapped:
            cells = [cell for record in self._sample if (cell := _get_cell(record, index).strip())]
            known = sum(self._find_cell_status(cell) is not None for cell in cells)
            if cells and known * 2 >= len(cells):
                reason_columns.append(index)
        return reason_columns


def _is_reason_header(name: str) -> bool:
    """Return whether a header names types, events, reasons or codes."""
    words = split_words(name)
    return normalise_word(name) in _NUMBERED_REASONS or (
        all(word in _HEADER_WORDS for word in words) and any(word in _SUBJECTS for word in words)
    )


def _find_code_status(cell: str) -> SuppressionStatus | None:
    """Return the status for the SMTP code with which a cell begins, or ``None``."""
    text = cell.strip()[:MAX_WORD_CHARACTERS]
    code = _CODE.match(text)
    if code is None:
        return None
    enhanced = _ENHANCED_CODE.match(text, code.end())
    is_permanent = code[1] == "5" and (enhanced is None or enhanced[1] == "5")
    return SuppressionStatus.BOUNCED if is_permanent else _MAY_PASS


def _find_word_status(cell: str) -> SuppressionStatus | None:
    """Return the highest-ranked status among the items of a cell, or ``None`` if there is none."""
    statuses = [_find_item_status(split_words(item)) for item in split_items(cell)]
    return next((each for each in _RANKED_STATUSES if each in statuses), None)


def _find_item_status(words: Sequence[str]) -> SuppressionStatus | None:
    for count in range(len(words), 0, -1):
        word = "".join(words[:count])
        status = _MEANINGS.get(word)
        has_rest = count < len(words)
        if status is None or (has_rest and word in _EXACT_WORDS):
            continue
        if has_rest and _NEGATIONS.intersection(words[count:]):
            return None
        is_soft = status is SuppressionStatus.BOUNCED and _SOFT_WORDS.intersection(words)
        return _MAY_PASS if is_soft else status
    return None


def _extract_reason(cell: str) -> str:
    """Return the cell.

    If the cell is a JSON object, as in Brevo's files, return the value of ``code``.
    """
    if len(cell) > MAX_WORD_CHARACTERS * 10 or not cell.startswith("{"):
        return cell
    try:
        document = orjson.loads(cell)
    except orjson.JSONDecodeError:
        return cell
    code = document.get("code")
    return code if isinstance(code, str) else ""


def _get_cell(record: Sequence[str], index: int) -> str:
    return record[index] if index < len(record) else ""
