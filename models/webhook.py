"""Webhooks: where an owner wants events sent, by which secrets, and what became of each event."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, func, text
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import CreatedAt, Model, SerialId, known


class EndpointState(StrEnum):
    ACTIVE = "active"
    # It failed for days, its key expired, or its owner paused it, and says when it goes on.
    PAUSED = "paused"
    # Its receiver answered 410, its account was recovered, or its key revoked. It stays ended.
    ENDED = "ended"


class DeliveryStatus(StrEnum):
    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"


class WebhookEndpoint(Model):
    """A URL that gets its owner's events.

    Events after its position are no rows yet: an endpoint that falls behind costs no more than its
    unfinished deliveries.
    """

    __tablename__ = "webhook_endpoints"
    __table_args__ = (
        known("state", EndpointState),
        CheckConstraint("char_length(url) <= 2000", name="url_bounded"),
        CheckConstraint("cardinality(types) > 0", name="has_types"),
        Index("ix_webhook_endpoints_user_id_id", "user_id", text("id DESC")),
        Index(None, "key_id", postgresql_where="key_id IS NOT NULL"),
        # The search for work reads this each second.
        Index("ix_webhook_endpoints_active", "id", postgresql_where="state = 'active'"),
        Index(None, "deleted_at", postgresql_where="deleted_at IS NOT NULL"),
    )

    id: Mapped[SerialId]
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    # The API key that made it, or gave it its URL: it ends with that key. NULL: a session did, or
    # its owner keeps it.
    key_id: Mapped[int | None] = mapped_column(ForeignKey("api_keys.id", ondelete="SET NULL"))
    url: Mapped[str]
    types: Mapped[list[str]]
    list_id: Mapped[int | None] = mapped_column(ForeignKey("lists.id"))
    state: Mapped[str] = mapped_column(default=EndpointState.ACTIVE, server_default="active")
    # Why it is not active, in words for its owner.
    reason: Mapped[str | None]
    # After which event of the feed it goes on.
    place: Mapped[int]
    event_id: Mapped[int]
    # The types that it got later, each with the position after which its events are sent.
    starts: Mapped[dict[str, Any]] = mapped_column(default=dict, server_default=text("'{}'"))
    # When there is something to do beside new events.
    due_at: Mapped[datetime | None]
    # New events wait: for the oldest delivery, or since there are as many as there may be.
    is_held: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    # The first try that failed since the last success; NULL too once what failed is tried no more.
    failing_since: Mapped[datetime | None]
    # How many calls in a row were kept waiting for an answer and got none, and until when nothing
    # is sent because of them.
    silences: Mapped[int] = mapped_column(default=0, server_default="0")
    rests_until: Mapped[datetime | None]
    # The job that works its deliveries off, now or the last time.
    job_id: Mapped[int | None]
    created_at: Mapped[CreatedAt]
    # Its owner deleted it; its deliveries end with their time.
    deleted_at: Mapped[datetime | None]


class WebhookSecret(Model):
    """A secret that signs for an endpoint, encrypted under one of the encryption keys."""

    __tablename__ = "webhook_secrets"

    id: Mapped[SerialId]
    endpoint_id: Mapped[int] = mapped_column(
        ForeignKey("webhook_endpoints.id", ondelete="CASCADE"), index=True
    )
    # The secret was wrapped for this: random, since the endpoint's id is not known then.
    context: Mapped[str] = mapped_column(unique=True)
    wrapped_key: Mapped[bytes]
    wrapped_by: Mapped[str]
    created_at: Mapped[CreatedAt]
    # NULL: it is the endpoint's newest one.
    expires_at: Mapped[datetime | None] = mapped_column(index=True)


class WebhookDelivery(Model):
    """An event for one endpoint, the time when it is due, and the answer to the last try."""

    __tablename__ = "webhook_deliveries"
    __table_args__ = (
        known("status", DeliveryStatus),
        CheckConstraint("octet_length(answer) <= 4096", name="answer_bounded"),
        Index("uq_webhook_deliveries_endpoint_id_event_id", "endpoint_id", "event_id", unique=True),
        Index("ix_webhook_deliveries_endpoint_id_id", "endpoint_id", text("id DESC")),
        Index(
            "ix_webhook_deliveries_pending",
            "endpoint_id",
            "id",
            postgresql_where="status = 'pending'",
        ),
        # The erasure of this person blanks the answer.
        Index(None, "person_id", postgresql_where="answer IS NOT NULL"),
    )

    id: Mapped[SerialId]
    endpoint_id: Mapped[int] = mapped_column(ForeignKey("webhook_endpoints.id", ondelete="CASCADE"))
    # NULL: a test event, which is in no feed.
    event_id: Mapped[int | None]
    # The event's, by which those that were queued together are in order.
    place: Mapped[int | None]
    event_type: Mapped[str]
    # The member whom the event is about, if any: an answer may repeat what the event said.
    person_id: Mapped[int | None]
    status: Mapped[str] = mapped_column(default=DeliveryStatus.PENDING, server_default="pending")
    # All tries ever, and those since it was queued, by an event or by its owner.
    attempts: Mapped[int] = mapped_column(default=0, server_default="0")
    round_attempts: Mapped[int] = mapped_column(default=0, server_default="0")
    queued_at: Mapped[datetime] = mapped_column(server_default=func.now())
    due_at: Mapped[datetime] = mapped_column(server_default=func.now())
    last_attempt_at: Mapped[datetime | None]
    delivered_at: Mapped[datetime | None]
    # The answer to the last attempt, or why there was none.
    status_code: Mapped[int | None]
    milliseconds: Mapped[int | None]
    answer: Mapped[bytes | None]
    error: Mapped[str | None]
    created_at: Mapped[CreatedAt] = mapped_column(index=True)
