"""The request and response bodies of the API endpoints for webhook endpoints."""

from typing import Annotated, Self

from pydantic import AfterValidator, Field

from api.schemas.envelope import AtMost, Body, ChangesBody, Moment, Schema, Timestamp
from core import ids
from integrations.receivers.destinations import MAX_URL_CHARACTERS
from models import DeliveryStatus, EndpointState, WebhookDelivery
from services.feed.catalogue import FeedEventType

# Strict mode is off for ``FeedEventType``, because strict mode accepts only enum members, and JSON
# contains texts.
EventTypeName = Annotated[FeedEventType, Field(strict=False)]


def _refuse_ended(state: EndpointState) -> EndpointState:
    if state is EndpointState.ENDED:
        raise ValueError("must be active or paused; to end an endpoint, use DELETE")
    return state


StateName = Annotated[EndpointState, Field(strict=False), AfterValidator(_refuse_ended)]

Url = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MAX_URL_CHARACTERS,
        description="https URL of a server with a public address",
        examples=["https://example.com/hooks/pressroom"],
    ),
]
Types = Annotated[
    list[EventTypeName],
    Field(
        min_length=1,
        description="Types of events to send. The credential needs the scope of each type.",
        examples=[["subscription.created", "subscription.left"]],
    ),
    AtMost(100),
]


class NewWebhookEndpoint(Body):
    url: Url
    types: Types
    list_id: int | None = Field(
        default=None,
        ge=0,
        le=ids.MAX_ID,
        description="Id of a list. The endpoint receives only events of this list. null for "
        "all events.",
        examples=[4711],
    )


class WebhookEndpointChange(ChangesBody):
    """The changes of an endpoint. A field that is absent or null doesn't change."""

    url: Url | None = None
    types: Types | None = None
    state: StateName | None = Field(
        default=None,
        description="active or paused. A resumed endpoint receives the events that it missed.",
        examples=["active"],
    )


class ReplaySince(Body):
    since: Moment = Field(
        description="Time of the earliest event to send again. Events are available for 30 days.",
        examples=["2026-11-20T00:00:00Z"],
    )


class WebhookEndpointRecord(Schema):
    id: int
    url: str = Field(examples=["https://example.com/hooks/pressroom"])
    key_id: int | None = Field(
        description="Id of the API key that created the endpoint or last set its URL. The "
        "endpoint is deleted with the key. null if a session did."
    )
    types: list[str] = Field(examples=[["subscription.created", "subscription.left"]])
    list_id: int | None = Field(
        description="Id of the list whose events are sent. null for all events, including "
        "events without a list."
    )
    state: EndpointState
    reason: str | None = Field(
        description="Reason why the endpoint is not active",
        examples=["Deliveries failed for three days."],
    )
    failing_since: Timestamp | None = Field(
        description="Time since when all attempts have failed. The endpoint is paused after "
        "three days of failures."
    )
    rests_until: Timestamp | None = Field(
        description="Time until which deliveries are suspended because the server didn't "
        "respond. null or a past time if deliveries are not suspended."
    )
    created_at: Timestamp


class CreatedWebhookEndpoint(WebhookEndpointRecord):
    secret: str = Field(
        description="Secret that signs the deliveries, shown only once", examples=["whsec_…"]
    )


class RotatedSecret(Schema):
    secret: str = Field(
        description="New secret, shown only once. The previous secret also signs for 24 hours.",
        examples=["whsec_…"],
    )


class WebhookDeliveryRecord(Schema):
    id: int
    event_id: int | None = Field(description="Id of the event, or null for a test event")
    event_type: str = Field(examples=["subscription.created"])
    status: DeliveryStatus
    attempts: int
    created_at: Timestamp
    last_attempt_at: Timestamp | None
    next_attempt_at: Timestamp | None = Field(
        description="Time of the next attempt, or null if there are no more attempts"
    )
    delivered_at: Timestamp | None
    status_code: int | None = Field(
        description="HTTP status of the last response, or null if there was no response",
        examples=[200],
    )
    milliseconds: int | None = Field(
        description="Duration of the last attempt in milliseconds", examples=[84]
    )
    answer: str | None = Field(
        description="The first 4 KB of the last response, decoded as UTF-8", examples=["ok"]
    )
    error: str | None = Field(
        description="Reason why there was no response",
        examples=["The connection failed: the server refused the connection."],
    )

    @classmethod
    def of(cls, row: WebhookDelivery) -> Self:
        is_pending = row.status == DeliveryStatus.PENDING
        return cls.of_row(
            row,
            next_attempt_at=row.due_at if is_pending else None,
            answer=None if row.answer is None else row.answer.decode(errors="replace"),
        )


class DeliveriesPagination(Schema):
    limit: int
    next_cursor: str | None = Field(description="Cursor of the next page, or null on the last page")


class WebhookDeliveriesPage(Schema):
    pagination: DeliveriesPagination
    items: list[WebhookDeliveryRecord]
