"""Filters of members as JSON. The service reads them; their schemas are written for the document.

The two are apart, since a service refuses a filter with the place in it and what would be right
there, and since a filter holds filters.
"""

from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from api.schemas.envelope import Body
from models import SubscriptionStatus
from services.mailing.filters.filter_names import COMMON, Operator
from services.mailing.filters.grammar import MAX_CONDITIONS, MAX_DEPTH, MAX_VALUES
from services.paging import WHOLE

EXAMPLE = {
    "all": [
        {"field": "tag", "is": "vip"},
        {"field": "joined_at", "at_least": "2026-01-01"},
        {"not": {"field": "fields.city", "is": "Berlin"}},
    ]
}
_FILTER = {"$ref": "#/components/schemas/MemberFilter"}
_PARTS = {"type": "array", "items": _FILTER, "minItems": 1, "maxItems": MAX_CONDITIONS}
_VALUE = {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]}
_MOMENT = {"type": "string", "description": "A day in UTC (2026-11-21), or a moment"}
_BOUND = {
    "anyOf": [{"type": "string"}, {"type": "number"}],
    "description": "A number, a day in UTC (2026-11-21), or a moment",
}
_OPERANDS: dict[Operator, dict[str, Any]] = {
    Operator.IS: _VALUE,
    Operator.IS_NOT: {**_VALUE, "description": "Members without any value are found too"},
    Operator.IN: {"type": "array", "items": _VALUE, "minItems": 1, "maxItems": MAX_VALUES},
    Operator.CONTAINS: {"type": "string"},
    Operator.BEGINS: {"type": "string"},
    Operator.BEFORE: _MOMENT,
    Operator.AFTER: _MOMENT,
    Operator.NOT_BEFORE: _BOUND,
    Operator.NOT_AFTER: _BOUND,
    Operator.EXISTS: {"type": "boolean", "description": "Whether there is any value"},
}


def _shape(description: str, **properties: dict[str, Any]) -> dict[str, Any]:
    """An object with these properties and no other."""
    return {
        "type": "object",
        "description": description,
        "properties": properties,
        "required": list(properties),
        "maxProperties": len(properties),
    }


def _condition() -> dict[str, Any]:
    names = ", ".join(each.name for each in COMMON)
    field = {
        "type": "string",
        "description": f"{names}, or fields. and the key of a field",
        "examples": ["fields.city"],
    }
    operands = {operator.value: operand for operator, operand in _OPERANDS.items()}
    shape = _shape("One name and one of the operators that go with it", field=field)
    return {
        **shape,
        "properties": {**shape["properties"], **operands},
        "minProperties": 2,
        "maxProperties": 2,
        "examples": [{"field": "fields.city", "is": "Berlin"}],
    }


# By their names in the document.
FILTER_SCHEMAS: dict[str, dict[str, Any]] = {
    "MemberFilter": {
        "description": f"Which members are meant. At most {MAX_DEPTH} deep, with at most "
        f"{MAX_CONDITIONS} conditions. Active members only, unless it names `status`",
        "anyOf": [
            {"$ref": f"#/components/schemas/{name}"}
            for name in ("FilterOfAll", "FilterOfAny", "FilterOfOthers", "FilterCondition")
        ],
        "examples": [EXAMPLE],
    },
    "FilterOfAll": {**_shape("All parts are true", all=_PARTS), "examples": [EXAMPLE]},
    "FilterOfAny": {
        **_shape("At least one part is true", any=_PARTS),
        "examples": [{"any": [{"field": "type", "is": "gold"}, {"field": "tag", "is": "vip"}]}],
    },
    "FilterOfOthers": {
        **_shape("The part is not true", **{"not": _FILTER}),
        "examples": [{"not": {"field": "tag", "is": "vip"}}],
    },
    "FilterCondition": _condition(),
}

# What a body calls a filter: the document has the schema of that name there.
FilterDocument = Annotated[Any, WithJsonSchema({"type": "object", "title": "MemberFilter"})]


class MemberSearch(Body):
    filter: FilterDocument
    status: SubscriptionStatus | None = Field(
        default=None,
        strict=False,
        description="Only members who have it, instead of the active ones",
    )
    limit: int = Field(default=50, ge=1, le=WHOLE.limit, description="How many to answer at most")
    cursor: str | None = Field(
        default=None, description="next_cursor of the page before", examples=[None]
    )
