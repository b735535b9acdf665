"""The request and response bodies of the API endpoints for webhook endpoints."""

from typing import Annotated, Self

from pydantic import AfterValidator, Field

from api.schemas.envelope import AtMost, Body, Moment, Schema, Timestamp
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
        description="https, to a server with a public address",
        examples=["https://example.com/hooks/pressroom"],
    ),
]
Types = Annotated[
    list[EventTypeName],
    Field(
        min_length=1,
        description="Of the events that are sent; the credential needs the scope of each",
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
        description="Events of this list alone; null: all",
        examples=[4711],
    )


class WebhookEndpointChange(Body):
    """The changes of an endpoint. A field that is absent or null stays as it is."""

    url: Url | None = None
    types: Types | None = None
    state: StateName | None = Field(
        default=None,
        description="active or paused; an endpoint that is active again gets what it missed",
        examples=["active"],
    )


class ReplaySince(Body):
    since: Moment = Field(
        description="All events that happened since then and are kept",
        examples=["2026-11-20T00:00:00Z"],
    )


class WebhookEndpointRecord(Schema):
    id: int
    url: str = Field(examples=["https://example.com/hooks/pressroom"])
    key_id: int | None = Field(
        description="The API key that made it or gave it its URL, with which it ends; null: none"
    )
    types: list[str] = Field(examples=[["subscription.created", "subscription.left"]])
    list_id: int | None = Field(description="null: the events of all lists, and those of none")
    state: EndpointState
    reason: str | None = Field(
        description="Why it is not active", examples=["Deliveries failed for three days."]
    )
    failing_since: Timestamp | None = Field(
        description="Since when no try succeeded; an endpoint that fails for three days is paused"
    )
    rests_until: Timestamp | None = Field(
        description="Until when nothing is sent, since calls got no answer; null or past: it sends"
    )
    created_at: Timestamp


class CreatedWebhookEndpoint(WebhookEndpointRecord):
    secret: str = Field(description="Signs what is sent; shown this once", examples=["whsec_…"])


class RotatedSecret(Schema):
    secret: str = Field(
        description="Signs from now on, beside the former one for 24 hours; shown this once",
        examples=["whsec_…"],
    )


class WebhookDeliveryRecord(Schema):
    id: int
    event_id: int | None = Field(description="null: a test event")
    event_type: str = Field(examples=["subscription.created"])
    status: DeliveryStatus
    attempts: int
    created_at: Timestamp
    last_attempt_at: Timestamp | None
    next_attempt_at: Timestamp | None = Field(description="null: it is tried no more")
    delivered_at: Timestamp | None
    status_code: int | None = Field(
        description="Of the last answer; null: there was none", examples=[200]
    )
    milliseconds: int | None = Field(description="How long the last try took", examples=[84])
    answer: str | None = Field(
        description="The first 4 KB of the last answer, as UTF-8", examples=["ok"]
    )
    error: str | None = Field(
        description="Why there was no answer", examples=["The connection failed: ConnectError."]
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
    next_cursor: str | None = Field(description="For the next page; null: this is the last one")


class WebhookDeliveriesPage(Schema):
    pagination: DeliveriesPagination
    items: list[WebhookDeliveryRecord]
