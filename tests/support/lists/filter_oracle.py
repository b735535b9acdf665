"""What a filter means, in plain Python: the oracle beside which the product's SQL is held.

It shares no code with the product. It reads the JSON as docs/filters.md says it is read.
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
Compare = Callable[[Any, Any], bool]


@dataclass(frozen=True)
class PlainMember:
    """A member as an owner knows them; fields by their keys."""

    id: int
    status: str
    type: str
    email: str | None
    name: str | None
    source: str
    import_id: int | None
    email_enabled: bool
    bounced: str
    joined_at: datetime
    created_at: datetime
    updated_at: datetime
    tags: frozenset[str] = frozenset()
    fields: Json = field(default_factory=dict)
    origin: Json = field(default_factory=dict)


def is_meant(written: Json, member: PlainMember) -> bool:
    """Whether the filter means the member, whatever their status."""
    match written:
        case {"all": parts}:
            found = all(is_meant(part, member) for part in parts)
        case {"any": parts}:
            found = any(is_meant(part, member) for part in parts)
        case {"not": part}:
            found = not is_meant(part, member)
        case {"field": name, "is_not": operand}:
            found = not is_meant({"field": name, "is": operand}, member)
        case {"field": name, "in": operands}:
            found = any(is_meant({"field": name, "is": each}, member) for each in operands)
        case {"field": "tag", "is": operand}:
            found = _folded(operand.strip()) in {_folded(tag) for tag in member.tags}
        case {"field": name, "exists": wanted}:
            found = bool(_has(name, member)) is wanted
        case {"field": name, **operators}:
            [(operator, operand)] = operators.items()
            value = _value(name, member)
            found = _has(name, member) and _compared(name, operator, value, operand)
    return found


def _value(name: str, member: PlainMember) -> Any:
    if name.startswith("fields."):
        return member.fields.get(name.removeprefix("fields."))
    if name in _ORIGIN_NAMES:
        return member.origin.get(name)
    return member.tags or None if name == "tag" else getattr(member, name)


def _has(name: str, member: PlainMember) -> bool:
    return _value(name, member) not in (None, "")


def names_status(written: Json) -> bool:
    parts = written.get("all") or written.get("any") or [written.get("not", {})]
    return written.get("field") == "status" or any(names_status(part) for part in parts if part)


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


def _compared(name: str, operator: str, value: Any, operand: Any) -> bool:
    compare = _ORDERED.get(operator, _ORDERED["is"])
    if isinstance(operand, dict):
        day = datetime.now(UTC).date() - timedelta(days=operand["days_ago"])
        operand = day.isoformat()
    if isinstance(value, datetime):
        is_day = len(operand) == len("2026-11-21")
        of = date if is_day else datetime
        return compare(value.date() if is_day else value, of.fromisoformat(operand))
    if not isinstance(value, str):
        return compare(value, operand)
    if name == "email":
        operand = unicodedata.normalize("NFC", operand.strip() or operand)
        return _OF_TEXT[operator](value, operand.lower())
    if operator in _OF_TEXT:
        return _OF_TEXT[operator](value.casefold(), operand.casefold())
    return compare(date.fromisoformat(value), date.fromisoformat(operand))


_ORDERED: dict[str, Compare] = {
    "is": lambda value, operand: value == operand,
    "before": lambda value, operand: value < operand,
    "after": lambda value, operand: value > operand,
    "at_least": lambda value, operand: value >= operand,
    "at_most": lambda value, operand: value <= operand,
}
_OF_TEXT: dict[str, Compare] = {
    "is": lambda value, operand: value == operand,
    "contains": lambda value, operand: operand in value,
    "begins": lambda value, operand: value.startswith(operand),
}
