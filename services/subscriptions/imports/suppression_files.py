"""Files of suppressions, bounces and complaints: why the person of each row gets no mail.

Only the type, event, reason or code of the row itself decides, because no undo takes back an
opt-out by such a file.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import orjson

from models import ImportKind
from services.subscriptions.imports.columns import (
    MemberRow,
    RejectedRecord,
    RowProblem,
    SuppressionStatus,
    index_of,
)
from services.subscriptions.imports.consent_cells import (
    MAX_VALUES_COUNTED,
    MAX_VALUES_SHOWN,
    ROW_PROBLEMS,
    STATUS_VALUES,
    folded_value,
)
from services.subscriptions.imports.consent_words import items_of
from services.subscriptions.imports.vocabulary import (
    MAX_WORD_CHARACTERS,
    key,
    keys_of,
    load_words,
    split_words,
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
# The order of the tables.
_FIRST = [SuppressionStatus(status) for status in _WORDS["words"]]
_MAY_PASS = SuppressionStatus.MAY_PASS
_EXACT = keys_of(_WORDS["exact"]["words"])
# Codes of SMTP, such as 550 and 5.1.1, also behind "smtp;" and with text behind them.
_CODE = re.compile(
    r"(?:smtp ?[;:] ?)?[#<(\[\"']?([245])(?:\d\d|\.\d{1,3}\.\d{1,3})(?!\w|\.\d)",
    re.ASCII | re.IGNORECASE,
)
_ENHANCED_CODE = re.compile(r"[ -]{1,2}[#(\[]?([45])\.\d{1,3}\.\d{1,3}(?!\d)", re.ASCII)
_SOFT = frozenset({"soft", "transient", "temporary", "temporarily"})
_NEGATIONS = frozenset({"not", "no", "false", "never"})
_KIND_UNKNOWN = RowProblem(
    "row.kind_unknown", "The row doesn't say why the person gets no mail, or in an unknown word."
)


class SuppressionReader:
    """Reads the rows of a file of suppressions, bounces or complaints.

    Args:
        sample: some records of the file.
        mapping: the owner's roles of columns. A ``status`` is a column of the type.
        status_values: the owner's meanings of values.
    """

    def __init__(
        self,
        header: Sequence[str],
        sample: Sequence[Sequence[str]],
        kind: ImportKind,
        mapping: Mapping[str, str] | None = None,
        status_values: Mapping[str, str] | None = None,
    ) -> None:
        self._header = header
        self._unless_named = _UNLESS_NAMED[kind]
        self._values = {
            folded_value(value): STATUS_VALUES[status]
            for value, status in (status_values or {}).items()
        }
        self._sample = sample
        self._roles = {index_of(header, name): role for name, role in (mapping or {}).items()}
        self._find_columns()
        self._counts: Counter[tuple[str, str, SuppressionStatus | None]] = Counter()

    def read(
        self, rows: Iterable[MemberRow | RejectedRecord]
    ) -> Iterator[MemberRow | RejectedRecord]:
        """Yield the rows, each with the reason why the person gets no mail, or with a problem."""
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

    def unknown_values(self) -> list[dict[str, object]]:
        """Return the unknown values with their columns and counts, the most frequent first."""
        return [
            {"column": column, "value": value, "rows": rows}
            for (column, value, status), rows in self._counts.most_common()
            if status is None
        ][:MAX_VALUES_SHOWN]

    def _find_columns(self) -> None:
        """Find the columns that decide. In JSON Lines, later rows may have more of them."""
        header, roles = self._header, self._roles
        self._width = len(header)
        free = [index for index in range(self._width) if index not in roles]
        types = [index for index, role in roles.items() if role == "status"]
        types += [index for index in free if _is_type(header[index])]
        self._types = types or self._types_by_cells(free)
        self._answers = [index for index in free if key(header[index]) in _ANSWERS]

    def _status(self, cells: Sequence[str]) -> SuppressionStatus | None:
        """Return the row's status; ``None`` if it is unknown."""
        statuses = [self._type_status(index, _cell(cells, index)) for index in self._types]
        statuses += [_code_status(_cell(cells, index)) for index in self._answers]
        status = next((each for each in _FIRST if each in statuses), None)
        if status is None:
            for index in self._types:
                self._count(index, _cell(cells, index))
        return status if status or self._types else self._unless_named

    def _type_status(self, index: int, cell: str) -> SuppressionStatus | None:
        name = key(self._header[index]) if index < len(self._header) else ""
        if (numbers := _NUMBERS.get(name)) is not None:
            return numbers.get(cell.strip())
        return self._cell_status(cell)

    def _cell_status(self, cell: str) -> SuppressionStatus | None:
        mapped = self._values.get(folded_value(cell))
        if mapped is not None:
            return mapped if mapped in _FIRST else _MAY_PASS
        return _code_status(cell) or _word_status(_word(cell))

    def _count(self, index: int, cell: str) -> None:
        name = self._header[index].strip()[:MAX_WORD_CHARACTERS]
        counted = name, cell.strip()[:MAX_WORD_CHARACTERS], None
        if counted in self._counts or len(self._counts) < MAX_VALUES_COUNTED:
            self._counts[counted] += 1

    def _types_by_cells(self, free: Iterable[int]) -> list[int]:
        """Return the columns of which most cells in the sample name a reason."""
        found = []
        for index in free:
            cells = [cell for record in self._sample if (cell := _cell(record, index).strip())]
            known = sum(self._cell_status(cell) is not None for cell in cells)
            if cells and known * 2 >= len(cells):
                found.append(index)
        return found


def _is_type(name: str) -> bool:
    """Return whether a header names a column of the type, event, reason or code."""
    words = split_words(name)
    return key(name) in _NUMBERS or (
        all(word in _OTHERS for word in words) and any(word in _SUBJECTS for word in words)
    )


def _code_status(cell: str) -> SuppressionStatus | None:
    """Return what a code at the beginning of the cell says."""
    text = cell.strip()[:MAX_WORD_CHARACTERS]
    code = _CODE.match(text)
    if code is None:
        return None
    enhanced = _ENHANCED_CODE.match(text, code.end())
    is_permanent = code[1] == "5" and (enhanced is None or enhanced[1] == "5")
    return SuppressionStatus.BOUNCED if is_permanent else _MAY_PASS


def _word_status(cell: str) -> SuppressionStatus | None:
    """Return what the words of the cell, or of the items of its list, say."""
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
    """Return the cell; of an object, which Brevo has for a reason, return its code."""
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
