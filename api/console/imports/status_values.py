"""The values about consent in an imported file, and the form that assigns a status to each."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api.console.typed_forms import wrong_field
from models import ImportKind, MemberImport
from services.subscriptions.imports.consent_cells import STATUS_VALUES, folded_value
from services.subscriptions.imports.vocabulary import MAX_WORD_CHARACTERS

AS_RECOGNISED = ""
STATUS_CHOICES = (
    ("subscribed", "Subscribed"),
    ("unsubscribed", "Unsubscribed"),
    ("bounced", "Bounced"),
    ("complained", "Complained"),
    ("not_subscribed", "Not subscribed: don’t import"),
)
_UNKNOWN = "unknown"
_WORDS = {
    "subscribed": "Subscribed",
    "unsubscribed": "Opted out: unsubscribed",
    "cleaned": "Opted out: cleaned",
    "bounced": "Opted out: bounced",
    "complained": "Opted out: complained",
    "not_subscribed": "Not subscribed: not imported",
    "may_pass": "Soft bounce: not imported",
    _UNKNOWN: "Unknown: not imported",
    "nothing": "Says nothing",
}


@dataclass(frozen=True)
class StatusValue:
    """A value of a column, as the preview of an import shows it.

    Attributes:
        rows: how many rows have the value.
        meaning: how the file's reader understands the value, in words.
        box: the name of the select box; ``None`` if the owner can't change the meaning.
        chosen: the status that the owner assigned; empty for the recognised meaning.
    """

    column: str
    value: str
    rows: int
    meaning: str
    box: str | None
    chosen: str


def status_values_of(task: MemberImport, result: Mapping[str, Any]) -> list[StatusValue]:
    """Return the values about consent in a result, by the columns of the file.

    The owner can change unknown values and values with an assigned status. A value of several
    columns has one select box, because it has one status in the whole file.
    """
    statuses = {folded_value(value): status for value, status in (task.status_values or {}).items()}
    values: list[StatusValue] = []
    changeable: set[str] = set()
    for column, value, rows, meaning in _listed_values(task, result):
        folded = folded_value(value)
        # A longer value is cut off, so the whole of it can't be assigned.
        is_whole = 0 < len(value) < MAX_WORD_CHARACTERS
        is_open = meaning == _UNKNOWN or folded in statuses
        box = None
        if is_open and is_whole and folded not in changeable:
            changeable.add(folded)
            box = f"value_{len(values)}"
        chosen = statuses.get(folded, AS_RECOGNISED)
        words = _WORDS.get(meaning, meaning)
        values.append(StatusValue(column, value, rows, words, box, chosen))
    return values


def _listed_values(
    task: MemberImport, result: Mapping[str, Any]
) -> Iterator[tuple[str, str, int, str]]:
    """Yield column, value, number of rows and recognised meaning of each value in a result."""
    listed = set()
    for column in result.get("columns", ()):
        for each in column.get("values", ()):
            listed.add(folded_value(each["value"]))
            yield column["name"], each["value"], each["rows"], each["read_as"]
    if task.kind != ImportKind.MEMBERS:
        # A file of suppressions lists only its unknown values.
        for each in result.get("unknown_values", ()):
            listed.add(folded_value(each["value"]))
            yield each["column"], each["value"], each["rows"], _UNKNOWN
    for value in task.status_values or {}:
        if folded_value(value) not in listed:
            yield "", value, 0, _UNKNOWN


def read_choices(
    task: MemberImport, values: Sequence[StatusValue], form: Mapping[str, str]
) -> dict[str, str] | None:
    """Return the statuses that the owner assigns to values; ``None`` if there are none.

    A value without a box on the form keeps its status. Raises ``body.invalid``.
    """
    chosen = dict(task.status_values or {})
    for each in values:
        status = form.get(each.box, each.chosen) if each.box else each.chosen
        if status == each.chosen:
            continue
        if status and status not in STATUS_VALUES:
            raise wrong_field(str(each.box), "Choose one of these statuses.")
        folded = folded_value(each.value)
        chosen = {value: kept for value, kept in chosen.items() if folded_value(value) != folded}
        if status:
            chosen[each.value] = status
    return chosen or None
