"""Interprets the cells of consent columns: determines the subscription status that a cell states.

The status depends on what the column is about and on what the cell means. For example, "no" in a
column about consent means that the person is unsubscribed. In an opt-out column, "no" states
nothing.
"""

from collections.abc import Iterable, Mapping

from core.errors import DomainError
from core.errors.imports import IMPORT_STATUS_VALUES
from services.subscriptions.imports.column_layout import ConsentColumn, ConsentSubject
from services.subscriptions.imports.consent_words import (
    OPT_OUT_WORDS,
    Meaning,
    items_of,
    read_words,
)
from services.subscriptions.imports.known_words import MAX_WORD_CHARACTERS, fold, key, load_words
from services.subscriptions.imports.rows import OPT_OUTS, STRICTNESS, RowProblem, SuppressionStatus

WANTED, UNKNOWN = SuppressionStatus.WANTED, SuppressionStatus.UNKNOWN
UNSUBSCRIBED, BOUNCED = SuppressionStatus.UNSUBSCRIBED, SuppressionStatus.BOUNCED
COMPLAINED, MAY_PASS = SuppressionStatus.COMPLAINED, SuppressionStatus.MAY_PASS
NOT_SUBSCRIBED = SuppressionStatus.NOT_SUBSCRIBED
STATUS_UNKNOWN = "row.status_unknown"

# The status that a cell states, or ``None`` if the cell states no status.
Answer = SuppressionStatus | None

# The errors for rows that add neither a member nor an opt-out.
ROW_PROBLEMS = {
    NOT_SUBSCRIBED: RowProblem(
        "row.not_subscribed", "The file says that this person is not subscribed."
    ),
    MAY_PASS: RowProblem(
        "row.may_pass", "The file reports no permanent delivery failure for this address."
    ),
}
# The statuses that an owner can assign to the values of a consent column.
STATUS_VALUES = {
    "subscribed": WANTED,
    **{each.value: each for each in (UNSUBSCRIBED, BOUNCED, COMPLAINED, NOT_SUBSCRIBED)},
}
_OWN_STATUSES = {
    product: {key(word): SuppressionStatus(status) for word, status in words.items()}
    for product, words in load_words("consent.toml")["own_statuses"].items()
}
_OPT_OUT_ANSWERS: Mapping[Meaning, Answer] = {
    Meaning.EMPTY: None,
    Meaning.UNSUBSCRIBED: UNSUBSCRIBED,
    Meaning.CLEANED: SuppressionStatus.CLEANED,
    Meaning.BOUNCED: BOUNCED,
    Meaning.COMPLAINED: COMPLAINED,
    Meaning.MAY_PASS: MAY_PASS,
}
_CONSENT_ANSWERS: Mapping[Meaning, Answer] = {
    **_OPT_OUT_ANSWERS,
    **dict.fromkeys((Meaning.YES, Meaning.ALLOWED, Meaning.ACTIVE), WANTED),
    **dict.fromkeys((Meaning.NO, Meaning.REFUSED), UNSUBSCRIBED),
    Meaning.NOT_SUBSCRIBED: NOT_SUBSCRIBED,
}
# The status that a cell states, by the subject of its column and the meaning of the cell. Meanings
# that are missing here count as unrecognised. In an opt-out column, "yes" or a date stands for the
# status in ``reason`` of the column.
_ANSWERS: Mapping[ConsentSubject, Mapping[Meaning, Answer]] = {
    ConsentSubject.OPTING_OUT: {
        **_OPT_OUT_ANSWERS,
        **dict.fromkeys((Meaning.BLANK, Meaning.NO, Meaning.ALLOWED)),
    },
    ConsentSubject.CONSENT: _CONSENT_ANSWERS,
    ConsentSubject.OPTING_IN: {**_CONSENT_ANSWERS, Meaning.NO: NOT_SUBSCRIBED},
    ConsentSubject.CONFIRMATION: {
        Meaning.EMPTY: None,
        **dict.fromkeys((Meaning.YES, Meaning.DATE, Meaning.ALLOWED, Meaning.ACTIVE), WANTED),
        **dict.fromkeys((Meaning.NO, Meaning.REFUSED, Meaning.NOT_SUBSCRIBED), NOT_SUBSCRIBED),
        Meaning.MAY_PASS: MAY_PASS,
    },
    ConsentSubject.STATUS: {
        **_OPT_OUT_ANSWERS,
        **dict.fromkeys((Meaning.ALLOWED, Meaning.ACTIVE, Meaning.CUSTOMER), WANTED),
        Meaning.REFUSED: UNSUBSCRIBED,
        Meaning.NOT_SUBSCRIBED: NOT_SUBSCRIBED,
    },
}


class StatusValues:
    """Maps each status value in the file to the status that the owner assigned to the value.

    Differences in case, accents and extra spaces are ignored when values are compared.
    """

    def __init__(self, statuses: Mapping[str, str] | None) -> None:
        self._statuses = {
            folded_value(value): STATUS_VALUES[status] for value, status in (statuses or {}).items()
        }

    def __contains__(self, value: str) -> bool:
        return folded_value(value) in self._statuses

    def get(self, value: str) -> SuppressionStatus | None:
        return self._statuses.get(folded_value(value))

    def check(self, product: str | None) -> None:
        """Raise ``import.status_values`` if the owner assigned "subscribed" to an opt-out value.

        ``product``: the product that exported the file. Some products use their own opt-out words.
        """
        own = _OWN_STATUSES.get(product or "", {})
        for value, status in self._statuses.items():
            if status is WANTED and own.get(key(value)) in OPT_OUTS:
                raise _refused_value(value)


def check_status_values(statuses: Mapping[str, str]) -> None:
    """Check the statuses that an owner assigned to values in the file.

    Raises ``import.status_values`` if a status is unknown, or if "subscribed" was assigned to an
    opt-out value.
    """
    for value, status in statuses.items():
        if status not in STATUS_VALUES:
            reason = f"{status[:MAX_WORD_CHARACTERS]!r} is not one of {', '.join(STATUS_VALUES)}."
            raise IMPORT_STATUS_VALUES(reason=reason)
        if status == "subscribed" and read_words(value) in OPT_OUT_WORDS:
            raise _refused_value(value)


def read_cell(
    cell: str, column: ConsentColumn, product: str | None, values: StatusValues
) -> Answer:
    """Return the strictest status in a cell, which may hold a list of values.

    ``product``: the product that exported the file, if it was recognised.
    """
    own = _OWN_STATUSES.get(product or "", {}) if column.subject is ConsentSubject.STATUS else {}
    return strictest(_read_item(item, column, own, values) for item in items_of(cell))


def is_status(item: str) -> bool:
    """Return whether an item of a cell is recognised as a value of a status column."""
    return read_words(item) in _ANSWERS[ConsentSubject.STATUS]


def is_bare_no(cell: str) -> bool:
    """Return whether the cell only means "no", without a word such as "unsubscribed"."""
    return all(read_words(item) is Meaning.NO for item in items_of(cell))


def strictest(answers: Iterable[Answer]) -> Answer:
    """Return the strictest of these statuses, or ``None`` if no cell states a status."""
    statuses = [answer for answer in answers if answer is not None]
    return max(statuses, key=STRICTNESS.__getitem__, default=None)


def read_as(answer: Answer) -> str:
    """Return the name that this status has in ``read_as`` in the result of an import."""
    if answer is None:
        return "nothing"
    return "subscribed" if answer is WANTED else answer.value


def _read_item(
    item: str,
    column: ConsentColumn,
    own: Mapping[str, SuppressionStatus],
    values: StatusValues,
) -> Answer:
    mapped = values.get(item)
    if column.subject is ConsentSubject.STATUS:
        status = mapped or own.get(key(item))
        if status is not None:
            return status
    meaning = _meaning(item, column)
    if meaning is Meaning.YES and column.subject is ConsentSubject.OPTING_OUT:
        return column.reason
    answer = _ANSWERS[column.subject].get(meaning, UNKNOWN)
    if answer is not UNKNOWN:
        return answer
    # An unrecognised word may name a tier, unless all status words of the product are known.
    return None if mapped is None and column.may_be_tier and not own else mapped or UNKNOWN


def _meaning(item: str, column: ConsentColumn) -> Meaning:
    """Return the meaning of an item in this column. In some columns a date means "yes"."""
    meaning = read_words(item)
    is_opting_out = column.subject is ConsentSubject.OPTING_OUT
    if meaning is Meaning.DATE and (is_opting_out or column.is_time):
        return Meaning.YES
    if meaning is Meaning.UNKNOWN and column.reason is BOUNCED:
        # The cell of a bounce column may hold only the kind of bounce, such as "hard".
        return read_words(f"{item} bounce")
    return meaning


def folded_value(text: str) -> str:
    return " ".join(fold(text).split())


def _refused_value(value: str) -> DomainError:
    shown = value[:MAX_WORD_CHARACTERS]
    return IMPORT_STATUS_VALUES(reason=f"{shown!r} is an opt-out and can't become subscribed.")
