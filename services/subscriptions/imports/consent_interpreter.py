"""Interprets the consent columns of a file.

A person's status depends on the cells of all consent columns in the row. The distinct values in
consent columns are counted, so that the owner sees how each value was interpreted.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

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
    find_status,
    find_strictest,
    is_bare_no,
    name_answer,
)
from services.subscriptions.imports.consent_evidence import ColumnEvidence, has_only_status_words
from services.subscriptions.imports.known_words import MAX_WORD_CHARACTERS
from services.subscriptions.imports.rows import OPT_OUTS, RowProblem, SuppressionStatus

MAX_VALUES_SHOWN = 50
MAX_VALUES_COUNTED = 1_000
# The maximum number of columns with unrecognised headers that are searched for status words.
MAX_COLUMNS_WATCHED = 100
# Optimization: cached status of equal consent cells (decision 17).
# The status is cached, because most rows contain one of a few combinations of consent cells.
MAX_CACHED_ROWS = 1_024
MAX_CACHED_CHARACTERS = 200

Records = Sequence[Sequence[str]]


class ConsentAnswer(NamedTuple):
    """The status that a row states for a person, and the error if the row can't be imported."""

    status: SuppressionStatus
    problem: RowProblem | None = None


# The status of all rows in a file without consent columns.
_NO_STATUS = ConsentAnswer(WANTED)


class ConsentInterpreter:
    """An interpreter that finds the status of each row, and counts the values in consent columns.

    Consent columns with unclear headers can be recognised only by their cells. A provisional
    decision about each column is made from the first rows of the file. If any row contradicts a
    provisional decision, the file is read a second time.

    Args:
        earlier_decisions: the result of ``find_decisions`` from the first reading of the file.
        status_values: maps values in consent columns to the statuses that the owner has assigned.
    """

    def __init__(
        self,
        earlier_decisions: Mapping[str, bool] | None = None,
        status_values: Mapping[str, str] | None = None,
    ) -> None:
        self._earlier_decisions = earlier_decisions
        self.values = StatusValues(status_values)
        # The possible consent columns, by column index. The cells of a possible consent column
        # decide whether the column contains consent.
        self._judged_columns: dict[int, ConsentColumn] = {}
        self._evidence: dict[int, ColumnEvidence] = {}
        # Maps the index of each column in ``_judged_columns`` to the provisional decision about the
        # column.
        self._decisions: dict[int, bool] = {}
        self._counts: Counter[tuple[int, str, Answer]] = Counter()
        self._ignored_opt_outs: Counter[int] = Counter()
        self._reader: ConsentReader | None = None

    def find_unclear_columns(self, layout: ColumnLayout, sample: Records) -> Iterator[int]:
        """Yield the columns with unclear headers, except columns of numbers, links or addresses."""
        column = ConsentColumn(ConsentSubject.CONSENT, Basis.WORDS)
        for index in sorted(layout.unclear):
            if ColumnEvidence.of_sample(column, self.values, sample, index).is_consent:
                yield index

    def decide(self, layout: ColumnLayout, sample: Records) -> None:
        """Decide from the first rows which columns are consent columns.

        Columns whose cells contain no consent values are removed from ``layout.consent``. Columns
        whose cells contain status words are added to ``layout.consent``. Raises
        ``import.status_values`` if the owner has assigned "subscribed" to an opt-out value.
        """
        self._watch_unknown_columns(layout, sample)
        for index, column in layout.consent.items():
            if column.basis is not Basis.KNOWN or column.product is not None:
                self._judged_columns.setdefault(index, column)
        for index, column in self._judged_columns.items():
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

    def create_reader(self, layout: ColumnLayout) -> "ConsentReader":
        """Create a reader of subscription statuses for records with the layout ``layout``."""
        self._count_rows()
        self._reader = ConsentReader(self, layout)
        return self._reader

    def find_watched_columns(self) -> list[int]:
        """Return the columns whose provisional decision may change as more cells are read."""
        return [
            index
            for index, column in self._judged_columns.items()
            if column.basis is not Basis.VALUES or self._evidence[index].may_be_status
        ]

    def add_cell(self, index: int, cell: str) -> None:
        """Add a cell to the evidence about whether the cell's column is a consent column."""
        self._evidence[index].add_cell(cell)

    def count(self, index: int, cell: str, answer: Answer, rows: int) -> None:
        """Add ``rows`` to the number of occurrences of a cell in a column."""
        value = index, cell.strip()[:MAX_WORD_CHARACTERS], answer
        if value in self._counts or len(self._counts) < MAX_VALUES_COUNTED:
            self._counts[value] += rows

    def count_ignored(self, index: int, answer: Answer, rows: int) -> None:
        """Count an answer in an ignored consent column.

        If ``answer`` is an opt-out, add ``rows`` to the column's number of ignored opt-outs.
        """
        self._ignored_opt_outs[index] += rows if answer in OPT_OUTS else 0

    def find_decisions(self) -> dict[str, bool]:
        """Return whether each examined column is a consent column, by column index.

        Call the method only after the whole file has been read.
        """
        return {
            str(index): is_consent
            for index, is_consent in self._final_decisions().items()
            if is_consent or self._judged_columns[index].basis is not Basis.VALUES
        }

    def has_misread_rows(self) -> bool:
        """Return whether the file contradicts a provisional decision about a consent column."""
        return self._final_decisions() != self._decisions

    def list_values_by_column(self) -> dict[int, list[dict[str, Any]]]:
        """Return the values in each consent column, with their row counts and statuses.

        Unrecognised values come before recognised values. Unrecognised and recognised values are
        each sorted by row count, highest first.
        """
        self._count_rows()
        values: dict[int, list[dict[str, Any]]] = {}
        for (index, value, answer), rows in sorted(
            self._counts.items(), key=lambda entry: (entry[0][2] is not UNKNOWN, -entry[1])
        ):
            column_values = values.setdefault(index, [])
            if len(column_values) < MAX_VALUES_SHOWN:
                column_values.append({"value": value, "rows": rows, "read_as": name_answer(answer)})
        return values

    def list_unknown_values(self, header: Sequence[str]) -> list[dict[str, Any]]:
        """Return the unrecognised values in consent columns, sorted by descending row count."""
        self._count_rows()
        return [
            {"column": header[index].strip()[:MAX_WORD_CHARACTERS], "value": value, "rows": rows}
            for (index, value, answer), rows in self._counts.most_common()
            if answer is UNKNOWN
        ][:MAX_VALUES_SHOWN]

    def count_ignored_opt_outs(self) -> dict[int, int]:
        """Return how many opt-outs each ignored consent column contains, by column index."""
        self._count_rows()
        return dict(self._ignored_opt_outs)

    def _watch_unknown_columns(self, layout: ColumnLayout, sample: Records) -> None:
        known_columns = {
            *layout.describe_roles(),
            *layout.mapped,
            *layout.unclear,
            *self._judged_columns,
        }
        column = ConsentColumn(ConsentSubject.STATUS, Basis.VALUES)
        room = MAX_COLUMNS_WATCHED
        for index in range(len(layout.header)):
            if room and index not in known_columns and has_only_status_words(sample, index):
                self._judged_columns[index] = column
                room -= 1

    def _decide_column(self, index: int, column: ConsentColumn, sample: Records) -> None:
        evidence = ColumnEvidence.of_sample(column, self.values, sample, index)
        self._evidence[index] = evidence
        if self._earlier_decisions is None:
            self._decisions[index] = evidence.is_consent
        else:
            self._decisions[index] = self._earlier_decisions.get(str(index), False)

    def _final_decisions(self) -> dict[int, bool]:
        return {index: evidence.is_consent for index, evidence in self._evidence.items()}

    def _count_rows(self) -> None:
        if self._reader is not None:
            self._reader.count_rows()


class ConsentReader:
    """Determines a record's subscription status from the consent columns."""

    def __init__(self, interpreter: ConsentInterpreter, layout: ColumnLayout) -> None:
        self._interpreter = interpreter
        self._layout = layout
        self._columns = {**layout.ignored_consent, **layout.consent}
        # Maps each combination of consent cells to the rows that contain the combination.
        self._groups: dict[tuple[str, ...], _RowGroup] = {}
        self._choose_columns()

    def read(self, cells: Sequence[str]) -> ConsentAnswer:
        """Return the status of a record according to its consent columns.

        ``cells`` must have a cell for every column of the file.
        """
        if self._pick is None:
            return _NO_STATUS
        picked = self._pick(cells)
        group = self._groups.get(picked)
        if group is None:
            group = self._add_group(picked)
        group.count += 1
        return group.answer

    def count_rows(self) -> None:
        """Add the cached row counts to the row counts of the file, and empty the cache."""
        for group in self._groups.values():
            for index, cell, answer in group.cell_answers:
                if index in self._layout.consent:
                    self._interpreter.count(index, cell, answer, group.count)
                else:
                    self._interpreter.count_ignored(index, answer, group.count)
        self._groups.clear()

    def _choose_columns(self) -> None:
        self._watched = self._interpreter.find_watched_columns()
        self.indexes = sorted({*self._columns, *self._watched})
        # Repeat the first index, so that itemgetter returns a tuple even for a single column.
        self._pick = itemgetter(*self.indexes, self.indexes[0]) if self.indexes else None

    def _add_group(self, picked: tuple[str, ...]) -> "_RowGroup":
        cells = dict(zip(self.indexes, picked, strict=False))
        for index in self._watched:
            self._interpreter.add_cell(index, cells[index])
        group = _RowGroup(*self._find_answers(cells))
        if len(self._groups) >= MAX_CACHED_ROWS:
            self.count_rows()
        if len(self._interpreter.find_watched_columns()) < len(self._watched):
            self.count_rows()
            self._choose_columns()
            picked = tuple(cells[index] for index in (*self.indexes, *self.indexes[:1]))
        if max(map(len, picked), default=0) > MAX_CACHED_CHARACTERS:
            # A row with a long consent cell gets a short, unique key in the cache. Using the cell's
            # text as the key would take too much memory.
            picked = (str(len(self._groups)),)
        self._groups[picked] = group
        return group

    def _find_answers(
        self, cells: Mapping[int, str]
    ) -> tuple[ConsentAnswer, list[tuple[int, str, Answer]]]:
        """Return the status of a row, and the cell and status of each consent column in the row."""
        layout = self._layout
        answers = {
            index: find_status(cells[index], column, layout.product, self._interpreter.values)
            for index, column in self._columns.items()
        }
        if self._is_confirmed(answers):
            # Ignore "no" in an opt-in column if another column says that the person confirmed the
            # subscription. A bare "no" in an opt-in column only describes how the person joined.
            for index, column in self._columns.items():
                is_opt_in = column.subject is ConsentSubject.OPTING_IN
                if is_opt_in and answers[index] is NOT_SUBSCRIBED and is_bare_no(cells[index]):
                    answers[index] = None
        cell_answers = [
            (index, cells[index][:MAX_CACHED_CHARACTERS], answer)
            for index, answer in answers.items()
        ]
        status = find_strictest(answers[index] for index in layout.consent) or WANTED
        if status is not UNKNOWN:
            return ConsentAnswer(status, ROW_PROBLEMS.get(status)), cell_answers
        index = next(index for index in layout.consent if answers[index] is UNKNOWN)
        value = cells[index].strip()[:MAX_WORD_CHARACTERS]
        column_name = layout.header[index].strip()[:MAX_WORD_CHARACTERS]
        reason = f"The value {value!r} in the column {column_name!r} is not recognised."
        return ConsentAnswer(UNKNOWN, RowProblem(STATUS_UNKNOWN, reason)), cell_answers

    def _is_confirmed(self, answers: Mapping[int, Answer]) -> bool:
        return any(
            column.subject is ConsentSubject.CONFIRMATION and answers[index] is WANTED
            for index, column in self._layout.consent.items()
        )


class _RowGroup:
    """A group of rows with equal cells in all consent columns, and therefore with the same status.

    ``cell_answers`` contains the index, the cell and the status of each consent column.
    """

    __slots__ = ("answer", "cell_answers", "count")

    def __init__(self, answer: ConsentAnswer, cell_answers: list[tuple[int, str, Answer]]) -> None:
        self.answer = answer
        self.cell_answers = cell_answers
        self.count = 0
