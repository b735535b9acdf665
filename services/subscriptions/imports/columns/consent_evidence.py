"""Decides from a column's cells whether the column is a consent column."""

from collections.abc import Sequence
from typing import Self

from services.subscriptions.imports.columns.column_layout import (
    Basis,
    ConsentColumn,
    ConsentSubject,
)
from services.subscriptions.imports.columns.consent_cells import StatusValues, is_answer, is_status
from services.subscriptions.imports.columns.consent_words import (
    Meaning,
    interpret_item,
    is_about_mail,
    is_exact_word,
    is_number,
    is_numeral,
    split_items,
)
from services.subscriptions.imports.columns.known_words import normalise_word

# The maximum number of distinct words in a status column whose header isn't recognised.
MAX_STATUS_WORDS = 20

_LINKS = ("http://", "https://", "www.")

Records = Sequence[Sequence[str]]


class ColumnEvidence:
    """Collects evidence from a column's cells for deciding whether the column is a consent column.

    Args:
        column: how to interpret the cells if the column is a consent column.
    """

    def __init__(self, column: ConsentColumn, values: StatusValues) -> None:
        self._column = column
        self._is_unnamed = column.basis is Basis.VALUES
        self._values = values
        self._has_status = False
        self._has_answer = False
        self._is_about_mail = False
        self._has_numeral = False
        self._has_number_or_link = False
        self._has_address = False
        self._has_text = False
        self._has_only_status_words = True
        self._has_only_product_words = True
        # The distinct words in the column's cells, but at most ``MAX_STATUS_WORDS + 1`` words.
        self._words: set[str] = set()

    @classmethod
    def of_sample(
        cls, column: ConsentColumn, values: StatusValues, sample: Records, index: int
    ) -> Self:
        evidence = cls(column, values)
        for record in sample:
            evidence.add_cell(record[index] if index < len(record) else "")
        return evidence

    def add_cell(self, cell: str) -> None:
        for item in split_items(cell):
            meaning = interpret_item(item)
            if meaning is Meaning.EMPTY or (meaning is Meaning.BLANK and self._is_unnamed):
                continue
            if len(self._words) <= MAX_STATUS_WORDS:
                self._words.add(normalise_word(item))
            self._has_only_status_words &= is_exact_word(item)
            self._has_numeral |= is_numeral(item)
            self._has_only_product_words &= normalise_word(item) in self._column.product_words
            self._is_about_mail |= is_about_mail(item)
            self._has_status |= is_status(item) or item in self._values
            self._has_answer |= is_answer(item, self._column.subject)
            if is_number(item) or item.lower().startswith(_LINKS):
                self._has_number_or_link = True
            elif "@" in item:
                self._has_address = True
            elif meaning is not Meaning.BLANK and not item.startswith(("0", "1")):
                self._has_text = True

    @property
    def is_consent(self) -> bool:
        column = self._column
        if column.product is not None:
            return self._has_only_product_words and (
                bool(self._words) or column.basis is Basis.KNOWN
            )
        if column.basis is Basis.VALUES:
            return self.may_be_status and (
                self._is_about_mail or (bool(self._words) and not column.needs_answer)
            )
        if column.subject is ConsentSubject.STATUS:
            return self._has_status or (column.may_be_number and self._has_numeral)
        if column.needs_answer and not self._has_answer:
            return False
        has_other_values = self._has_number_or_link
        if column.subject is not ConsentSubject.OPTING_OUT:
            has_other_values |= self._has_address
        return self._has_text or not has_other_values

    @property
    def may_be_status(self) -> bool:
        return self._has_only_status_words and len(self._words) <= MAX_STATUS_WORDS


def has_only_status_words(sample: Records, index: int) -> bool:
    cells = (record[index] for record in sample if index < len(record))
    return all(
        is_exact_word(item) or interpret_item(item) in (Meaning.EMPTY, Meaning.BLANK)
        for cell in cells
        for item in split_items(cell)
    )
