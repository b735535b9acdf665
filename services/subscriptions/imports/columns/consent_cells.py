"""Determines the subscription status that a cell of a consent column states.

The member's status depends on the column's subject and on the cell's meaning. In a consent column,
"no" stands for the status "unsubscribed". In an opt-out column, "no" says nothing about the
person's status.
"""

from collections.abc import Iterable, Mapping

from core.errors import DomainError
from core.errors.imports import IMPORT_STATUS_VALUES
from services.subscriptions.imports.columns.column_layout import ConsentColumn, ConsentSubject
from services.subscriptions.imports.columns.consent_words import (
    OPT_OUT_WORDS,
    Meaning,
    has_holding_word,
    interpret_hold,
    interpret_item,
    split_items,
)
from services.subscriptions.imports.columns.known_words import (
    MAX_WORD_CHARACTERS,
    fold_text,
    load_words,
    normalise_word,
)
from services.subscriptions.imports.rows import OPT_OUTS, STRICTNESS, RowProblem, SuppressionStatus

WANTED = SuppressionStatus.WANTED
UNKNOWN = SuppressionStatus.UNKNOWN
UNSUBSCRIBED = SuppressionStatus.UNSUBSCRIBED
BOUNCED = SuppressionStatus.BOUNCED
COMPLAINED = SuppressionStatus.COMPLAINED
MAY_PASS = SuppressionStatus.MAY_PASS
NOT_SUBSCRIBED = SuppressionStatus.NOT_SUBSCRIBED
STATUS_UNKNOWN = "row.status_unknown"

# The subscription status in a cell, or ``None`` if the cell states no status.
Answer = SuppressionStatus | None

# The errors for rows whose status adds neither a member nor an opt-out, by status.
ROW_PROBLEMS = {
    NOT_SUBSCRIBED: RowProblem(
        "row.not_subscribed", "The file says that this person is not subscribed."
    ),
    MAY_PASS: RowProblem(
        "row.may_pass", "The file reports no permanent delivery failure for this address."
    ),
}
# The statuses that an owner can assign to values of consent columns.
STATUS_VALUES = {
    "subscribed": WANTED,
    **{each.value: each for each in (UNSUBSCRIBED, BOUNCED, COMPLAINED, NOT_SUBSCRIBED)},
}
# Maps each newsletter product to the statuses for the words in its status columns.
_PRODUCT_STATUSES = {
    product: {normalise_word(word): SuppressionStatus(status) for word, status in words.items()}
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
# Maps the subject of a column and the meaning of a cell to the status that the cell states. If
# ``_ANSWERS`` has no entry for the subject and the meaning, the cell is unrecognised. In an opt-out
# column, "yes" or a date means the status in ``ConsentColumn.reason``.
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
    ConsentSubject.HOLDING: {**_OPT_OUT_ANSWERS, **dict.fromkeys((Meaning.BLANK, Meaning.NO))},
}


class StatusValues:
    """The statuses that an owner has assigned to values in a file.

    Values that differ only in case, accents or extra spaces have the same status.
    """

    def __init__(self, statuses: Mapping[str, str] | None) -> None:
        self._statuses = {
            fold_value(value): STATUS_VALUES[status] for value, status in (statuses or {}).items()
        }

    def __contains__(self, value: str) -> bool:
        return fold_value(value) in self._statuses

    def get(self, value: str) -> SuppressionStatus | None:
        return self._statuses.get(fold_value(value))

    def check(self, product: str | None) -> None:
        """Raise ``import.status_values`` if the owner has assigned "subscribed" to an opt-out.

        Some opt-out words have a meaning only in files of one product.
        """
        product_statuses = _PRODUCT_STATUSES.get(product or "", {})
        for value, status in self._statuses.items():
            if status is WANTED and product_statuses.get(normalise_word(value)) in OPT_OUTS:
                raise _build_opt_out_error(value)


def check_status_values(statuses: Mapping[str, str]) -> None:
    """Check the statuses that an owner has assigned to values in a file.

    Raises ``import.status_values`` if a status is unknown, or if the owner has assigned
    "subscribed" to an opt-out value.
    """
    for value, status in statuses.items():
        if status not in STATUS_VALUES:
            reason = f"{status[:MAX_WORD_CHARACTERS]!r} is not one of {', '.join(STATUS_VALUES)}."
            raise IMPORT_STATUS_VALUES(reason=reason)
        if status == "subscribed" and interpret_item(value) in OPT_OUT_WORDS:
            raise _build_opt_out_error(value)


def find_status(
    cell: str, column: ConsentColumn, product: str | None, values: StatusValues
) -> Answer:
    """Return the most restrictive status among the values in a cell."""
    product_statuses: Mapping[str, SuppressionStatus] = {}
    if column.subject is ConsentSubject.STATUS:
        product_statuses = _PRODUCT_STATUSES.get(product or "", {})
    return find_strictest(
        _find_item_status(item, column, product_statuses, values) for item in split_items(cell)
    )


def is_status(item: str) -> bool:
    return interpret_item(item) in _ANSWERS[ConsentSubject.STATUS]


def is_answer(item: str, subject: ConsentSubject) -> bool:
    return _ANSWERS[subject].get(interpret_item(item)) is not None


def is_bare_no(cell: str) -> bool:
    """Return whether the cell means "no" and doesn't contain a word such as "unsubscribed"."""
    return all(interpret_item(item) is Meaning.NO for item in split_items(cell))


def find_strictest(answers: Iterable[Answer]) -> Answer:
    statuses = [answer for answer in answers if answer is not None]
    return max(statuses, key=STRICTNESS.__getitem__, default=None)


def name_answer(answer: Answer) -> str:
    if answer is None:
        return "nothing"
    return "subscribed" if answer is WANTED else answer.value


def fold_value(text: str) -> str:
    return " ".join(fold_text(text).split())


def _find_item_status(
    item: str,
    column: ConsentColumn,
    product_statuses: Mapping[str, SuppressionStatus],
    values: StatusValues,
) -> Answer:
    mapped = values.get(item)
    if column.subject is ConsentSubject.STATUS:
        status = mapped or product_statuses.get(normalise_word(item))
        if status is not None:
            return status
    meaning = _find_meaning(item, column)
    if meaning is Meaning.YES and column.reason is not None:
        return column.reason
    answer = _ANSWERS[column.subject].get(meaning, UNKNOWN)
    if answer is not UNKNOWN:
        return answer
    # An unrecognised word is possibly a tier's name. An unrecognised word can't be a tier's name if
    # Pressroom knows all status words of the exporting product.
    may_be_tier = column.may_be_tier and not product_statuses and not has_holding_word(item)
    if mapped is None and may_be_tier:
        return None
    return mapped or UNKNOWN


def _find_meaning(item: str, column: ConsentColumn) -> Meaning:
    """Return the meaning of one value in a consent cell.

    A date means "yes" in opt-out columns and in columns with a time.
    """
    if column.subject is ConsentSubject.HOLDING:
        return interpret_hold(item)
    meaning = interpret_item(item)
    is_opting_out = column.subject is ConsentSubject.OPTING_OUT
    if meaning is Meaning.DATE and (is_opting_out or column.is_time):
        return Meaning.YES
    if meaning is Meaning.UNKNOWN and column.reason is BOUNCED:
        # A cell in a bounce column may contain only the kind of bounce, such as "hard".
        return interpret_item(f"{item} bounce")
    return meaning


def _build_opt_out_error(value: str) -> DomainError:
    beginning = value[:MAX_WORD_CHARACTERS]
    return IMPORT_STATUS_VALUES(reason=f"{beginning!r} is an opt-out and can't become subscribed.")
