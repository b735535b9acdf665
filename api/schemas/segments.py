"""The request and response bodies of the API endpoints for segments, exports and bulk actions."""

from datetime import date
from typing import Annotated, Any, Literal, Self

from pydantic import Field, WithJsonSchema

from api.schemas.envelope import AtMost, Body, ChangesBody, Schema, Timestamp
from core.ids import MAX_ID
from models import (
    BulkActionKind,
    MemberChange,
    PauseReason,
    SegmentWatch,
    SubscriptionStatus,
)
from services.paging import UNPAGED
from services.subscriptions.export_sheets import ExportFormat, ExportKind
from services.subscriptions.exports import MAX_MAILING_LABEL_CHARACTERS
from services.subscriptions.filters.grammar import (
    MAX_CONDITIONS,
    MAX_DEPTH,
    MAX_VALUES_PER_CONDITION,
    MAX_VALUES_PER_FILTER,
)
from services.subscriptions.filters.names import (
    COMMON_NAMES,
    DAYS_AGO,
    MAX_ANNIVERSARY_DAYS,
    MAX_DAYS_AGO,
    Operator,
)
from services.subscriptions.segments import MAX_SEGMENT_NAME_CHARACTERS
from services.subscriptions.watches.watches import DEFAULT_TIME_ZONE

_NAME_DESCRIPTION = (
    f"1 to {MAX_SEGMENT_NAME_CHARACTERS} characters, unique within the list regardless of case"
)
# The maximum number of statuses in a request exceeds the number of different statuses, because a
# caller may repeat a status.
_MAX_STATUSES = 100
_FILTER_EXAMPLE = {
    "all": [
        {"field": "tag", "is": "vip"},
        {"field": "joined_at", "at_least": "2026-01-01"},
        {"not": {"field": "fields.city", "is": "Berlin"}},
    ]
}
_FILTER_SCHEMA = {"$ref": "#/components/schemas/MemberFilter"}
_PARTS_SCHEMA = {
    "type": "array",
    "items": _FILTER_SCHEMA,
    "minItems": 1,
    "maxItems": MAX_CONDITIONS,
}
_DAYS_AGO_SCHEMA = {
    "type": "object",
    "description": "A day in UTC, counted back from the day on which the filter is used. Negative "
    "numbers are days in the future",
    "properties": {
        DAYS_AGO: {"type": "integer", "minimum": -MAX_DAYS_AGO, "maximum": MAX_DAYS_AGO}
    },
    "required": [DAYS_AGO],
    "maxProperties": 1,
    "examples": [{DAYS_AGO: 90}],
}
_WORD_SCHEMAS = [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]
_VALUE_SCHEMA = {"anyOf": _WORD_SCHEMAS}
_SINGLE_VALUE_SCHEMA = {"anyOf": [*_WORD_SCHEMAS, _DAYS_AGO_SCHEMA]}
_MOMENT_SCHEMA = {
    "anyOf": [{"type": "string"}, _DAYS_AGO_SCHEMA],
    "description": "A day in UTC (2026-11-21) or a time",
}
_BOUND_SCHEMA = {
    "anyOf": [{"type": "string"}, {"type": "number"}, _DAYS_AGO_SCHEMA],
    "description": "A number, a day in UTC (2026-11-21) or a time",
}
_OPERAND_SCHEMAS: dict[Operator, dict[str, Any]] = {
    Operator.IS: _SINGLE_VALUE_SCHEMA,
    Operator.IS_NOT: {
        **_SINGLE_VALUE_SCHEMA,
        "description": "Matches members with a different value and members without a value",
    },
    Operator.IN: {
        "type": "array",
        "items": _VALUE_SCHEMA,
        "minItems": 1,
        "maxItems": MAX_VALUES_PER_CONDITION,
    },
    Operator.CONTAINS: {"type": "string"},
    Operator.BEGINS: {"type": "string"},
    Operator.BEFORE: _MOMENT_SCHEMA,
    Operator.AFTER: _MOMENT_SCHEMA,
    Operator.NOT_BEFORE: _BOUND_SCHEMA,
    Operator.NOT_AFTER: _BOUND_SCHEMA,
    Operator.ANNIVERSARY: {
        "type": "integer",
        "minimum": -MAX_ANNIVERSARY_DAYS,
        "maximum": MAX_ANNIVERSARY_DAYS,
        "description": "Matches the month and day of the date in every later year: 0 on the day "
        "itself, 7 a week before, -1 the day after",
    },
    Operator.EXISTS: {"type": "boolean", "description": "Whether the member has any value"},
}


def _describe_object(description: str, **properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "description": description,
        "properties": properties,
        "required": list(properties),
        "maxProperties": len(properties),
    }


def _describe_condition() -> dict[str, Any]:
    names = ", ".join(each.name for each in COMMON_NAMES)
    field = {
        "type": "string",
        "description": f"{names}, or 'fields.' followed by the key of a field",
        "examples": ["fields.city"],
    }
    operands = {operator.value: operand for operator, operand in _OPERAND_SCHEMAS.items()}
    description = _describe_object("A field with one operator that the field supports", field=field)
    return {
        **description,
        "properties": {**description["properties"], **operands},
        "minProperties": 2,
        "maxProperties": 2,
        "examples": [{"field": "fields.city", "is": "Berlin"}],
    }


# The JSON Schemas of filters, by their names in the OpenAPI document. Pydantic doesn't validate
# filters, because the service's own errors contain the place of the error in the filter.
FILTER_SCHEMAS: dict[str, dict[str, Any]] = {
    "MemberFilter": {
        "description": f"A filter that selects members. At most {MAX_DEPTH} levels deep, with at "
        f"most {MAX_CONDITIONS} conditions and {MAX_VALUES_PER_FILTER} values. Selects only active "
        "members unless a condition names `status`, `left_reason` or a mailing.",
        "anyOf": [
            {"$ref": f"#/components/schemas/{name}"}
            for name in ("FilterOfAll", "FilterOfAny", "FilterOfOthers", "FilterCondition")
        ],
        "examples": [_FILTER_EXAMPLE],
    },
    "FilterOfAll": {
        **_describe_object("Matches members for whom all parts are true", all=_PARTS_SCHEMA),
        "examples": [_FILTER_EXAMPLE],
    },
    "FilterOfAny": {
        **_describe_object("Matches members for whom at least one part is true", any=_PARTS_SCHEMA),
        "examples": [{"any": [{"field": "type", "is": "gold"}, {"field": "tag", "is": "vip"}]}],
    },
    "FilterOfOthers": {
        **_describe_object("Matches members for whom the part is false", **{"not": _FILTER_SCHEMA}),
        "examples": [{"not": {"field": "tag", "is": "vip"}}],
    },
    "FilterCondition": _describe_condition(),
}

# A filter in a request body. The OpenAPI document replaces the title ``MemberFilter`` with a
# reference to the schema of the same name.
FilterDocument = Annotated[Any, WithJsonSchema({"type": "object", "title": "MemberFilter"})]


class MemberSearch(Body):
    filter: FilterDocument
    status: SubscriptionStatus | None = Field(
        default=None,
        strict=False,
        description="Return only members with this status instead of active members.",
    )
    limit: int = Field(
        default=50, ge=1, le=UNPAGED.limit, description="Maximum number of members to return"
    )
    cursor: str | None = Field(
        default=None, description="The next_cursor of the previous page", examples=[None]
    )


class WatchChanges(ChangesBody):
    time_zone: str = Field(
        default=DEFAULT_TIME_ZONE,
        description="IANA name of the time zone in which the segment's day begins. `UTC` for a new "
        "watch.",
        examples=["Europe/Berlin"],
    )
    hour: int = Field(
        default=0,
        ge=0,
        le=23,
        description="Local hour at which the segment's day begins. 0 for a new watch.",
    )
    imports: bool = Field(
        default=False,
        description="Whether members who enter by an import cause events. false for a new watch.",
    )


class WatchRecord(Schema):
    time_zone: str = Field(examples=["Europe/Berlin"])
    hour: int = Field(examples=[7])
    imports: bool = Field(examples=[False])
    state: Literal["working", "paused"]
    reason: PauseReason | None = Field(
        description="Why the watch is paused, or null if it works", examples=[None]
    )
    members: int = Field(description="Number of members in the segment", examples=[1204])
    compared_at: Timestamp | None = Field(
        description="Time of the last comparison, or null before the first one"
    )

    @classmethod
    def of_watch(cls, watch: SegmentWatch) -> Self:
        state = "working" if watch.pause_reason is None else "paused"
        return cls.of_row(watch, state=state, reason=watch.pause_reason)


class SegmentRecord(Schema):
    id: int
    list_id: int
    name: str = Field(examples=["Readers in Rome"])
    filter: FilterDocument | None = Field(description="null if your role may not see members")
    watch: WatchRecord | None = Field(description="null if the segment isn't watched")
    created_at: Timestamp
    updated_at: Timestamp


class CountedSegment(SegmentRecord):
    count: int = Field(description="Current number of matching members", examples=[1204])
    count_is_exact: bool = Field(
        description="Whether count is exact. If counting took too long, count is a lower bound.",
        examples=[True],
    )


class NewSegment(Body):
    name: str = Field(description=_NAME_DESCRIPTION, examples=["Readers in Rome"])
    filter: FilterDocument


class SegmentChanges(ChangesBody):
    name: str = Field(default="", description=_NAME_DESCRIPTION, examples=["Readers in Rome"])
    filter: FilterDocument = Field(default=None, examples=[_FILTER_EXAMPLE])
    watch: WatchChanges | None = Field(
        default=None,
        description="Watches the segment, or changes how it is watched. Omitted settings don't "
        "change. null stops the watch and deletes the recorded members.",
        examples=[{"time_zone": "Europe/Berlin", "hour": 7}],
    )


class SegmentChangeRecord(Schema):
    """A member's entry into a watched segment, or exit from it."""

    id: int
    change: MemberChange
    user_id: int
    entry: int = Field(description="How many times the member has entered the segment")
    day: date = Field(
        description="Day of the segment, which begins at the hour of its watch",
        examples=["2026-11-20"],
    )
    at: Timestamp
    email: str | None = Field(
        description="Current address of the member on the list, or null after the person is erased"
    )
    name: str | None = Field(
        description="Current name of the member on the list, or null after the person is erased"
    )


class MemberChoice(Body):
    """The selected members, either of a segment or of a filter."""

    segment_id: int | None = Field(
        default=None,
        ge=0,
        le=MAX_ID,
        description="Id of a segment of the list. Can't be combined with a filter.",
        examples=[None],
    )
    filter: FilterDocument | None = Field(default=None, examples=[_FILTER_EXAMPLE])


StatusName = Annotated[SubscriptionStatus, Field(strict=False)]


class NewExport(MemberChoice):
    kind: Annotated[ExportKind, Field(strict=False)]
    status: Annotated[list[StatusName], Field(min_length=1), AtMost(_MAX_STATUSES)] | None = Field(
        default=None,
        description="Statuses to export, only for kind members. By default, a filter without "
        "a status selects active members, and an export without a filter contains all "
        "statuses except removed.",
        examples=[["active", "pending"]],
    )
    format: Annotated[ExportFormat, Field(strict=False)] = Field(
        default=ExportFormat.CSV, description="csv, or jsonl with one JSON object per line"
    )
    bom: bool = Field(
        default=False,
        description="Whether the file begins with a byte-order mark, so that Excel reads "
        "UTF-8. Only for CSV exports of the kind `members`.",
    )
    label: str | None = Field(
        default=None,
        max_length=MAX_MAILING_LABEL_CHARACTERS,
        description="Label of the mailing. Only for exports of the kind `delivery`.",
        examples=["Tea in November"],
    )


class NewBulkAction(MemberChoice):
    action: Annotated[BulkActionKind, Field(strict=False)] = Field(
        description="Action to apply. tag and untag need the name of a tag in value. set_type "
        "needs free, silver or gold in value and removes an expired paid_expiry. "
        "remove and email_off need no value.",
        examples=["tag"],
    )
    value: str | None = Field(default=None, examples=["vip"])


class BulkPreview(Schema):
    matched: int = Field(description="Number of matching members", examples=[1204])
    is_exact: bool = Field(
        description="Whether matched is exact. If counting took too long, matched is a lower "
        "bound.",
        examples=[True],
    )
