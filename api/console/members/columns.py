"""Describes the columns of the table of members: their links for sorting, and optional columns."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from api.console.console_display import (
    LEFT_REASONS,
    ORIGINS,
    SOURCES,
    display_moment,
    format_field_value,
)
from api.console.members.filter_choices import Choice
from api.console.members.forms import MAX_COLUMNS, MemberSelection, iterate_fields
from services.subscriptions.filters.names import FIELD_PREFIX, LEFT_REASON_NAME
from services.subscriptions.filters.sorting import MAX_SORTED_MEMBERS, MemberOrder, SortKey
from services.subscriptions.members import departures
from storage.unit_of_work import UnitOfWork

_Row = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """A column with a member field, or with another attribute that the filter tests.

    ``read``: returns a member's value, or an empty text.
    """

    label: str
    read: Callable[[_Row], object]


@dataclass(frozen=True)
class SortableHead:
    """A column's head with a link that sorts the table.

    Attributes:
        query: the URL query that sorts by the column, or reverses the current order. ``None`` if
            the table can't be sorted by the column.
        direction: the value of ``aria-sort``, or ``None`` if another order applies.
    """

    query: str | None
    direction: str | None


def build_heads(
    selection: MemberSelection,
    order: MemberOrder | None,
    total: int | None,
    refused: MemberOrder | None,
) -> dict[str, SortableHead]:
    """Return the head for each ``SortKey``.

    ``refused``: the requested order, if too many members match to sort them.
    """
    heads = {}
    for key in SortKey:
        is_current = order is not None and order.key is key
        is_descending = order is not None and order.is_descending
        other_order = MemberOrder(
            key, is_descending=not is_descending if is_current else key is SortKey.JOINED
        )
        has_too_many = key is SortKey.NAME and total is not None and total > MAX_SORTED_MEMBERS
        is_refused = has_too_many or (refused is not None and refused.key is key)
        direction = "descending" if is_descending else "ascending"
        heads[key.value] = SortableHead(
            query=None if is_refused else selection.with_sort(str(other_order)).query,
            direction=direction if is_current else None,
        )
    return heads


def list_columns(
    uow: UnitOfWork,
    selection: MemberSelection,
    filter_json: object,
    choices: Mapping[str, Choice],
    rows: Sequence[_Row],
) -> list[Column]:
    """Return the chosen columns, and a column for each other attribute that the filter tests."""
    chosen = [f"{FIELD_PREFIX}{key}" for key in selection.columns]
    tested = [name for name in iterate_fields(filter_json) if name not in chosen]
    names = chosen + [*dict.fromkeys(filter(_has_column, tested))][:MAX_COLUMNS]
    readers: dict[str, Callable[[_Row], object]] = {
        "source": lambda row: SOURCES.get(row["source"], row["source"]),
        "created_at": partial(_read_moment, "created_at"),
        "updated_at": partial(_read_moment, "updated_at"),
        **{name: partial(_read_origin, name) for name in ORIGINS},
    }
    if rows and LEFT_REASON_NAME.name in names:
        reasons = departures.read_reasons(uow, [row["id"] for row in rows])
        readers[LEFT_REASON_NAME.name] = lambda row: ": ".join(
            LEFT_REASONS[reason] for reason in reasons.get(row["id"], ())
        )
    return [
        Column(choices[name].label, readers.get(name) or partial(_read_field, name))
        for name in names
        if name in choices
    ]


def _has_column(name: str) -> bool:
    """Return whether a column can show the attribute, and the table doesn't always show it."""
    return (
        name.startswith(FIELD_PREFIX)
        or name in ORIGINS
        or name in {"source", "created_at", "updated_at", LEFT_REASON_NAME.name}
    )


def _read_field(name: str, row: _Row) -> str:
    value = row["fields"].get(name.removeprefix(FIELD_PREFIX))
    return "" if value is None else format_field_value(value)


def _read_origin(name: str, row: _Row) -> str:
    return str((row["origin"] or {}).get(name) or "")


def _read_moment(name: str, row: _Row) -> object:
    return display_moment(row[name])
