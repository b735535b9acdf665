"""Orders of credits, the events of payment providers, and the allowed changes of status."""

from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from core.money import minor_digits
from models.credit import Amount
from models.declarative import CreatedAt, Model, RandomId, SerialId, UpdatedAt, known


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
    """How an operator settled an order in review."""

    CREDIT = "credit"
    REFUNDED = "refunded"


class OrderVia(StrEnum):
    """Where the facts came from that changed an order."""

    REQUEST = "request"
    JOB = "job"
    WEBHOOK = "webhook"
    RETURN = "return"
    POLL = "poll"
    CLAIM = "claim"
    OPERATOR = "operator"


class PaymentOrder(Model):
    """An order of credits: its terms, and the facts known about its payment.

    A trigger allows only the transitions in ``payment_order_transitions``, refuses changes of the
    terms and lets facts only grow. Another trigger writes ``payment_order_changes``.
    """

    __tablename__ = "payment_orders"
    __table_args__ = (
        known("status", OrderStatus),
        CheckConstraint("amount > 0 AND amount_minor > 0", name="amount_positive"),
        CheckConstraint("credit_amount > 0", name="credit_amount_positive"),
        CheckConstraint("credits_per_usd > 0 AND units_per_usd > 0", name="rates_positive"),
        CheckConstraint("refunded_minor >= 0", name="refunded_not_negative"),
        CheckConstraint("refunds_failed_minor >= 0", name="refunds_failed_not_negative"),
        known("dispute", ("open", "won", "lost")),
        known("resolution", Resolution),
        CheckConstraint("credited IN (0, credit_amount)", name="credited_once"),
        CheckConstraint("taken BETWEEN 0 AND credited", name="taken_of_credited"),
        CheckConstraint("octet_length(claim_token_hmac) = 32", name="hmac_length"),
        Index(
            "ix_payment_orders_user_id_created_at",
            "user_id",
            text("created_at DESC"),
            text("id DESC"),
        ),
        Index("ix_payment_orders_channel_session_id", "channel", "session_id"),
        Index("ix_payment_orders_channel_payment_id", "channel", "payment_id"),
        Index("ix_payment_orders_status_created_at", "status", "created_at"),
        Index(
            "ix_payment_orders_next_check_at",
            "next_check_at",
            postgresql_where="next_check_at IS NOT NULL",
        ),
        # Those that may be purged one day, oldest first.
        Index(
            "ix_payment_orders_abandoned",
            "created_at",
            postgresql_where="user_id IS NULL AND paid_at IS NULL AND mismatch IS NULL"
            " AND next_check_at IS NULL",
        ),
    )

    id: Mapped[RandomId]
    # The user who gets the credits; NULL until an order made without credentials is claimed.
    user_id: Mapped[int | None] = mapped_column(ForeignKey("users.id"))
    status: Mapped[str] = mapped_column(default=OrderStatus.CREATED)
    changed_via: Mapped[str] = mapped_column(default=OrderVia.REQUEST)

    # The terms of the order.
    channel: Mapped[str]
    currency: Mapped[str]
    amount: Mapped[Decimal] = mapped_column(Amount)
    amount_minor: Mapped[int]
    credit_amount: Mapped[Decimal] = mapped_column(Amount)
    credits_per_usd: Mapped[Decimal] = mapped_column(Amount)
    units_per_usd: Mapped[Decimal] = mapped_column(Amount)
    expires_at: Mapped[datetime]

    # The provider's payment page, and the URL that it returns the payer to.
    session_id: Mapped[str | None]
    payment_id: Mapped[str | None]
    payment_url: Mapped[str | None]
    redirect_url: Mapped[str | None]
    # Only the caller who ordered has the claim token itself.
    claim_token_hmac: Mapped[bytes | None] = mapped_column(unique=True)
    claimed_at: Mapped[datetime | None]

    # The facts. A fact that was true once stays true, so facts may arrive in any sequence.
    paid_at: Mapped[datetime | None]
    is_failed: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    is_expired: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    # When the provider said that nobody can pay on the order's page any more.
    closed_at: Mapped[datetime | None]
    # The sum of all refunds, and of those among them that failed: the payer did not get these.
    refunded_minor: Mapped[int] = mapped_column(default=0, server_default=text("0"))
    refunds_failed_minor: Mapped[int] = mapped_column(default=0, server_default=text("0"))
    # The sums of all disputes, of those that have ended, and of those that were lost. Two columns
    # follow from them: `dispute` is open while one is, else lost if one was lost, else won; and
    # `disputed_minor` is what is open or lost.
    disputes_minor: Mapped[int] = mapped_column(default=0, server_default=text("0"))
    disputes_ended_minor: Mapped[int] = mapped_column(default=0, server_default=text("0"))
    disputes_lost_minor: Mapped[int] = mapped_column(default=0, server_default=text("0"))
    dispute: Mapped[str | None]
    disputed_minor: Mapped[int | None]
    # Why the order needs an operator, such as how a payment differs from what was ordered.
    mismatch: Mapped[str | None]
    resolution: Mapped[str | None]
    # Why the order failed, in words for its owner.
    error: Mapped[dict[str, Any] | None]

    # What was written to the ledger so far; changed in the transaction of the entries.
    credited: Mapped[Decimal] = mapped_column(Amount, default=0, server_default=text("0"))
    taken: Mapped[Decimal] = mapped_column(Amount, default=0, server_default=text("0"))

    # When to poll the provider next; NULL when no more facts can come.
    next_check_at: Mapped[datetime | None]
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[UpdatedAt]

    @property
    def lost_minor(self) -> int:
        """The amount that the payer has back for good: refunds and lost disputes."""
        return self._back_with(self.disputes_lost_minor)

    @property
    def gone_minor(self) -> int:
        """``lost_minor``, and what open disputes hold."""
        return self._back_with(self.disputed_minor or 0)

    def _back_with(self, disputed: int) -> int:
        refunded = max(0, self.refunded_minor - self.refunds_failed_minor)
        return min(self.amount_minor, refunded + disputed)

    @property
    def refunded_amount(self) -> Decimal:
        """``lost_minor`` in the currency's own unit."""
        return Decimal(self.lost_minor).scaleb(-minor_digits(self.currency))


class PaymentOrderTransition(Model):
    """An allowed change of an order's status; a trigger refuses all others."""

    __tablename__ = "payment_order_transitions"

    from_status: Mapped[str] = mapped_column(primary_key=True)
    to_status: Mapped[str] = mapped_column(primary_key=True)


class PaymentOrderChange(Model):
    """One change of an order's status, written by a trigger in the same transaction."""

    __tablename__ = "payment_order_changes"
    __table_args__ = (Index("ix_payment_order_changes_order_id_id", "order_id", "id"),)

    id: Mapped[SerialId]
    order_id: Mapped[int] = mapped_column(ForeignKey("payment_orders.id"))
    # NULL: the order was made.
    from_status: Mapped[str | None]
    to_status: Mapped[str]
    via: Mapped[str]
    created_at: Mapped[CreatedAt]


class PaymentOrderCheckpoint(Model):
    """The last change of an order's status up to which `pressroom credits verify` found no fault.

    One row, signed (`services.money.credits.checkpoints`).
    """

    __tablename__ = "payment_order_checkpoints"

    change_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    signature: Mapped[str]


class PaymentEvent(Model):
    """The facts in a provider's webhook event, stored in the transaction of their effect.

    The event itself is not stored: it names the payer.
    """

    __tablename__ = "payment_events"
    __table_args__ = (
        UniqueConstraint("channel", "event_id"),
        Index("ix_payment_events_order_id", "order_id"),
    )

    id: Mapped[SerialId]
    channel: Mapped[str]
    # The provider's id of the event, the same for each delivery.
    event_id: Mapped[str]
    type: Mapped[str]
    order_id: Mapped[int] = mapped_column(ForeignKey("payment_orders.id"))
    facts: Mapped[dict[str, Any]]
    # When the provider created the event.
    happened_at: Mapped[datetime]
    created_at: Mapped[CreatedAt]
