"""Interprets the consent columns of a file, and counts the values in these columns."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, Self

from services.subscriptions.imports.column_layout import (
    Basis,
    ColumnLayout,
    ConsentColumn,
    ConsentSubject,
)
from services.subscriptions.imports.consent_cells import (
    NOT_SUBSCRIBED,
    ROW_PROBLEMS,
    STATUS_UNKNOWN,
    UNKNOWN,
    WANTED,
    Answer,
    StatusValues,
    is_bare_no,
    is_status,
    read_as,
    read_cell,
    strictest,
)
from services.subscriptions.imports.consent_words import (
    Meaning,
    is_exact_word,
    is_number,
    is_opt_out_from_mail,
    items_of,
    read_words,
)
from services.subscriptions.imports.known_words import MAX_WORD_CHARACTERS, key
from services.subscriptions.imports.rows import OPT_OUTS, RowProblem, SuppressionStatus

MAX_VALUES_SHOWN = 50
MAX_VALUES_COUNTED = 1_000
# The maximum number of different words in a status column whose header isn't recognised.
MAX_STATUS_WORDS = 20
# The maximum number of columns with unrecognised headers that are searched for status words.
MAX_COLUMNS_WATCHED = 100
# Most rows repeat a few combinations of cells in the consent columns, so results are cached.
MAX_CACHED_ROWS = 1_024
MAX_CACHED_CHARACTERS = 200

_LINKS = ("http://", "https://", "www.")
Records = Sequence[Sequence[str]]


class ConsentAnswer(NamedTuple):
    """The status that a row states for a person, and the error if the row can't be imported."""

    status: SuppressionStatus
    problem: RowProblem | None = None


_NOTHING_SAID = ConsentAnswer(WANTED)


class ColumnEvidence:
    """Uses the cells of a column to decide whether the column is a consent column."""

    def __init__(self, column: ConsentColumn, values: StatusValues) -> None:
        self._column = column
        self._values = values
        self._has_status = self._has_opt_out = False
        self._has_number_or_link = self._has_address = self._has_text = False
        self._has_only_status_words = self._has_only_product_words = True
        # The distinct words in the column. At most one word more than the limit is collected.
        self._words: set[str] = set()

    @classmethod
    def of_sample(
        cls, column: ConsentColumn, values: StatusValues, sample: Records, index: int
    ) -> Self:
        evidence = cls(column, values)
        for record in sample:
            evidence.note(_cell(record, index))
        return evidence

    def note(self, cell: str) -> None:
        for item in items_of(cell):
            meaning = read_words(item)
            if meaning is Meaning.EMPTY:
                continue
            if len(self._words) <= MAX_STATUS_WORDS:
                self._words.add(key(item))
            self._has_only_status_words &= is_exact_word(item)
            self._has_only_product_words &= key(item) in self._column.product_words
            self._has_opt_out |= is_opt_out_from_mail(item)
            self._has_status |= is_status(item) or item in self._values
            if is_number(item) or item.lower().startswith(_LINKS):
                self._has_number_or_link = True
            elif "@" in item:
                self._has_address = True
            elif meaning is not Meaning.BLANK and not item.startswith(("0", "1")):
                self._has_text = True

    @property
    def is_consent(self) -> bool:
        """Return whether the cells seen so far indicate that this is a consent column."""
        column = self._column
        if column.product is not None:
            return self._has_only_product_words and (
                bool(self._words) or column.basis is Basis.KNOWN
            )
        if column.basis is Basis.VALUES:
            return self.may_be_status and self._has_opt_out
        if column.subject is ConsentSubject.STATUS:
            return self._has_status
        is_other = self._has_number_or_link
        if column.subject is not ConsentSubject.OPTING_OUT:
            is_other |= self._has_address
        return self._has_text or not is_other

    @property
    def may_be_status(self) -> bool:
        """Return whether all cells seen so far are status words, and few different words occur."""
        return self._has_only_status_words and len(self._words) <= MAX_STATUS_WORDS


class ConsentReadings:
    """The consent columns of one file, and the values in these columns.

    Some consent columns can be recognised only by their cells. For these columns, the decision is
    provisional at first, because it depends on the first rows of the file. If later rows contradict
    the decision, the file is read a second time.

    Args:
        settled: what ``settled`` returned after the same file was read for the first time.
        status_values: maps each status value in the file to the status that the owner assigned.
    """

    def __init__(
        self,
        settled: Mapping[str, bool] | None = None,
        status_values: Mapping[str, str] | None = None,
    ) -> None:
        self._settled = settled
        self.values = StatusValues(status_values)
        # The columns that can be recognised as consent columns only by their cells. The keys are
        # the indexes of the columns.
        self._columns: dict[int, ConsentColumn] = {}
        self._evidence: dict[int, ColumnEvidence] = {}
        self._decisions: dict[int, bool] = {}
        self._counts: Counter[tuple[int, str, Answer]] = Counter()
        self._ignored_opt_outs: Counter[int] = Counter()
        self._reader: ConsentReader | None = None

    def unclear_columns(self, layout: ColumnLayout, sample: Records) -> Iterator[int]:
        """Yield the columns with unclear headers, except columns of numbers, links or addresses."""
        column = ConsentColumn(ConsentSubject.CONSENT, Basis.WORDS)
        for index in sorted(layout.unclear):
            if ColumnEvidence.of_sample(column, self.values, sample, index).is_consent:
                yield index

    def decide(self, layout: ColumnLayout, sample: Records) -> None:
        """Use the cells of the first rows to decide which columns are consent columns.

        Remove columns with unsuitable cells from ``layout.consent``, and add columns with status
        words. Raises ``import.status_values`` if "subscribed" was assigned to an opt-out.
        """
        self._watch_unknown_columns(layout, sample)
        for index, column in layout.consent.items():
            if column.basis is not Basis.KNOWN or column.product is not None:
                self._columns.setdefault(index, column)
        for index, column in self._columns.items():
            if index not in self._evidence:
                self._decide_column(index, column, sample)
            if self._decisions[index]:
                layout.consent[index] = column
                layout.product = layout.product or column.product
            elif column.basis is not Basis.KNOWN:
                layout.consent.pop(index, None)
            if not self._decisions[index] and column.product == layout.product:
                layout.product = None
        self.values.check(layout.product)

    def reader(self, layout: ColumnLayout) -> "ConsentReader":
        """Return a new reader for records with this layout. Discard the previous reader."""
        self._count_rows()
        self._reader = ConsentReader(self, layout)
        return self._reader

    def watched_columns(self) -> list[int]:
        """Return the columns for which later cells may still change the decision."""
        return [
            index
            for index, column in self._columns.items()
            if column.basis is not Basis.VALUES or self._evidence[index].may_be_status
        ]

    def note(self, index: int, cell: str) -> None:
        """Add a cell of a watched column to the evidence about the column."""
        self._evidence[index].note(cell)

    def count(self, index: int, cell: str, answer: Answer, rows: int) -> None:
        """Add to the number of rows that have this cell in this column."""
        value = index, cell.strip()[:MAX_WORD_CHARACTERS], answer
        if value in self._counts or len(self._counts) < MAX_VALUES_COUNTED:
            self._counts[value] += rows

    def count_ignored(self, index: int, answer: Answer, rows: int) -> None:
        """Increase the opt-out count of a consent column that the mapping ignores."""
        self._ignored_opt_outs[index] += rows if answer in OPT_OUTS else 0

    def settled(self) -> dict[str, bool]:
        """Return which of the columns that were judged by their cells are consent columns."""
        return {
            str(index): is_consent
            for index, is_consent in self._final_decisions().items()
            if is_consent or self._columns[index].basis is not Basis.VALUES
        }

    def differs(self) -> bool:
        """Return whether the file contradicts a provisional decision and must be read again."""
        return self._final_decisions() != self._decisions

    def values_by_column(self) -> dict[int, list[dict[str, Any]]]:
        """Return the values of each consent column, with the row count and status of each value.

        Unrecognised values come first, then the most frequent values.
        """
        self._count_rows()
        values: dict[int, list[dict[str, Any]]] = {}
        for (index, value, answer), rows in sorted(
            self._counts.items(), key=lambda each: (each[0][2] is not UNKNOWN, -each[1])
        ):
            of_column = values.setdefault(index, [])
            if len(of_column) < MAX_VALUES_SHOWN:
                of_column.append({"value": value, "rows": rows, "read_as": read_as(answer)})
        return values

    def unknown_values(self, header: Sequence[str]) -> list[dict[str, Any]]:
        """Return the unrecognised values and their columns, sorted by descending number of rows."""
        self._count_rows()
        return [
            {"column": header[index].strip()[:MAX_WORD_CHARACTERS], "value": value, "rows": rows}
            for (index, value, answer), rows in self._counts.most_common()
            if answer is UNKNOWN
        ][:MAX_VALUES_SHOWN]

    def ignored_opt_outs(self) -> dict[int, int]:
        """Return the number of opt-outs in each consent column that the mapping ignores."""
        self._count_rows()
        return dict(self._ignored_opt_outs)

    def _watch_unknown_columns(self, layout: ColumnLayout, sample: Records) -> None:
        others = {*layout.meanings(), *layout.mapped, *layout.unclear, *self._columns}
        column = ConsentColumn(ConsentSubject.STATUS, Basis.VALUES)
        room = MAX_COLUMNS_WATCHED
        for index in range(len(layout.header)):
            if room and index not in others and _may_be_status(sample, index):
                self._columns[index] = column
                room -= 1

    def _decide_column(self, index: int, column: ConsentColumn, sample: Records) -> None:
        evidence = ColumnEvidence.of_sample(column, self.values, sample, index)
        self._evidence[index] = evidence
        if self._settled is None:
            self._decisions[index] = evidence.is_consent
        else:
            self._decisions[index] = self._settled.get(str(index), False)

    def _final_decisions(self) -> dict[int, bool]:
        return {index: evidence.is_consent for index, evidence in self._evidence.items()}

    def _count_rows(self) -> None:
        if self._reader is not None:
            self._reader.count_rows()


class ConsentReader:
    """Reads the consent columns of the records in a file."""

    def __init__(self, readings: ConsentReadings, layout: ColumnLayout) -> None:
        self._readings = readings
        self._layout = layout
        self._columns = {**layout.ignored_consent, **layout.consent}
        self._rows: dict[tuple[str, ...], _EqualRows] = {}
        self._choose_columns()

    def read(self, cells: Sequence[str]) -> ConsentAnswer:
        """Return the status of a record according to its consent columns.

        ``cells`` must have a cell for every column of the file.
        """
        if self._pick is None:
            return _NOTHING_SAID
        picked = self._pick(cells)
        rows = self._rows.get(picked)
        if rows is None:
            rows = self._add_rows(picked)
        rows.count += 1
        return rows.answer

    def count_rows(self) -> None:
        """Add the cached row counts to the counts of the whole file, and empty the cache."""
        for rows in self._rows.values():
            for index, cell, answer in rows.answers:
                if index in self._layout.consent:
                    self._readings.count(index, cell, answer, rows.count)
                else:
                    self._readings.count_ignored(index, answer, rows.count)
        self._rows.clear()

    def _choose_columns(self) -> None:
        self._watched = self._readings.watched_columns()
        self.indexes = sorted({*self._columns, *self._watched})
        # The first index is repeated so that itemgetter returns a tuple even for a single column.
        self._pick = itemgetter(*self.indexes, self.indexes[0]) if self.indexes else None

    def _add_rows(self, picked: tuple[str, ...]) -> "_EqualRows":
        cells = dict(zip(self.indexes, picked, strict=False))
        for index in self._watched:
            self._readings.note(index, cells[index])
        rows = _EqualRows(*self._answers(cells))
        if len(self._rows) >= MAX_CACHED_ROWS:
            self.count_rows()
        if len(self._readings.watched_columns()) < len(self._watched):
            self.count_rows()
            self._choose_columns()
            picked = tuple(cells[index] for index in (*self.indexes, *self.indexes[:1]))
        if max(map(len, picked), default=0) > MAX_CACHED_CHARACTERS:
            # Long cells are not cached, so that the cache doesn't use too much memory. A row with a
            # long cell gets a unique key instead.
            picked = (str(len(self._rows)),)
        self._rows[picked] = rows
        return rows

    def _answers(
        self, cells: Mapping[int, str]
    ) -> tuple[ConsentAnswer, list[tuple[int, str, Answer]]]:
        """Return the status of a row, and the cell and status of each consent column."""
        layout = self._layout
        answers = {
            index: read_cell(cells[index], column, layout.product, self._readings.values)
            for index, column in self._columns.items()
        }
        if self._is_confirmed(answers):
            # If a person has confirmed their subscription, "no" in an opt-in column only describes
            # how they joined.
            for index, column in self._columns.items():
                is_opt_in = column.subject is ConsentSubject.OPTING_IN
                if is_opt_in and answers[index] is NOT_SUBSCRIBED and is_bare_no(cells[index]):
                    answers[index] = None
        counted = [
            (index, cells[index][:MAX_CACHED_CHARACTERS], answer)
            for index, answer in answers.items()
        ]
        status = strictest(answers[index] for index in layout.consent) or WANTED
        if status is not UNKNOWN:
            return ConsentAnswer(status, ROW_PROBLEMS.get(status)), counted
        index = next(index for index in layout.consent if answers[index] is UNKNOWN)
        value = cells[index].strip()[:MAX_WORD_CHARACTERS]
        column_name = layout.header[index].strip()[:MAX_WORD_CHARACTERS]
        reason = f"The value {value!r} in the column {column_name!r} is not recognised."
        return ConsentAnswer(UNKNOWN, RowProblem(STATUS_UNKNOWN, reason)), counted

    def _is_confirmed(self, answers: Mapping[int, Answer]) -> bool:
        return any(
            column.subject is ConsentSubject.CONFIRMATION and answers[index] is WANTED
            for index, column in self._layout.consent.items()
        )


class _EqualRows:
    """A group of rows with the same status, because they have equal cells in consent columns."""

    __slots__ = ("answer", "answers", "count")

    def __init__(self, answer: ConsentAnswer, answers: list[tuple[int, str, Answer]]) -> None:
        self.answer = answer
        self.answers = answers
        self.count = 0


def _may_be_status(sample: Records, index: int) -> bool:
    """Return whether each cell of this column in the sample is empty or a status word."""
    cells = (_cell(record, index).strip() for record in sample)
    return all(not cell or all(map(is_exact_word, items_of(cell))) for cell in cells)


def _cell(record: Sequence[str], index: int) -> str:
    return record[index] if index < len(record) else ""
