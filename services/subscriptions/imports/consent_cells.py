"""The answers of cells about consent: opted out, nothing, unknown, not subscribed.

A column of consent has a subject, and its cells have meanings. ``_ANSWERS`` says for each pair what
the row's person wants.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from core.errors.imports import IMPORT_STATUS_VALUES
from services.subscriptions.imports.columns import (
    OPT_OUTS,
    Basis,
    ColumnLayout,
    ConsentColumn,
    ConsentSubject,
    RowProblem,
    SuppressionStatus,
)
from services.subscriptions.imports.consent_words import (
    OPT_OUT_WORDS,
    Meaning,
    is_exact_word,
    is_number,
    is_opt_out_from_mail,
    items_of,
    read_words,
)
from services.subscriptions.imports.vocabulary import MAX_WORD_CHARACTERS, fold, key, load_words

WANTED, UNKNOWN = SuppressionStatus.WANTED, SuppressionStatus.UNKNOWN
UNSUBSCRIBED, MAY_PASS = SuppressionStatus.UNSUBSCRIBED, SuppressionStatus.MAY_PASS
NOT_SUBSCRIBED = SuppressionStatus.NOT_SUBSCRIBED

# The answer of a cell: a status, or ``None`` if the cell says nothing.
Answer = SuppressionStatus | None

_OWN_STATUSES = {
    product: {key(word): SuppressionStatus(status) for word, status in words.items()}
    for product, words in load_words("consent.toml")["own_statuses"].items()
}
_STRICTNESS = {status: number for number, status in enumerate(SuppressionStatus)}
_OPT_OUT_ANSWERS: Mapping[Meaning, Answer] = {
    Meaning.EMPTY: None,
    Meaning.UNSUBSCRIBED: UNSUBSCRIBED,
    Meaning.CLEANED: SuppressionStatus.CLEANED,
    Meaning.BOUNCED: SuppressionStatus.BOUNCED,
    Meaning.COMPLAINED: SuppressionStatus.COMPLAINED,
    Meaning.MAY_PASS: MAY_PASS,
}
_CONSENT_ANSWERS: Mapping[Meaning, Answer] = {
    **_OPT_OUT_ANSWERS,
    **dict.fromkeys((Meaning.YES, Meaning.ALLOWED, Meaning.ACTIVE), WANTED),
    **dict.fromkeys((Meaning.NO, Meaning.REFUSED), UNSUBSCRIBED),
    Meaning.NOT_SUBSCRIBED: NOT_SUBSCRIBED,
}
# The answers of cells by the subject of the column. A meaning that is missing is unknown. In a
# column of opting out, a yes and a date stand for the column's own reason.
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
# What an owner may say that a value means.
STATUS_VALUES = {
    "subscribed": WANTED,
    **{
        status.value: status
        for status in (
            UNSUBSCRIBED,
            SuppressionStatus.BOUNCED,
            SuppressionStatus.COMPLAINED,
            NOT_SUBSCRIBED,
        )
    },
}

ROW_PROBLEMS = {
    NOT_SUBSCRIBED: RowProblem(
        "row.not_subscribed", "The file says that this person is not subscribed."
    ),
    MAY_PASS: RowProblem("row.may_pass", "The file says that mail may reach this address again."),
}
STATUS_UNKNOWN = "row.status_unknown"
MAX_VALUES_SHOWN = 50
MAX_VALUES_COUNTED = 1_000
# A column may be the status because of its cells if it has at most so many different ones.
MAX_STATUS_WORDS = 20
# Columns without a known header that are watched for words of a status.
MAX_COLUMNS_WATCHED = 100
# Most rows of a file have the same few combinations of cells in the columns of consent.
MAX_CACHED_ROWS = 1_024
MAX_CACHED_CHARACTERS = 200


class ConsentAnswer(NamedTuple):
    """The status of a row's person, and why the row is not imported."""

    status: SuppressionStatus
    problem: RowProblem | None = None


_NOTHING_SAID = ConsentAnswer(WANTED)


class ColumnCells:
    """The cells of a column so far, as far as they show whether it is one of consent."""

    def __init__(self) -> None:
        self._has_status_word = self._has_opt_out = False
        self._has_other_number = self._has_address = self._has_text = False
        self._is_status_only = self._is_product_only = True
        # Only as many as are needed to know that there are too many.
        self._words: set[str] = set()

    def note(self, column: ConsentColumn, cell: str, status_values: Mapping[str, Answer]) -> None:
        for item in items_of(cell):
            meaning = read_words(item)
            if meaning is Meaning.EMPTY:
                continue
            if len(self._words) <= MAX_STATUS_WORDS:
                self._words.add(key(item))
            is_exact = is_exact_word(item)
            is_status = _ANSWERS[ConsentSubject.STATUS].get(meaning, UNKNOWN) is not UNKNOWN
            self._is_status_only &= is_exact
            self._is_product_only &= key(item) in column.product_words
            self._has_opt_out |= is_opt_out_from_mail(item)
            self._has_status_word |= is_status or folded_value(item) in status_values
            if is_number(item) or item.lower().startswith(("http://", "https://", "www.")):
                self._has_other_number = True
            elif "@" in item:
                self._has_address = True
            elif meaning is not Meaning.BLANK and not item.startswith(("0", "1")):
                self._has_text = True

    def state_consent(self, column: ConsentColumn) -> bool:
        """Return whether the column is one of consent, judged by these cells."""
        if column.product is not None:
            return self._is_product_only and (bool(self._words) or column.basis is Basis.KNOWN)
        if column.basis is Basis.VALUES:
            is_short = len(self._words) <= MAX_STATUS_WORDS
            return self._is_status_only and self._has_opt_out and is_short
        if column.subject is ConsentSubject.STATUS:
            return self._has_status_word
        is_other = self._has_other_number
        if column.subject is not ConsentSubject.OPTING_OUT:
            is_other |= self._has_address
        return self._has_text or not is_other

    @property
    def may_be_status(self) -> bool:
        return self._is_status_only and len(self._words) <= MAX_STATUS_WORDS


class ConsentReadings:
    """What is known about the columns of consent of one file, and how their cells were read.

    Some columns are known only once the whole file has been read. Reading therefore begins with
    what the first rows show, and begins again if all rows show something else.

    Args:
        stored: what an earlier reading of the same file has settled; ``None`` before it.
        status_values: the owner's meanings of values.
    """

    def __init__(
        self,
        stored: Mapping[str, bool] | None = None,
        status_values: Mapping[str, str] | None = None,
    ) -> None:
        self._stored = stored
        self._values = {
            folded_value(value): STATUS_VALUES[status]
            for value, status in (status_values or {}).items()
        }
        # The columns that depend on their cells.
        self._columns: dict[int, ConsentColumn] = {}
        self._cells: dict[int, ColumnCells] = {}
        self._decisions: dict[int, bool] = {}
        self._counts: Counter[tuple[int, str, Answer]] = Counter()
        self._ignored_opt_outs: Counter[int] = Counter()
        self._reader: ConsentReader | None = None

    def decide(self, layout: ColumnLayout, sample: Sequence[Sequence[str]]) -> None:
        """Reduce ``layout.consent`` to the columns that are read as columns of consent.

        Raises ``import.status_values`` for a value that means an opt-out in this product.
        """
        self._watch_unknown_columns(layout, sample)
        for index, column in layout.consent.items():
            if column.basis is not Basis.KNOWN or column.product is not None:
                self._columns.setdefault(index, column)
        for index, column in self._columns.items():
            if index not in self._decisions:
                self._decisions[index] = self._first_decision(index, column, sample)
            if self._decisions[index]:
                layout.consent[index] = column
                layout.product = layout.product or column.product
            elif column.basis is not Basis.KNOWN:
                layout.consent.pop(index, None)
            if not self._decisions[index] and column.product == layout.product:
                layout.product = None
        own = _OWN_STATUSES.get(layout.product or "", {})
        for value, status in self._values.items():
            if status is WANTED and own.get(key(value)) in OPT_OUTS:
                raise _refused_value(value)

    def unclear_columns(
        self, layout: ColumnLayout, sample: Sequence[Sequence[str]]
    ) -> Iterator[int]:
        """Yield the unclear columns of the layout whose cells may be answers."""
        column = ConsentColumn(ConsentSubject.CONSENT, Basis.WORDS)
        for index in sorted(layout.unclear):
            cells = ColumnCells()
            for record in sample:
                cells.note(column, _cell(record, index), {})
            if cells.state_consent(column):
                yield index

    def reader(self, layout: ColumnLayout) -> "ConsentReader":
        """Return a reader for the records of this layout, which replaces the reader before it."""
        if self._reader is not None:
            self._reader.count_rows()
        self._reader = ConsentReader(self, layout)
        return self._reader

    @property
    def watched(self) -> list[int]:
        """The columns whose cells have to be noted."""
        return [
            index
            for index, column in self._columns.items()
            if column.basis is not Basis.VALUES or self._cells[index].may_be_status
        ]

    def note(self, index: int, cell: str) -> bool:
        """Note a cell of a watched column; return whether the column is watched any longer."""
        column, cells = self._columns[index], self._cells[index]
        cells.note(column, cell, self._values)
        return column.basis is not Basis.VALUES or cells.may_be_status

    def answer(self, layout: ColumnLayout, column: ConsentColumn, cell: str) -> Answer:
        """Return the strictest answer of the items of a cell."""
        answers = [self._item_answer(layout, column, item) for item in items_of(cell)]
        return strictest(answers)

    def count(self, index: int, cell: str, answer: Answer, rows: int, *, is_ignored: bool) -> None:
        """Count rows that have this cell in this column."""
        if is_ignored:
            self._ignored_opt_outs[index] += rows if answer in OPT_OUTS else 0
            return
        counted = index, cell.strip()[:MAX_WORD_CHARACTERS], answer
        if counted in self._counts or len(self._counts) < MAX_VALUES_COUNTED:
            self._counts[counted] += rows

    def settled(self) -> dict[str, bool]:
        """Return whether a column that depends on its cells is one of consent, by its index."""
        return {
            str(index): is_consent
            for index, is_consent in self._final_decisions().items()
            if is_consent or self._columns[index].basis is not Basis.VALUES
        }

    def differs(self) -> bool:
        """Return whether some column was read in another way than the whole file shows."""
        return self._final_decisions() != self._decisions

    def values_of_columns(self) -> dict[int, list[dict[str, Any]]]:
        """Return by column its values, how many rows have them and how they were read.

        Unknown values come first, then the most frequent ones.
        """
        if self._reader is not None:
            self._reader.count_rows()
        found: dict[int, list[dict[str, Any]]] = {}
        counts = sorted(
            self._counts.items(), key=lambda each: (each[0][2] is not UNKNOWN, -each[1])
        )
        for (index, value, answer), rows in counts:
            values = found.setdefault(index, [])
            if len(values) < MAX_VALUES_SHOWN:
                values.append({"value": value, "rows": rows, "read_as": read_as(answer)})
        return found

    def ignored_opt_outs(self) -> dict[int, int]:
        """Return by ignored column how many rows it calls opted out."""
        if self._reader is not None:
            self._reader.count_rows()
        return dict(self._ignored_opt_outs)

    def _watch_unknown_columns(self, layout: ColumnLayout, sample: Sequence[Sequence[str]]) -> None:
        others = {*layout.meanings(), *layout.mapped, *layout.unclear, *self._columns}
        room = MAX_COLUMNS_WATCHED
        column = ConsentColumn(ConsentSubject.STATUS, Basis.VALUES)
        for index in range(len(layout.header)):
            if room and index not in others and _may_be_status(sample, index):
                self._columns[index] = column
                room -= 1

    def _first_decision(
        self, index: int, column: ConsentColumn, sample: Sequence[Sequence[str]]
    ) -> bool:
        cells = self._cells[index] = ColumnCells()
        for record in sample:
            cells.note(column, _cell(record, index), self._values)
        if self._stored is not None:
            return self._stored.get(str(index), False)
        return cells.state_consent(column)

    def _final_decisions(self) -> dict[int, bool]:
        return {
            index: self._cells[index].state_consent(column)
            for index, column in self._columns.items()
        }

    def _item_answer(self, layout: ColumnLayout, column: ConsentColumn, item: str) -> Answer:
        mapped = self._values.get(folded_value(item))
        own: Mapping[str, SuppressionStatus] = {}
        if column.subject is ConsentSubject.STATUS:
            if mapped is not None:
                return mapped
            own = _OWN_STATUSES.get(layout.product or "", {})
            if (word := key(item)) in own:
                return own[word]
        meaning = read_words(item)
        if column.subject is ConsentSubject.OPTING_OUT:
            if meaning in (Meaning.YES, Meaning.DATE):
                return column.reason
            if column.reason is SuppressionStatus.BOUNCED and meaning is Meaning.UNKNOWN:
                # The column may name the kind of a bounce, such as "hard".
                meaning = read_words(f"{item} bounce")
        answer = _ANSWERS[column.subject].get(meaning, UNKNOWN)
        if answer is UNKNOWN and mapped is not None:
            return mapped
        # A word that is no status is a tier, except in a product whose statuses we know.
        return None if answer is UNKNOWN and column.may_be_tier and not own else answer


class ConsentReader:
    """Reads the columns of consent in the records of one layout."""

    def __init__(self, readings: ConsentReadings, layout: ColumnLayout) -> None:
        self._readings = readings
        self._layout = layout
        self._columns = {**layout.ignored_consent, **layout.consent}
        # By the cells of a record: the answer, the answer of each column, and the rows so far.
        self._rows: dict[tuple[str, ...], _CountedRow] = {}
        self._choose_columns()

    def read(self, cells: Sequence[str]) -> ConsentAnswer:
        """Return the answer of a record that has all columns."""
        if self._pick is None:
            return _NOTHING_SAID
        picked = self._pick(cells)
        row = self._rows.get(picked)
        if row is None:
            row = self._new_row(picked)
        row.count += 1
        return row.answer

    def count_rows(self) -> None:
        """Hand the rows so far to the readings."""
        for row in self._rows.values():
            for index, cell, answer in row.answers:
                self._readings.count(
                    index, cell, answer, row.count, is_ignored=index not in self._layout.consent
                )
        self._rows.clear()

    def _choose_columns(self) -> None:
        self._watched = self._readings.watched
        self.indexes = sorted({*self._columns, *self._watched})
        # The first index twice, so that itemgetter returns a tuple for a single column too.
        self._pick = itemgetter(*self.indexes, self.indexes[0]) if self.indexes else None

    def _new_row(self, picked: tuple[str, ...]) -> "_CountedRow":
        cells = dict(zip(self.indexes, picked, strict=False))
        # Not a generator: each cell has to be noted.
        are_watched = [self._readings.note(index, cells[index]) for index in self._watched]
        row = _CountedRow(*self._answers(cells))
        if len(self._rows) >= MAX_CACHED_ROWS:
            self.count_rows()
        if not all(are_watched):
            self.count_rows()
            self._choose_columns()
            picked = tuple(cells[index] for index in (*self.indexes, *self.indexes[:1]))
        if max(map(len, picked), default=0) > MAX_CACHED_CHARACTERS:
            # Long cells are counted by their beginning, and not kept.
            picked = (*(cell[:MAX_CACHED_CHARACTERS] for cell in picked), str(len(self._rows)))
        self._rows[picked] = row
        return row

    def _answers(
        self, cells: Mapping[int, str]
    ) -> tuple[ConsentAnswer, list[tuple[int, str, Answer]]]:
        answers = {
            index: self._readings.answer(self._layout, column, cells[index])
            for index, column in self._columns.items()
        }
        is_confirmed = any(
            column.subject is ConsentSubject.CONFIRMATION and answers[index] is WANTED
            for index, column in self._layout.consent.items()
        )
        for index, answer in answers.items():
            is_opt_in = self._columns[index].subject is ConsentSubject.OPTING_IN
            if (
                is_confirmed
                and is_opt_in
                and answer is NOT_SUBSCRIBED
                and _is_bare_no(cells[index])
            ):
                # It says only how the person came.
                answers[index] = None
        counted = [(index, cells[index], answer) for index, answer in answers.items()]
        status = strictest(answers[index] for index in self._layout.consent) or WANTED
        if status is not UNKNOWN:
            return ConsentAnswer(status, ROW_PROBLEMS.get(status)), counted
        index = next(i for i in self._layout.consent if answers[i] is UNKNOWN)
        value = cells[index].strip()[:MAX_WORD_CHARACTERS]
        column = self._layout.header[index].strip()[:MAX_WORD_CHARACTERS]
        reason = f"The value {value!r} in the column {column!r} is not known."
        return ConsentAnswer(UNKNOWN, RowProblem(STATUS_UNKNOWN, reason)), counted


class _CountedRow:
    """The cells of consent that some rows have in common."""

    __slots__ = ("answer", "answers", "count")

    def __init__(self, answer: ConsentAnswer, answers: list[tuple[int, str, Answer]]) -> None:
        self.answer = answer
        self.answers = answers
        self.count = 0


def check_status_values(values: Mapping[str, str]) -> None:
    """Raise ``import.status_values`` for a status that isn't one, or that the word contradicts."""
    for value, status in values.items():
        if status not in STATUS_VALUES:
            statuses = ", ".join(STATUS_VALUES)
            raise IMPORT_STATUS_VALUES(
                reason=f"{status[:MAX_WORD_CHARACTERS]!r} is not one of {statuses}."
            )
        if status == "subscribed" and read_words(value) in OPT_OUT_WORDS:
            raise _refused_value(value)


def folded_value(text: str) -> str:
    """Return a value as ``status_values`` compares it: without case, accents and extra blanks."""
    return " ".join(fold(text).split())


def strictest(answers: Iterable[Answer]) -> Answer:
    """Return the strictest of the answers; ``None`` if no cell says anything."""
    return max(
        (each for each in answers if each is not None), key=_STRICTNESS.__getitem__, default=None
    )


def read_as(answer: Answer) -> str:
    """Return how the owner is told that a value was read."""
    if answer is None:
        return "nothing"
    return "subscribed" if answer is WANTED else answer.value


def _refused_value(value: str) -> Exception:
    shown = value[:MAX_WORD_CHARACTERS]
    return IMPORT_STATUS_VALUES(reason=f"{shown!r} is an opt-out and can't become subscribed.")


def _is_bare_no(cell: str) -> bool:
    return all(read_words(item) is Meaning.NO for item in items_of(cell))


def _may_be_status(sample: Sequence[Sequence[str]], index: int) -> bool:
    """Return whether no cell of the sample shows that the column isn't a status."""
    cells = (_cell(record, index).strip() for record in sample)
    return all(not cell or all(map(is_exact_word, items_of(cell))) for cell in cells)


def _cell(record: Sequence[str], index: int) -> str:
    return record[index] if index < len(record) else ""
