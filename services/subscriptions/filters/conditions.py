"""The SQL of one comparison of a filter: with a column, a tag or a field of members."""

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from operator import ge, gt, le, lt
from typing import Any

from sqlalchemy import (
    ColumnElement,
    FromClause,
    Text,
    and_,
    any_,
    cast,
    collate,
    exists,
    func,
    literal,
    literal_column,
    or_,
)
from sqlalchemy.dialects.postgresql import JSONB

from core.errors import DomainError
from core.languages.shown_lines import strip_invisible
from models import MemberTag, Subscription, SubscriptionStatus
from services.accounts import email_addresses
from services.subscriptions.filters.names import (
    STATUS,
    FilterName,
    Operator,
    Span,
    Value,
    ValueKind,
)

# Text is compared without case, by the full case folding of Unicode, as ``str.casefold`` has it.
# Postgres does the same in a collation of its own, so that the locale of the database has no part
# in it. Values are bound, and never a part of a statement's text.

Condition = ColumnElement[bool]

# No fields or no tags: in the words of the conditions of partial indexes.
NONE: ColumnElement[Any] = literal_column("'{}'")
_FOLDING = "pg_unicode_fast"


@dataclass(frozen=True)
class Members:
    """The subscriptions, or some of them, that a filter is about.

    ``tag_ids``: of the tags that it names and that the list has, by those names.
    """

    rows: FromClause = Subscription.__table__
    tag_ids: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Comparison:
    """The condition on one name. It is never ``is_not``, which is the complement of ``is``.

    Attributes:
        values: several for ``in``, none for ``exists``, else one.
    """

    name: FilterName
    operator: Operator
    values: tuple[Value, ...] = ()

    def sql(self, members: Members) -> Condition:
        of_own = self.name.field_id is not None
        return (_of_field if of_own else _BY_NAME[self.name.name])(self, members)

    def indexed(self, members: Members) -> Condition | None:
        """Return a condition that an index answers, and that is true of every matching member."""
        if self.name.field_id is not None:
            return _indexed_field(self, members)
        found = None if self.operator is Operator.EXISTS else _INDEXED.get(self.name.name)
        return None if found is None else found(self, members)

    def is_true_of(self, status: SubscriptionStatus) -> bool | None:
        """Return whether members of this status match; ``None`` if more decides."""
        return status in self.values if self.name == STATUS else None

    def comparisons(self) -> "Iterator[Comparison]":
        yield self


def folded(value: ColumnElement[str]) -> ColumnElement[str]:
    return func.casefold(collate(value, _FOLDING))


def pattern(operator: Operator, value: str) -> str:
    """For ``LIKE``, which has wildcards of its own."""
    escaped = re.sub(r"([\\%_])", r"\\\1", value)
    return f"%{escaped}%" if operator is Operator.CONTAINS else f"{escaped}%"


def of_text(comparison: Comparison, column: ColumnElement[str]) -> Condition:
    """Return the SQL condition that compares a text column, ignoring case."""
    operator = comparison.operator
    values = [form for value in comparison.values for form in _forms_of(str(value))]
    if operator in {Operator.CONTAINS, Operator.BEGINS}:
        patterns = [folded(literal(pattern(operator, value))) for value in values]
        return or_(*(folded(column).like(each) for each in patterns))
    return folded(column).in_([folded(literal(value)) for value in values])


def _forms_of(value: str) -> Iterable[str]:
    """Return the text in Unicode's forms NFC and NFD, because stored texts may be in either."""
    return dict.fromkeys(unicodedata.normalize(form, value) for form in ("NFC", "NFD"))


_Of = Callable[[Comparison, Members], Condition]
_Indexed = Callable[[Comparison, Members], Condition | None]

# A shorter text is in too many others for an index of three characters at a time.
MIN_INDEXED_CHARACTERS = 3
# The last character of Unicode, which no address has.
_LAST = "\U0010ffff"


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
    # Keep a value that consists of whitespace, because this value matches no address. An empty
    # value would match all addresses.
    lowered = unicodedata.normalize("NFC", strip_invisible(values[0]) or values[0]).lower()
    if operator is Operator.CONTAINS:
        return column.like(pattern(operator, lowered))
    if operator is Operator.BEGINS:
        # As the index of a list's addresses compares them, and not that of their parts.
        return and_(column.bool_op("~>=~")(lowered), column.bool_op("~<~")(lowered + _LAST))
    return column.in_([_address(value) for value in values])


def _address(value: str) -> str:
    # Text that is no address is the address of no member.
    with suppress(DomainError):
        return email_addresses.normalise_address(value)
    return value.lower()


def _of_column(comparison: Comparison, members: Members) -> Condition:
    column = members.rows.c[comparison.name.name]
    if comparison.operator is Operator.EXISTS:
        return column.is_not(None)
    return column.in_(comparison.values)


def _of_moment(comparison: Comparison, members: Members) -> Condition:
    return _within(comparison, members.rows.c[comparison.name.name])


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
    # A stored filter has ids; in it, a name is that of a tag that the list did not have.
    found = (
        each if isinstance(each, int) else members.tag_ids.get(str(each))
        for each in comparison.values
    )
    named = [tag_id for tag_id in found if tag_id is not None]
    return column.bool_op("&&")(cast(named, column.type))


_BY_NAME: Mapping[str, _Of] = {
    **dict.fromkeys(("status", "type", "import_id"), _of_column),
    "email": _of_address,
    "name": _of_name,
    # All sources are written in lower case.
    "source": lambda comparison, members: members.rows.c.source.in_(
        [str(value).lower() for value in comparison.values]
    ),
    "email_enabled": lambda comparison, members: members.rows.c.email_enabled.is_(
        comparison.values[0]
    ),
    "joined_at": lambda comparison, members: _within(
        comparison, func.coalesce(members.rows.c.joined_at, members.rows.c.created_at)
    ),
    **dict.fromkeys(("created_at", "updated_at"), _of_moment),
    "tag": _of_tag,
}


def _indexed_text(of: _Of, comparison: Comparison, members: Members) -> Condition | None:
    is_part = comparison.operator is Operator.CONTAINS
    if is_part and len(str(comparison.values[0])) < MIN_INDEXED_CHARACTERS:
        return None
    return of(comparison, members)


_INDEXED: Mapping[str, _Indexed] = {
    "email": partial(_indexed_text, _of_address),
    "name": partial(_indexed_text, _of_name),
    "import_id": _of_column,
    "created_at": _of_moment,
    # The day of most members is that of their record; one index has those of the others.
    "joined_at": lambda comparison, members: or_(
        _within(comparison, members.rows.c.joined_at),
        and_(members.rows.c.joined_at.is_(None), _within(comparison, members.rows.c.created_at)),
    ),
    "tag": lambda comparison, members: and_(
        members.rows.c.tag_ids != NONE, _of_tag(comparison, members)
    ),
}


def _of_field(comparison: Comparison, members: Members) -> Condition:
    key = literal(str(comparison.name.field_id))
    fields, operator = members.rows.c.fields, comparison.operator
    value = fields.op("->", return_type=JSONB())(key)
    words = fields.op("->>", return_type=Text())(key)
    if operator is Operator.EXISTS:
        return value.is_not(None)
    match comparison.name.kind:
        case ValueKind.NUMBER:
            wanted = [_json(each) for each in comparison.values]
            if operator not in _COMPARED:
                return value.in_(wanted)
            is_reached = _COMPARED[operator](value, wanted[0])
            # In the order of JSON documents, values of other types stand before and after all
            # numbers.
            return and_(func.jsonb_typeof(value) == "number", is_reached)
        case ValueKind.DAY:
            # The days of four-digit years are in the order of their texts.
            days, words = [str(each) for each in comparison.values], collate(words, "C")
            compared = _COMPARED.get(operator)
            return words.in_(days) if compared is None else compared(words, days[0])
        case ValueKind.BOOLEAN:
            return value == _json(comparison.values[0])
        case _:
            return of_text(comparison, words)


_COMPARED: Mapping[Operator, Callable[[Any, Any], Condition]] = {
    Operator.BEFORE: lt,
    Operator.NOT_AFTER: le,
    Operator.AFTER: gt,
    Operator.NOT_BEFORE: ge,
}


def _json_text(value: Value) -> str:
    return str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)


def _json(value: Value) -> ColumnElement[object]:
    return cast(literal(_json_text(value), Text()), JSONB())


def _indexed_field(comparison: Comparison, members: Members) -> Condition | None:
    """Return whether the folded document has a folded value: one index serves all types."""
    if comparison.operator not in {Operator.IS, Operator.IN}:
        return None
    fields, key = members.rows.c.fields, json.dumps(str(comparison.name.field_id))
    document = cast(folded(cast(fields, Text())), JSONB())
    values = (_json_text(value) for value in comparison.values)
    texts = (form for value in values for form in _forms_of(value))
    parts = [literal(f"{{{key}: {each}}}", Text()) for each in texts]
    held = [document.contains(cast(folded(part), JSONB())) for part in parts]
    return and_(fields != NONE, or_(*held))
