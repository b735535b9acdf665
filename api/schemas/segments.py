from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from api.schemas.envelope import AtMost, Body, Schema, Timestamp
from core.ids import MAX_ID
from models import BulkActionKind, SubscriptionStatus
from services.paging import WHOLE
from services.subscriptions.export_sheets import ExportFormat, ExportKind
from services.subscriptions.filters.grammar import (
    MAX_CONDITIONS,
    MAX_DEPTH,
    MAX_VALUES_PER_CONDITION,
    MAX_VALUES_PER_FILTER,
)
from services.subscriptions.filters.names import COMMON_NAMES, Operator
from services.subscriptions.segments import MAX_SEGMENT_NAME_CHARACTERS

# The two are apart, since a service refuses a filter with the place in it and what would be right
# there, and since a filter holds filters.


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
    Operator.IN: {
        "type": "array",
        "items": _VALUE,
        "minItems": 1,
        "maxItems": MAX_VALUES_PER_CONDITION,
    },
    Operator.CONTAINS: {"type": "string"},
    Operator.BEGINS: {"type": "string"},
    Operator.BEFORE: _MOMENT,
    Operator.AFTER: _MOMENT,
    Operator.NOT_BEFORE: _BOUND,
    Operator.NOT_AFTER: _BOUND,
    Operator.EXISTS: {"type": "boolean", "description": "Whether there is any value"},
}


def _shape(description: str, **properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "description": description,
        "properties": properties,
        "required": list(properties),
        "maxProperties": len(properties),
    }


def _condition() -> dict[str, Any]:
    names = ", ".join(each.name for each in COMMON_NAMES)
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
        f"{MAX_CONDITIONS} conditions and {MAX_VALUES_PER_FILTER} values. Active members only, "
        "unless it names `status`",
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

# A filter in a body; the document has the schema of that name.
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


_NAME = f"1 to {MAX_SEGMENT_NAME_CHARACTERS} characters; a list has each once, whatever its case"


class SegmentRecord(Schema):
    id: int
    list_id: int
    name: str = Field(examples=["Readers in Rome"])
    filter: FilterDocument
    created_at: Timestamp
    updated_at: Timestamp


class CountedSegment(SegmentRecord):
    count: int = Field(description="How many members it means now", examples=[1204])
    count_is_exact: bool = Field(
        description="Otherwise it means at least that many; to count all would take too long",
        examples=[True],
    )


class NewSegment(Body):
    name: str = Field(description=_NAME, examples=["Readers in Rome"])
    filter: FilterDocument


class SegmentChanges(Body):
    name: str = Field(default="", description=_NAME, examples=["Readers in Rome"])
    filter: FilterDocument = Field(default=None, examples=[EXAMPLE])


class MemberChoice(Body):
    """Which members: those of a segment, or those of a filter."""

    segment_id: int | None = Field(
        default=None,
        ge=0,
        le=MAX_ID,
        description="Of the list; instead of a filter",
        examples=[None],
    )
    filter: FilterDocument | None = Field(default=None, examples=[EXAMPLE])


StatusName = Annotated[SubscriptionStatus, Field(strict=False)]
# This exceeds the number of different values, because a caller may repeat a value.
_MAX_STATUSES = 100


class NewExport(MemberChoice):
    kind: Annotated[ExportKind, Field(strict=False)]
    status: Annotated[list[StatusName], Field(min_length=1), AtMost(_MAX_STATUSES)] | None = Field(
        default=None,
        description="Only members with one of these; of kind members alone. Without it: active "
        "ones or those that the filter names; without a filter all but removed ones",
        examples=[["active", "pending"]],
    )
    format: Annotated[ExportFormat, Field(strict=False)] = Field(
        default=ExportFormat.CSV, description="csv, or jsonl: one JSON object a line"
    )
    bom: bool = Field(
        default=False,
        description="Whether the file begins with a byte-order mark, so that Excel reads it as "
        "UTF-8; only for a CSV file of kind members",
    )


class NewBulkAction(MemberChoice):
    action: Annotated[BulkActionKind, Field(strict=False)] = Field(
        description="tag and untag: value is the name of a tag. set_type: value is free, silver or "
        "gold; an end that has passed goes. remove, email_off: without a value",
        examples=["tag"],
    )
    value: str | None = Field(default=None, examples=["vip"])


class BulkPreview(Schema):
    matched: int = Field(description="How many members it is about", examples=[1204])
    is_exact: bool = Field(
        description="Otherwise at least that many; to count all would take too long",
        examples=[True],
    )
