"""Judges by the consent columns of a file whether each row is a member or an opt-out.

A person's status depends on the cells of all consent columns in the row. The distinct values in
consent columns are counted, so that the owner sees how each value was interpreted.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

from services.subscriptions.imports.columns.column_layout import (
    Basis,
    ColumnLayout,
    ConsentColumn,
    ConsentSubject,
)
from services.subscriptions.imports.columns.consent_cells import (
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
from services.subscriptions.imports.columns.consent_columns import (
    has_consent_word,
    is_status_header,
    names_other_subject,
)
from services.subscriptions.imports.columns.consent_evidence import (
    ColumnEvidence,
    has_only_status_words,
)
from services.subscriptions.imports.columns.consent_words import is_status_word, split_items
from services.subscriptions.imports.columns.known_words import (
    MAX_TEXT_CHARACTERS,
    MAX_WORD_CHARACTERS,
)
from services.subscriptions.imports.rows import OPT_OUTS, RowProblem, SuppressionStatus

MAX_VALUES_SHOWN = 50
MAX_VALUES_COUNTED = 1_000
# The maximum number of columns with unrecognised headers that are searched for status words.
MAX_COLUMNS_WATCHED = 100
# A column with more distinct values is free text, and isn't searched for status words.
MAX_VALUES_SEARCHED = 200
# The maximum number of columns for which an import explains why the column isn't used.
MAX_COLUMNS_EXPLAINED = 500
# Optimization: cached status of equal consent cells (decision 17).
# The status is cached, because most rows contain one of a few combinations of consent cells.
MAX_CACHED_ROWS = 1_024
MAX_CACHED_CHARACTERS = 200
# The reasons why a column that may concern a person's wish for mail isn't used.
OTHER_SUBJECT = "The header is about something other than mail."
NO_KNOWN_CELL = (
    "The header has a word about consent or opting out, but the cells don't answer whether a "
    "person wants mail."
)
OTHER_HEADER = (
    "The header has a word about consent or opting out, but names something else, such as a "
    "reason, a source or a number."
)
OTHER_CELLS = (
    "Some cells are status words, but the others aren't, or the words can mean something else."
)

Records = Sequence[Sequence[str]]
# The meaning of a column with any header if all of its cells are status words.
_STATUS_BY_VALUES = ConsentColumn(ConsentSubject.STATUS, Basis.VALUES, needs_answer=True)
# The meaning of a column such as "consent status" if its cells are numbers other than 0 and 1.
_NUMBERED_STATUS = ConsentColumn(ConsentSubject.STATUS, Basis.WORDS, may_be_number=True)


@dataclass(frozen=True)
class _Candidate:
    """A possible meaning of a column, which the cells of the column must confirm.

    ``is_accepted`` is the provisional decision, which was made before the whole file was read.
    """

    index: int
    column: ConsentColumn
    evidence: ColumnEvidence
    is_accepted: bool


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
    """

    def __init__(
        self,
        earlier_decisions: Mapping[str, bool] | None = None,
        status_values: Mapping[str, str] | None = None,
    ) -> None:
        self._earlier_decisions = earlier_decisions
        self.values = StatusValues(status_values)
        # The possible meanings of columns. The first meaning of a column that the cells confirm
        # counts. The keys are the names of the decisions in ``find_decisions``.
        self._candidates: dict[str, _Candidate] = {}
        self._candidates_by_index: dict[int, list[_Candidate]] = defaultdict(list)
        self._counts: Counter[tuple[int, str, Answer]] = Counter()
        self._rows_by_answer: Counter[tuple[int, Answer]] = Counter()
        self._ignored_opt_outs: Counter[int] = Counter()
        self._layout = ColumnLayout(())
        # The values in the unused columns that ``search_status_words`` still examines.
        self._searched_values: dict[int, set[str]] = {}
        self._columns_with_status_words: set[int] = set()
        self._reader: ConsentReader | None = None

    def find_unclear_columns(self, layout: ColumnLayout, sample: Records) -> Iterator[int]:
        column = ConsentColumn(ConsentSubject.CONSENT, Basis.WORDS)
        roles = {*layout.describe_roles(), *layout.mapped}
        for index in sorted(layout.unreadable - roles):
            answered = column._replace(needs_answer=True)
            if ColumnEvidence.of_sample(answered, self.values, sample, index).is_consent:
                yield index
        for index in sorted(layout.unclear):
            if ColumnEvidence.of_sample(column, self.values, sample, index).is_consent:
                yield index

    def decide(self, layout: ColumnLayout, sample: Records) -> None:
        """Decide from the first rows which columns are consent columns.

        Columns whose cells contain no consent values are removed from ``layout.consent``. Columns
        whose cells contain status words are added to ``layout.consent``. The same applies to
        ``layout.ignored_consent`` for columns that the owner has mapped.
        """
        self._add_candidates(layout, sample)
        for index, candidates in self._candidates_by_index.items():
            accepted = next((each for each in candidates if each.is_accepted), None)
            first = candidates[0].column
            columns = layout.ignored_consent if index in layout.mapped else layout.consent
            if accepted is not None:
                columns[index] = accepted.column
                layout.product = layout.product or accepted.column.product
            elif first.basis is not Basis.KNOWN:
                columns.pop(index, None)
            if not candidates[0].is_accepted and first.product == layout.product:
                layout.product = None
        self.values.check(layout.product)

    def create_reader(self, layout: ColumnLayout) -> "ConsentReader":
        self._count_rows()
        first_new_column = len(self._layout.header)
        self._layout = layout
        for index in self._list_unused_columns():
            if index >= first_new_column:
                self._searched_values[index] = set()
        self._reader = ConsentReader(self, layout)
        return self._reader

    def find_watched_columns(self) -> list[int]:
        return [
            index
            for index, candidates in self._candidates_by_index.items()
            if any(
                each.column.basis is not Basis.VALUES or each.evidence.may_be_status
                for each in candidates
            )
        ]

    def add_cell(self, index: int, cell: str) -> None:
        for candidate in self._candidates_by_index[index]:
            candidate.evidence.add_cell(cell)

    def count(self, index: int, cell: str, answer: Answer, rows: int) -> None:
        value = index, cell.strip()[:MAX_WORD_CHARACTERS], answer
        if value in self._counts or len(self._counts) < MAX_VALUES_COUNTED:
            self._counts[value] += rows
        self._rows_by_answer[index, answer] += rows

    def count_ignored(self, index: int, rows: int) -> None:
        self._ignored_opt_outs[index] += rows

    def find_decisions(self) -> dict[str, bool]:
        return {
            name: each.evidence.is_consent
            for name, each in self._candidates.items()
            if each.evidence.is_consent or each.column.basis is not Basis.VALUES
        }

    def has_misread_rows(self) -> bool:
        return any(
            each.evidence.is_consent != each.is_accepted for each in self._candidates.values()
        )

    def search_status_words(self, cells: Sequence[str]) -> None:
        """Search the unused columns of a record for status words.

        A column with more than ``MAX_VALUES_SEARCHED`` distinct values is free text.
        """
        for index, values in [*self._searched_values.items()]:
            cell = cells[index][:MAX_WORD_CHARACTERS] if index < len(cells) else ""
            if cell and cell not in values:
                values.add(cell)
                has_status_word = any(map(is_status_word, split_items(cell)))
                if has_status_word:
                    self._columns_with_status_words.add(index)
                if has_status_word or len(values) > MAX_VALUES_SEARCHED:
                    del self._searched_values[index]

    def explain_unused_columns(self) -> dict[int, str]:
        """Return why columns that may concern a person's wish for mail aren't used."""
        reasons = {index: self._explain_column(index) for index in self._list_unused_columns()}
        return {index: reason for index, reason in reasons.items() if reason is not None}

    def list_values_by_column(self) -> dict[int, list[dict[str, Any]]]:
        self._count_rows()
        values: dict[int, list[dict[str, Any]]] = {}
        for (index, value, answer), rows in sorted(
            self._counts.items(), key=lambda entry: (entry[0][2] is not UNKNOWN, -entry[1])
        ):
            column_values = values.setdefault(index, [])
            if len(column_values) < MAX_VALUES_SHOWN:
                column_values.append({"value": value, "rows": rows, "read_as": name_answer(answer)})
        return values

    def list_meanings_by_column(self) -> dict[int, list[dict[str, Any]]]:
        """Count the rows per meaning, including the rows whose value isn't listed."""
        self._count_rows()
        meanings: dict[int, list[dict[str, Any]]] = {}
        for (index, answer), rows in self._rows_by_answer.most_common():
            meanings.setdefault(index, []).append({"read_as": name_answer(answer), "rows": rows})
        return meanings

    def list_unknown_values(self, header: Sequence[str]) -> list[dict[str, Any]]:
        self._count_rows()
        return [
            {"column": header[index].strip()[:MAX_WORD_CHARACTERS], "value": value, "rows": rows}
            for (index, value, answer), rows in self._counts.most_common()
            if answer is UNKNOWN
        ][:MAX_VALUES_SHOWN]

    def count_ignored_opt_outs(self) -> dict[int, int]:
        self._count_rows()
        return dict(self._ignored_opt_outs)

    def _add_candidates(self, layout: ColumnLayout, sample: Records) -> None:
        for index, column in (*layout.consent.items(), *layout.ignored_consent.items()):
            if column.basis is not Basis.KNOWN or column.product is not None:
                self._add_candidate(str(index), index, column, sample)
            if column.may_be_number and column.subject is not ConsentSubject.STATUS:
                self._add_candidate(f"{index}:numbers", index, _NUMBERED_STATUS, sample)
        possible_columns = [
            index
            for index, name in enumerate(layout.header)
            if layout.mapped.get(index) != "email"
            and has_only_status_words(sample, index)
            and not names_other_subject(name[:MAX_TEXT_CHARACTERS])
        ]
        # Columns that are empty so far come last.
        possible_columns.sort(
            key=lambda index: (
                not any("".join(record[index : index + 1]).strip() for record in sample)
            )
        )
        for index in possible_columns[:MAX_COLUMNS_WATCHED]:
            header_column = layout.ignored_consent.get(index) or layout.consent.get(index)
            if header_column is None or header_column.basis is not Basis.KNOWN:
                needs_answer = not is_status_header(layout.header[index])
                column = _STATUS_BY_VALUES._replace(needs_answer=needs_answer)
                decision = f"{index}:values" if header_column else str(index)
                self._add_candidate(decision, index, column, sample)

    def _add_candidate(self, name: str, index: int, column: ConsentColumn, sample: Records) -> None:
        if name in self._candidates:
            return
        evidence = ColumnEvidence.of_sample(column, self.values, sample, index)
        is_accepted = evidence.is_consent
        if self._earlier_decisions is not None:
            is_accepted = self._earlier_decisions.get(name, False)
        candidate = _Candidate(index, column, evidence, is_accepted)
        self._candidates[name] = candidate
        self._candidates_by_index[index].append(candidate)

    def _list_unused_columns(self) -> list[int]:
        used = {*self._layout.describe_roles(), *self._layout.mapped}
        columns = range(min(len(self._layout.header), MAX_COLUMNS_EXPLAINED))
        return [index for index in columns if index not in used]

    def _explain_column(self, index: int) -> str | None:
        name = self._layout.header[index][:MAX_TEXT_CHARACTERS]
        if names_other_subject(name):
            return OTHER_SUBJECT
        candidates = self._candidates_by_index.get(index, ())
        if any(each.column.basis is not Basis.VALUES for each in candidates):
            return NO_KNOWN_CELL
        if has_consent_word(name):
            return OTHER_HEADER
        return OTHER_CELLS if index in self._columns_with_status_words else None

    def _count_rows(self) -> None:
        if self._reader is not None:
            self._reader.count_rows()


class ConsentReader:
    def __init__(self, interpreter: ConsentInterpreter, layout: ColumnLayout) -> None:
        self._interpreter = interpreter
        self._layout = layout
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
        for group in self._groups.values():
            for index, cell, answer in group.cell_answers:
                self._interpreter.count(index, cell, answer, group.count)
            for index, is_opt_out in group.ignored.items():
                self._interpreter.count_ignored(index, group.count if is_opt_out else 0)
        self._groups.clear()

    def _choose_columns(self) -> None:
        self._watched = self._interpreter.find_watched_columns()
        self.indexes = sorted(
            {*self._layout.consent, *self._layout.ignored_consent, *self._watched}
        )
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
    ) -> tuple[ConsentAnswer, list[tuple[int, str, Answer]], dict[int, bool]]:
        """The second value contains the cell and the status of each consent column. The third value
        maps each ignored consent column to whether its cell contains an opt-out.
        """
        layout = self._layout
        answers = self._find_cell_answers(layout.consent, cells)
        ignored = {
            index: answer in OPT_OUTS and answers.get(index) not in OPT_OUTS
            for index, answer in self._find_cell_answers(layout.ignored_consent, cells).items()
        }
        if self._is_confirmed(answers):
            # Ignore "no" in an opt-in column if another column says that the person confirmed the
            # subscription. A bare "no" in an opt-in column only describes how the person joined.
            for index, column in layout.consent.items():
                is_opt_in = column.subject is ConsentSubject.OPTING_IN
                if is_opt_in and answers[index] is NOT_SUBSCRIBED and is_bare_no(cells[index]):
                    answers[index] = None
        cell_answers = [
            (index, cells[index][:MAX_CACHED_CHARACTERS], answer)
            for index, answer in answers.items()
        ]
        status = find_strictest(answers[index] for index in layout.consent) or WANTED
        if status is not UNKNOWN:
            return ConsentAnswer(status, ROW_PROBLEMS.get(status)), cell_answers, ignored
        index = next(index for index in layout.consent if answers[index] is UNKNOWN)
        value = cells[index].strip()[:MAX_WORD_CHARACTERS]
        column_name = layout.header[index].strip()[:MAX_WORD_CHARACTERS]
        reason = f"The value {value!r} in the column {column_name!r} is not recognised."
        return ConsentAnswer(UNKNOWN, RowProblem(STATUS_UNKNOWN, reason)), cell_answers, ignored

    def _find_cell_answers(
        self, columns: Mapping[int, ConsentColumn], cells: Mapping[int, str]
    ) -> dict[int, Answer]:
        return {
            index: find_status(cells[index], column, self._layout.product, self._interpreter.values)
            for index, column in columns.items()
        }

    def _is_confirmed(self, answers: Mapping[int, Answer]) -> bool:
        return any(
            column.subject is ConsentSubject.CONFIRMATION and answers[index] is WANTED
            for index, column in self._layout.consent.items()
        )


class _RowGroup:
    """A group of rows with equal cells in all consent columns."""

    __slots__ = ("answer", "cell_answers", "count", "ignored")

    def __init__(
        self,
        answer: ConsentAnswer,
        cell_answers: list[tuple[int, str, Answer]],
        ignored: dict[int, bool],
    ) -> None:
        self.answer = answer
        self.cell_answers = cell_answers
        self.ignored = ignored
        self.count = 0
