"""Orders of credits, what a payment provider told about them, and which changes are allowed."""

from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from core.ids import random_id
from core.money import minor_digits
from models.credit import Amount
from models.declarative import CreatedAt, Model, SerialId, UpdatedAt


class OrderStatus(StrEnum):
    CREATED = "created"
    PENDING = "pending"
    PAID = "paid"
    PAID_UNCLAIMED = "paid_unclaimed"
    FAILED = "failed"
    EXPIRED = "expired"
    REVIEW = "review"
    DISPUTED = "disputed"
    REFUNDED = "refunded"


class Resolution(StrEnum):
    """How an operator settled what was in review."""

    CREDIT = "credit"
    REFUNDED = "refunded"


class OrderVia(StrEnum):
    """Who brought the news that changed an order."""

    REQUEST = "request"
    JOB = "job"
    WEBHOOK = "webhook"
    RETURN = "return"
    POLL = "poll"
    CLAIM = "claim"
    OPERATOR = "operator"


_STATUSES = ", ".join(f"'{status}'" for status in OrderStatus)


class PaymentOrder(Model):
    """An order: what is sold for how much, and the facts known about its payment.

    A trigger holds it to ``payment_order_transitions``, keeps its terms as they were and lets its
    facts only grow; another one writes ``payment_order_changes``.
    """

    __tablename__ = "payment_orders"
    __table_args__ = (
        CheckConstraint(f"status IN ({_STATUSES})", name="status_known"),
        CheckConstraint("amount > 0 AND amount_minor > 0", name="amount_positive"),
        CheckConstraint("credit_amount > 0", name="credit_amount_positive"),
        CheckConstraint("credits_per_usd > 0 AND units_per_usd > 0", name="rates_positive"),
        CheckConstraint("refunded_minor >= 0", name="refunded_not_negative"),
        CheckConstraint("dispute IN ('open', 'won', 'lost')", name="dispute_known"),
        CheckConstraint("resolution IN ('credit', 'refunded')", name="resolution_known"),
        CheckConstraint("credited IN (0, credit_amount)", name="credited_once"),
        CheckConstraint("taken BETWEEN 0 AND credited", name="taken_of_credited"),
        CheckConstraint("octet_length(claim_token_hmac) = 32", name="hmac_length"),
        Index("ix_payment_orders_user_id", "user_id"),
        Index("ix_payment_orders_channel_session_id", "channel", "session_id"),
        Index("ix_payment_orders_channel_payment_id", "channel", "payment_id"),
        Index("ix_payment_orders_status_created_at", "status", "created_at"),
        Index(
            "ix_payment_orders_next_check_at",
            "next_check_at",
            postgresql_where=text("next_check_at IS NOT NULL"),
        ),
    )

    # Public: an id says nothing about how many there are.
    id: Mapped[int] = mapped_column(primary_key=True, default=random_id, autoincrement=False)
    # Whose the credits will be; nobody's until an order made without credentials is claimed.
    user_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    status: Mapped[str] = mapped_column(default=OrderStatus.CREATED)
    changed_via: Mapped[str] = mapped_column(default=OrderVia.REQUEST)

    # The terms.
    channel: Mapped[str]
    currency: Mapped[str]
    amount: Mapped[Decimal] = mapped_column(Amount)
    amount_minor: Mapped[int]
    credit_amount: Mapped[Decimal] = mapped_column(Amount)
    credits_per_usd: Mapped[Decimal] = mapped_column(Amount)
    units_per_usd: Mapped[Decimal] = mapped_column(Amount)
    expires_at: Mapped[datetime]

    # The provider's page, and where it leads back to.
    session_id: Mapped[str | None]
    payment_id: Mapped[str | None]
    payment_url: Mapped[str | None]
    redirect_url: Mapped[str | None]
    # The token itself is with whoever ordered, and nowhere else.
    claim_token_hmac: Mapped[bytes | None] = mapped_column(unique=True)
    claimed_at: Mapped[datetime | None]

    # The facts: what was true once stays true, so that the order in which they come is all one.
    paid_at: Mapped[datetime | None]
    is_failed: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    is_expired: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    refunded_minor: Mapped[int] = mapped_column(default=0, server_default=text("0"))
    dispute: Mapped[str | None]
    disputed_minor: Mapped[int | None]
    # In what a payment differs from the order; the first that did.
    mismatch: Mapped[str | None]
    resolution: Mapped[str | None]
    # Why it failed, for its owner.
    error: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))

    # What the ledger was told so far, moved beside its entries.
    credited: Mapped[Decimal] = mapped_column(Amount, default=0, server_default=text("0"))
    taken: Mapped[Decimal] = mapped_column(Amount, default=0, server_default=text("0"))

    # When to ask the provider again; never where nothing more can come.
    next_check_at: Mapped[datetime | None]
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[UpdatedAt]

    @property
    def lost_minor(self) -> int:
        """What the payer has back for good: refunds, and what a lost dispute took."""
        lost = self.disputed_part if self.dispute == "lost" else 0
        return min(self.amount_minor, self.refunded_minor + lost)

    @property
    def disputed_part(self) -> int:
        return self.amount_minor if self.disputed_minor is None else self.disputed_minor

    @property
    def refunded_amount(self) -> Decimal:
        """``lost_minor`` in the currency's own unit."""
        return Decimal(self.lost_minor).scaleb(-minor_digits(self.currency))


class PaymentOrderTransition(Model):
    """A change of state that the database lets pass; it refuses all others."""

    __tablename__ = "payment_order_transitions"

    from_status: Mapped[str] = mapped_column(primary_key=True)
    to_status: Mapped[str] = mapped_column(primary_key=True)


class PaymentOrderChange(Model):
    """One change of an order's state, written by the database beside it."""

    __tablename__ = "payment_order_changes"
    __table_args__ = (Index("ix_payment_order_changes_order_id_id", "order_id", "id"),)

    id: Mapped[SerialId]
    order_id: Mapped[int] = mapped_column(ForeignKey("payment_orders.id"))
    # None: the order was made.
    from_status: Mapped[str | None]
    to_status: Mapped[str]
    via: Mapped[str]
    created_at: Mapped[CreatedAt]


class PaymentEvent(Model):
    """What a provider's webhook told of an order, kept in the transaction of its effect.

    Only the facts: the webhook itself names the payer.
    """

    __tablename__ = "payment_events"
    __table_args__ = (
        UniqueConstraint("channel", "event_id"),
        Index("ix_payment_events_order_id", "order_id"),
    )

    id: Mapped[SerialId]
    channel: Mapped[str]
    # Of the provider; the same for each delivery.
    event_id: Mapped[str]
    type: Mapped[str]
    order_id: Mapped[int] = mapped_column(ForeignKey("payment_orders.id"))
    facts: Mapped[dict[str, Any]]
    # When the provider wrote it.
    happened_at: Mapped[datetime]
    created_at: Mapped[CreatedAt]
