"""Webhook endpoints of owners, their signing secrets, and the deliveries of events."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, func, text
from sqlalchemy.orm import Mapped, mapped_column

from core.ids import AccountId, PersonId
from models.declarative import CreatedAt, Model, SerialId, allow_values


class EndpointState(StrEnum):
    ACTIVE = "active"
    # The endpoint was paused because deliveries failed for days, because its API key expired, or
    # because the owner paused it. Only the owner can resume a paused endpoint.
    PAUSED = "paused"
    # The endpoint is permanently disabled, because the receiver answered with status 410, the
    # account was recovered, or the API key was revoked. A permanently disabled endpoint can't be
    # resumed.
    ENDED = "ended"


class DeliveryStatus(StrEnum):
    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"


class WebhookEndpoint(Model):
    """Deliveries are created only up to the endpoint's feed position, so that a slow endpoint needs
    little space.
    """

    __tablename__ = "webhook_endpoints"
    __table_args__ = (
        allow_values("state", EndpointState),
        CheckConstraint("char_length(url) <= 2000", name="url_bounded"),
        CheckConstraint("cardinality(types) > 0", name="has_types"),
        Index("ix_webhook_endpoints_user_id_id", "user_id", text("id DESC")),
        Index(None, "key_id", postgresql_where="key_id IS NOT NULL"),
        # Every second, workers use this index to find active endpoints.
        Index("ix_webhook_endpoints_active", "id", postgresql_where="state = 'active'"),
        Index(None, "deleted_at", postgresql_where="deleted_at IS NOT NULL"),
    )

    id: Mapped[SerialId]
    user_id: Mapped[AccountId] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    # The API key with which a program created the endpoint or set the endpoint's URL. If the API
    # key `key_id` is revoked, the endpoint is permanently disabled. `key_id` is NULL if a session
    # created the endpoint, or if the owner kept the endpoint when revoking the API key.
    key_id: Mapped[int | None] = mapped_column(ForeignKey("api_keys.id", ondelete="SET NULL"))
    url: Mapped[str]
    types: Mapped[list[str]]
    list_id: Mapped[int | None] = mapped_column(ForeignKey("lists.id"))
    state: Mapped[str] = mapped_column(default=EndpointState.ACTIVE, server_default="active")
    # Explains to the owner why the endpoint is paused or ended.
    reason: Mapped[str | None]
    # The feed position up to which workers have created deliveries to the endpoint.
    place: Mapped[int]
    event_id: Mapped[int]
    # Maps each event type that was added after the endpoint's creation to the feed position at
    # which its deliveries start.
    starts: Mapped[dict[str, Any]] = mapped_column(default=dict, server_default=text("'{}'"))
    # When a worker must handle the endpoint even without a new event, for example for a retry.
    due_at: Mapped[datetime | None]
    # True if new events must wait, because the oldest delivery is unfinished, or because too many
    # deliveries are unfinished.
    is_held: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    # The time of the first failed delivery attempt since the endpoint's last successful delivery.
    # `failing_since` is NULL if no delivery is failing, or if all failing deliveries were
    # abandoned.
    failing_since: Mapped[datetime | None]
    # How many requests to the endpoint timed out in a row.
    silences: Mapped[int] = mapped_column(default=0, server_default="0")
    # The time at which deliveries resume after timeouts.
    rests_until: Mapped[datetime | None]
    # When the endpoint got its state. A database trigger sets `state_since`. NULL if this happened
    # before migration 0143, or if the endpoint has always been active.
    state_since: Mapped[datetime | None]
    # When the owner last dismissed the warning that the endpoint is failing or paused.
    dismissed_at: Mapped[datetime | None]
    # The id of the latest job that sends deliveries to the endpoint.
    job_id: Mapped[int | None]
    created_at: Mapped[CreatedAt]
    # The time at which the owner deleted the endpoint. The deliveries of a deleted endpoint are
    # kept until their retention period ends.
    deleted_at: Mapped[datetime | None]


class WebhookSecret(Model):
    __tablename__ = "webhook_secrets"

    id: Mapped[SerialId]
    endpoint_id: Mapped[int] = mapped_column(
        ForeignKey("webhook_endpoints.id", ondelete="CASCADE"), index=True
    )
    # The random encryption context of the secret. The encryption context isn't the endpoint's id,
    # because the secret is encrypted before the endpoint has an id.
    context: Mapped[str] = mapped_column(unique=True)
    wrapped_key: Mapped[bytes]
    wrapped_by: Mapped[str]
    created_at: Mapped[CreatedAt]
    # When the secret expires, or NULL for the endpoint's latest secret.
    expires_at: Mapped[datetime | None] = mapped_column(index=True)


class WebhookDelivery(Model):
    __tablename__ = "webhook_deliveries"
    __table_args__ = (
        allow_values("status", DeliveryStatus),
        CheckConstraint("octet_length(answer) <= 4096", name="answer_bounded"),
        Index("uq_webhook_deliveries_endpoint_id_event_id", "endpoint_id", "event_id", unique=True),
        Index("ix_webhook_deliveries_endpoint_id_id", "endpoint_id", text("id DESC")),
        Index(
            "ix_webhook_deliveries_pending",
            "endpoint_id",
            "id",
            postgresql_where="status = 'pending'",
        ),
        # The erasure of a person uses this index to delete the stored responses to events about the
        # person.
        Index(None, "person_id", postgresql_where="answer IS NOT NULL"),
    )

    id: Mapped[SerialId]
    endpoint_id: Mapped[int] = mapped_column(ForeignKey("webhook_endpoints.id", ondelete="CASCADE"))
    # The event's id in the feed, or NULL for a test event, which isn't in the feed.
    event_id: Mapped[int | None]
    # The event's position in the feed, which determines the order of deliveries.
    place: Mapped[int | None]
    event_type: Mapped[str]
    # The id of the person who is the subject of the event. The erasure of a person deletes the
    # stored responses to events about the person, because a response may contain personal data.
    person_id: Mapped[PersonId | None]
    status: Mapped[str] = mapped_column(default=DeliveryStatus.PENDING, server_default="pending")
    # The total number of attempts to deliver the event to the endpoint.
    attempts: Mapped[int] = mapped_column(default=0, server_default="0")
    # The number of delivery attempts since the event occurred, or since the owner last retried the
    # delivery or resumed the endpoint.
    round_attempts: Mapped[int] = mapped_column(default=0, server_default="0")
    queued_at: Mapped[datetime] = mapped_column(server_default=func.now())
    due_at: Mapped[datetime] = mapped_column(server_default=func.now())
    last_attempt_at: Mapped[datetime | None]
    delivered_at: Mapped[datetime | None]
    # The receiver's response to the last delivery attempt, or the error if the receiver didn't
    # respond.
    status_code: Mapped[int | None]
    milliseconds: Mapped[int | None]
    answer: Mapped[bytes | None]
    error: Mapped[str | None]
    created_at: Mapped[CreatedAt] = mapped_column(index=True)
