"""Finds out why the people in a file of suppressions, bounces or complaints must not get mail.

Cells with a type, event, reason or code state why a person must not get mail. A wrong opt-out
reason is hard to correct, because opt-outs from a suppression file stay even if the import is
undone. A bounce is an opt-out only if it is hard. Codes of mail servers decide about this in the
same way as in senders' reports, and take precedence over words such as "permanent".
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

import orjson

from integrations.senders.bounce_statuses import choose_bounce_class, find_status
from integrations.senders.feedback_types import UNCOUNTED_FEEDBACK_TYPES, is_from_person
from integrations.senders.port import BounceClass
from models import ImportKind
from services.subscriptions.imports.columns.column_layout import find_column
from services.subscriptions.imports.columns.consent_cells import (
    ROW_PROBLEMS,
    StatusValues,
    is_bare_no,
)
from services.subscriptions.imports.columns.consent_interpreter import (
    MAX_VALUES_COUNTED,
    MAX_VALUES_SHOWN,
)
from services.subscriptions.imports.columns.consent_words import split_items
from services.subscriptions.imports.columns.known_words import (
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


class _Reason(StrEnum):
    """The reason that a row states, in the order of precedence if a row states several reasons.

    ``NOT_COMPLAINED`` means that no person caused the complaint in the row. ``MAY_PASS`` means an
    event that is neither a bounce nor a reason for not mailing the person, such as a delivery.
    ``SOFT`` means a bounce that isn't hard, and ``BOUNCED`` a hard bounce.
    """

    COMPLAINED = "complained"
    UNSUBSCRIBED = "unsubscribed"
    NOT_COMPLAINED = "not_complained"
    MAY_PASS = "may_pass"  # noqa: S105 - a name
    SOFT = "soft"
    BOUNCED = "bounced"


# Maps each kind of file to the status of its rows if no column contains reasons.
_DEFAULT_STATUSES = {
    ImportKind.SUPPRESSIONS: SuppressionStatus.UNSUBSCRIBED,
    ImportKind.BOUNCES: SuppressionStatus.BOUNCED,
    ImportKind.COMPLAINTS: SuppressionStatus.COMPLAINED,
}
_COMPLAINED = SuppressionStatus.COMPLAINED
# The reasons that opt a person out. All other reasons suppress nobody.
_OPT_OUT_STATUSES = {
    reason: SuppressionStatus(reason.value)
    for reason in (_Reason.COMPLAINED, _Reason.UNSUBSCRIBED, _Reason.BOUNCED)
}
_OTHER = "other"
_FEEDBACK_REASONS = (_Reason.NOT_COMPLAINED, _Reason.UNSUBSCRIBED, _Reason.MAY_PASS)
_REASONS_BY_STATUS = {status: reason for reason, status in _OPT_OUT_STATUSES.items()}
_WORDS = load_words("suppression_files.toml")
# The header of a column with reasons contains only words in ``_HEADER_WORDS``, and at least one
# word in ``_SUBJECTS``.
_SUBJECTS = normalise_words(_WORDS["headers"]["subjects"])
_HEADER_WORDS = _SUBJECTS | normalise_words(_WORDS["headers"]["others"])
# The header of a column with feedback types contains a word in ``_FEEDBACK_HEADERS``, or one word
# each in ``_FEEDBACK_WORDS`` and ``_FEEDBACK_TYPES`` and no words except ``_FEEDBACK_OTHERS``.
_FEEDBACK_HEADERS = normalise_words(_WORDS["feedback_headers"]["whole"])
_FEEDBACK_WORDS = normalise_words(_WORDS["feedback_headers"]["subjects"])
_FEEDBACK_TYPES = normalise_words(_WORDS["feedback_headers"]["types"])
_FEEDBACK_OTHERS = normalise_words(_WORDS["feedback_headers"]["others"])
# The header of a column with the responses of mail servers contains only words in
# ``_HEADER_WORDS`` or ``_RESPONSES``, and at least one word in ``_RESPONSES``.
_RESPONSES = normalise_words(_WORDS["headers"]["answers"])
_HARD_HEADERS = normalise_words(_WORDS["hard_headers"]["words"])
# For each column whose reasons are numbers, maps the header to the reason that each number stands
# for.
_NUMBERED_REASONS = {
    header: {
        str(number): _Reason(reason) for reason, numbers in reasons.items() for number in numbers
    }
    for header, reasons in _WORDS["numbers"].items()
}
# Maps each word for a suppression reason to the reason.
_MEANINGS = {
    normalise_word(word): _Reason(reason)
    for reason, words in _WORDS["words"].items()
    for word in words
} | dict.fromkeys(normalise_words(UNCOUNTED_FEEDBACK_TYPES), _Reason.NOT_COMPLAINED)
# Words that are recognised as a suppression reason only if no text follows.
_EXACT_WORDS = normalise_words(_WORDS["exact"]["words"])
# Matches the code at the start of a mail server's reply, such as 550, 250 or 2.0.0.
_REPLY = re.compile(
    r"(?:smtp ?[;:] ?)?[#<(\[\"']?([245])(?:\d\d|\.\d{1,3}\.\d{1,3})(?!\w|\.\d)",
    re.ASCII | re.IGNORECASE,
)
# Matches a three-digit code before an enhanced status code. Below every header, such a text is the
# reply of a mail server.
_FULL_REPLY = re.compile(
    r"(?<![\d.])[45]\d\d[\s#:;,<(\[-]{1,3}[45]\.\d{1,3}\.\d{1,3}(?!\w|\.\d)", re.ASCII
)
_MAX_SEARCHED_CHARACTERS = 2_000
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
        return {_HAS_REASONS: bool(self._reason_columns) or self._had_reasons}

    def has_misread_rows(self) -> bool:
        return self._used_default and bool(self._reason_columns)

    def list_unknown_values(self) -> list[dict[str, object]]:
        return [
            {"column": column, "value": value, "rows": rows}
            for (column, value), rows in self._unknown.most_common(MAX_VALUES_SHOWN)
        ]

    def _find_columns(self) -> None:
        header = self._header
        roles = self._roles
        self._width = len(header)
        unmapped = [index for index in range(self._width) if index not in roles]
        self._feedback_columns = {
            index for index in range(self._width) if _is_feedback_header(header[index])
        }
        self._numbers = {
            index: numbers
            for index in range(self._width)
            if (numbers := _NUMBERED_REASONS.get(normalise_word(header[index]))) is not None
        }
        self._other_columns: dict[int, bool] = {}
        reason_columns = [index for index, role in roles.items() if role == "status"]
        reason_columns += [index for index in unmapped if _is_reason_header(header[index])]
        self._reason_columns = reason_columns or self._find_reasons_by_cells(unmapped)
        self._hard_columns = [
            index for index in unmapped if normalise_word(header[index]) in _HARD_HEADERS
        ]
        # Maps each other column to whether its header names the responses of mail servers.
        self._other_columns = {
            index: _is_response_header(header[index])
            for index in unmapped
            if index not in self._reason_columns
        }

    def _find_status(self, cells: Sequence[str]) -> SuppressionStatus | None:
        reason = self._find_reason(cells)
        if reason is not None:
            return _OPT_OUT_STATUSES.get(reason, SuppressionStatus.MAY_PASS)
        if self._default_status is _COMPLAINED and self._has_no_feedback_type(cells):
            return _COMPLAINED
        for index in self._reason_columns:
            self._count_unknown(index, _get_cell(cells, index))
        if self._reason_columns or self._had_reasons:
            return None
        self._used_default = True
        return self._default_status

    def _has_no_feedback_type(self, cells: Sequence[str]) -> bool:
        """Return whether a row could only state a feedback type, and states none. Complaints
        without a feedback type count.
        """
        columns = self._reason_columns
        return bool(columns) and all(
            index in self._feedback_columns and not _get_cell(cells, index).strip()
            for index in columns
        )

    def _find_reason(self, cells: Sequence[str]) -> _Reason | None:
        reasons = {
            self._find_cell_reason(index, _get_cell(cells, index)) for index in self._reason_columns
        }
        if _Reason.NOT_COMPLAINED in reasons:
            reasons.discard(_Reason.COMPLAINED)
        reason = next((each for each in _Reason if each in reasons), None)
        if reason not in (None, _Reason.SOFT, _Reason.BOUNCED):
            return reason
        if reason is _Reason.BOUNCED and any(
            is_bare_no(_get_cell(cells, index)) for index in self._hard_columns
        ):
            reason = _Reason.SOFT
        replies = [
            cell
            for index in (*self._reason_columns, *self._other_columns)
            if self._may_contain_code(index, cell := _get_cell(cells, index))
        ]
        return _judge_bounce(reason, replies)

    def _find_cell_reason(self, index: int, cell: str) -> _Reason | None:
        mapped = self._values.get(cell)
        if mapped is not None:
            return _REASONS_BY_STATUS.get(mapped, _Reason.MAY_PASS)
        if index in self._numbers:
            return self._numbers[index].get(cell.strip())
        reason = _find_word_reason(_extract_reason(cell))
        # The feedback type "other" is recognised below every header of a file of complaints.
        is_other = self._default_status is _COMPLAINED and normalise_word(cell) == _OTHER
        if not (index in self._feedback_columns or is_other) or reason in _FEEDBACK_REASONS:
            return reason
        # All other feedback types count as complaints, also unknown ones.
        return _Reason.COMPLAINED if cell.strip() else None

    def _may_contain_code(self, index: int, cell: str) -> bool:
        if not self._other_columns.get(index, True) and not _FULL_REPLY.search(
            cell[:_MAX_SEARCHED_CHARACTERS]
        ):
            return False
        return cell not in self._values and index not in self._numbers

    def _count_unknown(self, index: int, cell: str) -> None:
        name = self._header[index].strip()[:MAX_WORD_CHARACTERS]
        value = name, cell.strip()[:MAX_WORD_CHARACTERS]
        if value in self._unknown or len(self._unknown) < MAX_VALUES_COUNTED:
            self._unknown[value] += 1

    def _is_reason(self, index: int, cell: str) -> bool:
        has_code = self._may_contain_code(index, cell) and _judge_bounce(None, [cell]) is not None
        return has_code or self._find_cell_reason(index, cell) is not None

    def _find_reasons_by_cells(self, unmapped: Iterable[int]) -> list[int]:
        """Return columns in which at least half the sampled cells are known suppression reasons."""
        reason_columns = []
        for index in unmapped:
            cells = [cell for record in self._sample if (cell := _get_cell(record, index).strip())]
            known = sum(self._is_reason(index, cell) for cell in cells)
            if cells and known * 2 >= len(cells):
                reason_columns.append(index)
        return reason_columns


def _is_reason_header(name: str) -> bool:
    words = split_words(name)
    is_reason = all(word in _HEADER_WORDS for word in words) and not _SUBJECTS.isdisjoint(words)
    return is_reason or normalise_word(name) in _NUMBERED_REASONS or _is_feedback_header(name)


def _is_feedback_header(name: str) -> bool:
    """Return whether a header names the feedback types of complaints (RFC 5965)."""
    words = set(split_words(name))
    has_only_known_words = words <= _FEEDBACK_WORDS | _FEEDBACK_TYPES | _FEEDBACK_OTHERS
    has_words = bool(words & _FEEDBACK_WORDS) and bool(words & _FEEDBACK_TYPES)
    return bool(words & _FEEDBACK_HEADERS) or (has_only_known_words and has_words)


def _is_response_header(name: str) -> bool:
    words = split_words(name)
    is_response = all(word in _HEADER_WORDS or word in _RESPONSES for word in words)
    return normalise_word(name) in _RESPONSES or (is_response and not _RESPONSES.isdisjoint(words))


def _judge_bounce(reason: _Reason | None, replies: Sequence[str]) -> _Reason | None:
    # A cell that contains only a code is shorter than a reply that repeats the code.
    status = find_status(*sorted(replies, key=len))
    if status is not None:
        named_class = BounceClass.SOFT if reason is _Reason.SOFT else BounceClass.HARD
        is_hard = choose_bounce_class(named_class, status) is BounceClass.HARD
        return _Reason.BOUNCED if is_hard else _Reason.SOFT
    matches = (_REPLY.match(reply.strip()[:MAX_WORD_CHARACTERS]) for reply in replies)
    codes = {match[1] for match in matches if match}
    if codes == {"5"}:
        return reason or _Reason.BOUNCED
    return _Reason.SOFT if codes else reason


def _find_word_reason(cell: str) -> _Reason | None:
    reasons = {_find_item_reason(split_words(item)) for item in split_items(cell)}
    return next((each for each in _Reason if each in reasons), None)


def _find_item_reason(words: Sequence[str]) -> _Reason | None:
    for count in range(len(words), 0, -1):
        word = "".join(words[:count])
        reason = _MEANINGS.get(word)
        rest = words[count:]
        if reason is None or (rest and word in _EXACT_WORDS):
            continue
        if _NEGATIONS.intersection(rest):
            return None
        if reason is _Reason.COMPLAINED and not is_from_person("".join(rest)):
            return _Reason.NOT_COMPLAINED
        is_soft = reason is _Reason.BOUNCED and (
            _SOFT_WORDS.intersection(words) or _find_item_reason(rest) is _Reason.SOFT
        )
        return _Reason.SOFT if is_soft else reason
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
