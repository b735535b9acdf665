"""Lists an imported file's consent values, and reads the statuses that the owner assigned to them.

A consent value is the text of a cell, such as "unsubscribed", that states a person's status or
consent.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api.console.console_display import format_count
from api.console.typed_forms import build_field_error
from models import ImportKind, MemberImport
from services.subscriptions.imports.columns.consent_cells import STATUS_VALUES, fold_value
from services.subscriptions.imports.columns.consent_words import is_date
from services.subscriptions.imports.columns.known_words import MAX_WORD_CHARACTERS

AS_RECOGNISED = ""
STATUS_CHOICES = (
    ("subscribed", "Subscribed"),
    ("unsubscribed", "Unsubscribed"),
    ("bounced", "Bounced"),
    ("complained", "Complained"),
    ("not_subscribed", "Not subscribed (not imported)"),
)
_UNKNOWN = "unknown"
_NO_EFFECT = "nothing"
_MEANING_LABELS = {
    "subscribed": "Subscribed",
    "unsubscribed": "Unsubscribed",
    "cleaned": "Opted out (cleaned)",
    "bounced": "Opted out (bounced)",
    "complained": "Opted out (complained)",
    "not_subscribed": "Not subscribed (not imported)",
    "may_pass": "Soft bounce (not imported)",
    _UNKNOWN: "Not recognised (not imported)",
    _NO_EFFECT: "No effect",
}


@dataclass(frozen=True)
class StatusValue:
    """A consent value in the preview of an import.

    Attributes:
        index: the index of the column, or ``None`` if the value is in several columns or in none.
        read_as: the meaning of the value, as in the result of the import.
        box: the name of the select box for the status, or ``None`` if the owner can't assign a
            status.
    """

    index: int | None
    column: str
    value: str
    rows: int
    read_as: str
    box: str | None
    chosen: str


@dataclass(frozen=True)
class ValueGroup:
    """The consent values of a column that have the same meaning.

    Attributes:
        values: up to 50 of the values, each with its number of rows.
        rows: the number of rows with one of the values, listed or not.
    """

    column: str
    read_as: str
    values: Sequence[StatusValue]
    rows: int

    @property
    def meaning(self) -> str:
        return _MEANING_LABELS.get(self.read_as, self.read_as)

    @property
    def has_more(self) -> bool:
        return self.rows > sum(each.rows for each in self.values)

    @property
    def summary(self) -> str:
        """Return the number of listed values in words, such as "30 dates"."""
        kind = "date" if all(is_date(each.value) for each in self.values) else "value"
        count = format_count(len(self.values), kind)
        return f"more than {count}" if self.has_more else count


def list_status_values(task: MemberImport, result: Mapping[str, Any]) -> list[StatusValue]:
    """Return the consent values of an imported file, in the order of the columns.

    After a dry run, the owner can assign a status to each unrecognised consent value. A consent
    value that occurs in several columns gets a single select box, because its status applies to the
    whole file.
    """
    statuses = {fold_value(value): status for value, status in (task.status_values or {}).items()}
    values: list[StatusValue] = []
    changeable: set[str] = set()
    for index, column, value, rows, read_as in _iterate_values(task, result):
        folded = fold_value(value)
        # The owner can't assign a status to a long consent value, because only its beginning is
        # stored.
        is_whole = 0 < len(value) < MAX_WORD_CHARACTERS
        is_open = task.dry_run and (read_as == _UNKNOWN or folded in statuses)
        box = None
        if is_open and is_whole and folded not in changeable:
            changeable.add(folded)
            box = f"value_{len(values)}"
        status = statuses.get(folded, AS_RECOGNISED)
        values.append(StatusValue(index, column, value, rows, read_as, box, status))
    return values


def group_values(values: Sequence[StatusValue], result: Mapping[str, Any]) -> list[ValueGroup]:
    """Group the consent values without a select box by column and meaning.

    Empty cells without a meaning are left out.
    """
    remaining_rows: dict[tuple[int | None, str], int] = {
        (index, each["read_as"]): each["rows"]
        for index, column in enumerate(result.get("columns", ()))
        for each in column.get("meanings", ())
    }
    groups: dict[tuple[int | None, str, str], list[StatusValue]] = {}
    for each in values:
        has_effect = each.value or each.read_as != _NO_EFFECT
        if each.box is None and has_effect:
            groups.setdefault((each.index, each.column, each.read_as), []).append(each)
        elif (each.index, each.read_as) in remaining_rows:
            remaining_rows[each.index, each.read_as] -= each.rows
    return [
        ValueGroup(
            column,
            read_as,
            members,
            # Imports of release 1.1.0 didn't count the rows per meaning.
            max(remaining_rows.get((index, read_as), 0), sum(each.rows for each in members)),
        )
        for (index, column, read_as), members in groups.items()
    ]


def _iterate_values(
    task: MemberImport, result: Mapping[str, Any]
) -> Iterator[tuple[int | None, str, str, int, str]]:
    """Yield the column's index and name, the text, number of rows and meaning of each value."""
    listed = set()
    for index, column in enumerate(result.get("columns", ())):
        for each in column.get("values", ()):
            listed.add(fold_value(each["value"]))
            yield index, column["name"], each["value"], each["rows"], each["read_as"]
    if task.kind != ImportKind.MEMBERS:
        # For files of opt-outs, the import's result contains only the consent values that were not
        # recognised.
        for each in result.get("unknown_values", ()):
            listed.add(fold_value(each["value"]))
            yield None, each["column"], each["value"], each["rows"], _UNKNOWN
    for value in task.status_values or {}:
        # List a consent value with an assigned status even if the file no longer contains it, so
        # that the owner can remove the status.
        if task.dry_run and fold_value(value) not in listed:
            yield None, "", value, 0, _UNKNOWN


def read_status_choices(
    task: MemberImport, values: Sequence[StatusValue], form: Mapping[str, str]
) -> dict[str, str] | None:
    """Return which status the owner assigned to each consent value, or ``None``.

    A consent value without a select box keeps its status.
    """
    assigned_statuses = dict(task.status_values or {})
    for each in values:
        status = form.get(each.box, each.chosen) if each.box else each.chosen
        if status == each.chosen:
            continue
        if status and status not in STATUS_VALUES:
            raise build_field_error(str(each.box), "Choose a status from the list.")
        folded = fold_value(each.value)
        assigned_statuses = {
            value: old_status
            for value, old_status in assigned_statuses.items()
            if fold_value(value) != folded
        }
        if status:
            assigned_statuses[each.value] = status
    return assigned_statuses or None
