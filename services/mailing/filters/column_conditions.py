"""Conditions on what every list knows of its members: address, name, dates, tags and the like."""

import unicodedata
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

from sqlalchemy import ColumnElement, and_, any_, cast, exists, func, or_

from core.errors import DomainError
from models import MemberTag
from services.mailing.filters.comparisons import (
    NONE,
    Comparison,
    Condition,
    Members,
    of_text,
    pattern,
)
from services.mailing.filters.filter_names import Operator
from services.mailing.filters.values import Span
from services.people import email_addresses

_Of = Callable[[Comparison, Members], Condition]
_Indexed = Callable[[Comparison, Members], Condition | None]

# A shorter text is in too many others for an index of three characters at a time.
MIN_INDEXED_CHARACTERS = 3
# The last character of Unicode, which no address has.
_LAST = "\U0010ffff"


def sql(comparison: Comparison, members: Members) -> Condition:
    return _BY_NAME[comparison.name.name](comparison, members)


def indexed(comparison: Comparison, members: Members) -> Condition | None:
    """What an index answers; it is true of every member of whom the condition is."""
    found = _INDEXED.get(comparison.name.name)
    if found is None or comparison.operator is Operator.EXISTS:
        return None
    return found(comparison, members)


def _of_name(comparison: Comparison, members: Members) -> Condition:
    column = members.rows.c.name
    if comparison.operator is Operator.EXISTS:
        # An empty name is none.
        return column != ""
    return of_text(comparison, column)


def _of_address(comparison: Comparison, members: Members) -> Condition:
    column, operator = members.rows.c.email, comparison.operator
    if operator is Operator.EXISTS:
        return column.is_not(None)
    values = [str(value) for value in comparison.values]
    lowered = unicodedata.normalize("NFC", values[0]).lower()
    if operator is Operator.CONTAINS:
        return column.like(pattern(operator, lowered))
    if operator is Operator.BEGINS:
        # As the index of a list's addresses compares them, and not that of their parts.
        return and_(column.bool_op("~>=~")(lowered), column.bool_op("~<~")(lowered + _LAST))
    return column.in_([_address(value) for value in values])


def _address(value: str) -> str:
    # Text that is no address is the address of no member.
    with suppress(DomainError):
        return email_addresses.normalise(value)
    return value.lower()


def _of_column(comparison: Comparison, members: Members) -> Condition:
    column = members.rows.c[comparison.name.name]
    if comparison.operator is Operator.EXISTS:
        return column.is_not(None)
    return column.in_(comparison.values)


def _of_source(comparison: Comparison, members: Members) -> Condition:
    # All sources are written in lower case.
    return members.rows.c.source.in_([str(value).lower() for value in comparison.values])


def _of_flag(comparison: Comparison, members: Members) -> Condition:
    return members.rows.c[comparison.name.name].is_(comparison.values[0])


def _of_moment(comparison: Comparison, members: Members) -> Condition:
    return _within(comparison, members.rows.c[comparison.name.name])


def _of_joining(comparison: Comparison, members: Members) -> Condition:
    columns = members.rows.c
    return _within(comparison, func.coalesce(columns.joined_at, columns.created_at))


def _within(comparison: Comparison, moment: ColumnElement[object]) -> Condition:
    (span,) = comparison.values
    assert isinstance(span, Span)
    match comparison.operator:
        case Operator.BEFORE:
            return moment < span.begin
        case Operator.NOT_AFTER:
            return moment < span.end
        case Operator.AFTER:
            return moment >= span.end
        case Operator.NOT_BEFORE:
            return moment >= span.begin
        case _:
            return and_(moment >= span.begin, moment < span.end)


def _of_tag(comparison: Comparison, members: Members) -> Condition:
    column = members.rows.c.tag_ids
    if comparison.operator is Operator.EXISTS:
        # The id of a tag that was deleted may be left.
        return and_(column != NONE, exists().where(MemberTag.id == any_(column)))
    names = [str(value) for value in comparison.values]
    named = [members.tag_ids[name] for name in names if name in members.tag_ids]
    return column.bool_op("&&")(cast(named, column.type))


_BY_NAME: Mapping[str, _Of] = {
    **dict.fromkeys(("status", "type", "import_id"), _of_column),
    "email": _of_address,
    "name": _of_name,
    "source": _of_source,
    "email_enabled": _of_flag,
    "joined_at": _of_joining,
    **dict.fromkeys(("created_at", "updated_at"), _of_moment),
    "tag": _of_tag,
}


def _indexed_tag(comparison: Comparison, members: Members) -> Condition:
    return and_(members.rows.c.tag_ids != NONE, _of_tag(comparison, members))


def _indexed_text(of: _Of, comparison: Comparison, members: Members) -> Condition | None:
    is_part = comparison.operator is Operator.CONTAINS
    if is_part and len(str(comparison.values[0])) < MIN_INDEXED_CHARACTERS:
        return None
    return of(comparison, members)


def _indexed_joining(comparison: Comparison, members: Members) -> Condition:
    """The day of most members is that of their record; one index has those of the others."""
    joined_at, created_at = members.rows.c.joined_at, members.rows.c.created_at
    return or_(
        _within(comparison, joined_at),
        and_(joined_at.is_(None), _within(comparison, created_at)),
    )


_INDEXED: Mapping[str, _Indexed] = {
    "email": partial(_indexed_text, _of_address),
    "name": partial(_indexed_text, _of_name),
    "import_id": _of_column,
    "created_at": _of_moment,
    "joined_at": _indexed_joining,
    "tag": _indexed_tag,
}
