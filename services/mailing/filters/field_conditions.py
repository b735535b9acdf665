"""Conditions on the fields of an owner, which stand in one JSON document for each member."""

import json
from decimal import Decimal
from typing import Any

from sqlalchemy import ColumnElement, Text, and_, cast, collate, func, literal, or_
from sqlalchemy.dialects.postgresql import JSONB

from services.mailing.filters.comparisons import (
    NONE,
    Comparison,
    Condition,
    Members,
    folded,
    of_text,
)
from services.mailing.filters.filter_names import Operator, ValueKind
from services.mailing.filters.values import Value


def sql(comparison: Comparison, members: Members) -> Condition:
    key = literal(str(comparison.name.field_id))
    fields, operator = members.rows.c.fields, comparison.operator
    value = fields.op("->", return_type=JSONB())(key)
    words = fields.op("->>", return_type=Text())(key)
    if operator is Operator.EXISTS:
        return value.is_not(None)
    match comparison.name.kind:
        case ValueKind.NUMBER:
            return _of_number(comparison, value)
        case ValueKind.DAY:
            # The days of four-digit years are in the order of their texts.
            return _of_day(comparison, collate(words, "C"))
        case ValueKind.BOOLEAN:
            return value == _json(comparison.values[0])
        case _:
            return of_text(comparison, words)


def _of_number(comparison: Comparison, value: ColumnElement[Any]) -> Condition:
    wanted = [_json(each) for each in comparison.values]
    if comparison.operator in {Operator.IS, Operator.IN}:
        return value.in_(wanted)
    (least,) = (most,) = wanted
    is_reached = value >= least if comparison.operator is Operator.NOT_BEFORE else value <= most
    # In the order of JSON documents, values of other types stand before and after all numbers.
    return and_(func.jsonb_typeof(value) == "number", is_reached)


def _of_day(comparison: Comparison, words: ColumnElement[str]) -> Condition:
    days = [str(value) for value in comparison.values]
    match comparison.operator:
        case Operator.BEFORE:
            return words < days[0]
        case Operator.NOT_AFTER:
            return words <= days[0]
        case Operator.AFTER:
            return words > days[0]
        case Operator.NOT_BEFORE:
            return words >= days[0]
        case _:
            return words.in_(days)


def _json_text(value: Value) -> str:
    return str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)


def _json(value: Value) -> ColumnElement[object]:
    return cast(literal(_json_text(value), Text()), JSONB())


def indexed(comparison: Comparison, members: Members) -> Condition | None:
    """That the folded document has a folded value: one index for the fields of all types."""
    if comparison.operator not in {Operator.IS, Operator.IN}:
        return None
    fields, key = members.rows.c.fields, json.dumps(str(comparison.name.field_id))
    document = cast(folded(cast(fields, Text())), JSONB())
    parts = [literal(f"{{{key}: {_json_text(value)}}}", Text()) for value in comparison.values]
    held = [document.contains(cast(folded(part), JSONB())) for part in parts]
    return and_(fields != NONE, or_(*held))
