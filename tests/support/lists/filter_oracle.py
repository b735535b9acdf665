"""Evaluates filters in plain Python, for comparison with the product's SQL.

This module implements docs/filters.md and shares no code with the product, so that an error in the
product's code doesn't affect this module.
"""

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

Json = dict[str, Any]
_ORIGIN_NAMES = (
    *("utm_source", "utm_medium", "utm_campaign", "utm_term", "utm_content"),
    *("referrer", "landing"),
)
_ENGAGEMENT_NAMES = (
    *("delivered", "opens", "machine_opens", "clicks", "measured_since"),
    *("last_delivered", "last_opened", "last_machine_opened", "last_clicked"),
)
Compare = Callable[[Any, Any], bool]


@dataclass(frozen=True)
class PlainMember:
    id: int
    status: str
    type: str
    email: str | None
    name: str | None
    source: str
    import_id: int | None
    email_enabled: bool
    bounced: str
    paid_expiry: datetime | None
    joined_at: datetime
    created_at: datetime
    updated_at: datetime
    tags: frozenset[str] = frozenset()
    fields: Json = field(default_factory=dict)
    origin: Json = field(default_factory=dict)
    engagement_choice: str = "none"
    engagement: Json = field(default_factory=dict)


def matches_filter(filter_json: Json, member: PlainMember) -> bool:
    """Return whether the filter matches the member.

    If a filter has no condition on the status, the product finds only active members, but this
    function matches members with any status.
    """
    match filter_json:
        case {"all": parts}:
            matches = all(matches_filter(part, member) for part in parts)
        case {"any": parts}:
            matches = any(matches_filter(part, member) for part in parts)
        case {"not": part}:
            matches = not matches_filter(part, member)
        case {"field": name, "is_not": operand}:
            matches = not matches_filter({"field": name, "is": operand}, member)
        case {"field": name, "in": operands}:
            matches = any(matches_filter({"field": name, "is": each}, member) for each in operands)
        case {"field": "tag", "is": operand}:
            matches = _fold(operand.strip()) in {_fold(tag) for tag in member.tags}
        case {"field": name, "exists": expected}:
            matches = bool(_has_value(name, member)) is expected
        case {"field": name, "anniversary": days}:
            value = _get_value(name, member)
            day = value.date() if isinstance(value, datetime) else value
            target = datetime.now(UTC).date() + timedelta(days=days)
            matches = day is not None and is_anniversary(date.fromisoformat(str(day)), target)
        case {"field": name, **operators}:
            [(operator, operand)] = operators.items()
            value = _get_value(name, member)
            matches = _has_value(name, member) and _compare(name, operator, value, operand)
    return matches


def _get_value(name: str, member: PlainMember) -> Any:
    if name.startswith("fields."):
        return member.fields.get(name.removeprefix("fields."))
    if name in _ORIGIN_NAMES:
        return member.origin.get(name)
    if name in _ENGAGEMENT_NAMES:
        return member.engagement.get(name)
    return member.tags or None if name == "tag" else getattr(member, name)


def _has_value(name: str, member: PlainMember) -> bool:
    return _get_value(name, member) not in (None, "")


def is_anniversary(day: date, target: date) -> bool:
    """Return whether ``target`` is an anniversary of ``day``."""
    try:
        anniversary = day.replace(year=target.year)
    except ValueError:  # The year has no 29 February.
        anniversary = date(target.year, 2, 28)
    return anniversary == target and target.year > day.year


def names_status(filter_json: Json) -> bool:
    parts = filter_json.get("all") or filter_json.get("any") or [filter_json.get("not", {})]
    return filter_json.get("field") == "status" or any(names_status(part) for part in parts if part)


def _fold(text: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


def _compare(name: str, operator: str, value: Any, operand: Any) -> bool:
    compare = _VALUE_OPERATORS.get(operator, _VALUE_OPERATORS["is"])
    if isinstance(operand, dict):
        day = datetime.now(UTC).date() - timedelta(days=operand["days_ago"])
        operand = day.isoformat()
    if isinstance(value, datetime):
        is_day = len(operand) == len("2026-11-21")
        type_ = date if is_day else datetime
        return compare(value.date() if is_day else value, type_.fromisoformat(operand))
    if not isinstance(value, str):
        return compare(value, operand)
    if name == "email":
        operand = unicodedata.normalize("NFC", operand.strip() or operand)
        return _TEXT_OPERATORS[operator](value, operand.lower())
    if operator in _TEXT_OPERATORS:
        return _TEXT_OPERATORS[operator](value.casefold(), operand.casefold())
    return compare(date.fromisoformat(value), date.fromisoformat(operand))


_VALUE_OPERATORS: dict[str, Compare] = {
    "is": lambda value, operand: value == operand,
    "before": lambda value, operand: value < operand,
    "after": lambda value, operand: value > operand,
    "at_least": lambda value, operand: value >= operand,
    "at_most": lambda value, operand: value <= operand,
}
_TEXT_OPERATORS: dict[str, Compare] = {
    "is": lambda value, operand: value == operand,
    "contains": lambda value, operand: operand in value,
    "begins": lambda value, operand: value.startswith(operand),
}
