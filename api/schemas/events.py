"""The response bodies of the API endpoint for an owner's events."""

from typing import Any

from pydantic import ConfigDict, Field

from api.schemas.envelope import Schema, Timestamp
from services.feed.catalogue import CATALOGUE, FeedEventType, SubjectKind
from services.feed.event_data import MemberFacts

EVENT_EXAMPLE: dict[str, Any] = {
    "id": 48213,
    "type": FeedEventType.SUBSCRIPTION_CREATED,
    "occurred_at": "2026-09-21T14:13:20.000000Z",
    "list_id": 4711,
    "subject": {"kind": SubjectKind.SUBSCRIPTION, "id": 90125},
    "data": MemberFacts.example(),
}
_TYPE_MEANINGS = "\n".join(f"- `{kind}`: {entry.meaning}" for kind, entry in CATALOGUE.items())


class FeedSubject(Schema):
    kind: SubjectKind
    id: int


class FeedEventRecord(Schema):
    model_config = ConfigDict(json_schema_extra={"examples": [EVENT_EXAMPLE]})

    id: int = Field(description="Id of the event. A repeated delivery of an event has the same id.")
    type: FeedEventType = Field(description=_TYPE_MEANINGS)
    occurred_at: Timestamp
    list_id: int | None = Field(
        description="Id of the list, or null if the event isn't about a list"
    )
    subject: FeedSubject | None = Field(description="The record that the event is about")
    data: dict[str, Any] = Field(
        description="Data of the event, which depends on its type. Personal data is null "
        "after the person is erased."
    )


class FeedPagination(Schema):
    limit: int
    next_cursor: str = Field(
        description="Cursor of the next page. Present even after an empty page.",
        examples=["73315-48213"],
    )
    has_more: bool = Field(description="Whether the next page already contains events")


class FeedEventsPage(Schema):
    pagination: FeedPagination
    items: list[FeedEventRecord]
