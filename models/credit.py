"""The ledger of credits. It is append-only: the database refuses to change or delete an entry."""

from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, Numeric, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from core.money import minor_digits
from models.declarative import CreatedAt, Model, RandomId, SerialId, UpdatedAt, known

Amount = Numeric(15, 4)


class CreditAction(StrEnum):
    TOPUP = "topup"
    CONSUME = "consume"
    CONSUME_REVERSAL = "consume_reversal"
    TOPUP_REFUND = "topup_refund"
    GRANT = "grant"
    ADJUST = "adjust"
    DEBT_PAYMENT = "debt_payment"


class CreditAccount(Model):
    """A user's balance. It changes only with an entry, in the same database function."""

    __tablename__ = "credit_accounts"
    __table_args__ = (
        CheckConstraint("balance >= 0", name="never_negative"),
        CheckConstraint("debt >= 0", name="debt_never_negative"),
        CheckConstraint("octet_length(last_hash) = 32", name="hash_length"),
    )

    id: Mapped[SerialId]
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), unique=True)
    balance: Mapped[Decimal] = mapped_column(Amount, server_default=text("0"))
    # Refunded credits that had been spent already; the next topup pays this debt.
    debt: Mapped[Decimal] = mapped_column(Amount, server_default=text("0"))
    # The owner's feed tells of a balance that falls below this, and whether it has told so since
    # credits came in: a charge and its reversal, again and again, are one telling.
    low_below: Mapped[Decimal] = mapped_column(Amount, server_default=text("100"))
    low_told: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    status: Mapped[str] = mapped_column(server_default="active")
    # `seq` and hash of the last entry.
    last_seq: Mapped[int] = mapped_column(server_default=text("0"))
    last_hash: Mapped[bytes]
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[UpdatedAt]


class CreditEntry(Model):
    __tablename__ = "credit_entries"
    __table_args__ = (
        UniqueConstraint("user_id", "seq"),
        CheckConstraint("seq > 0", name="seq_positive"),
        CheckConstraint("amount > 0", name="amount_positive"),
        CheckConstraint("abs(delta) = amount OR delta = 0", name="delta_is_signed_amount"),
        CheckConstraint("balance_after >= 0", name="never_negative"),
        known("action", CreditAction),
        Index(
            "uq_credit_entries_topup_order_id",
            "order_id",
            unique=True,
            postgresql_where="action = 'topup'",
        ),
        # Deleting an order looks here, and verifying one.
        Index(None, "order_id", postgresql_where="order_id IS NOT NULL"),
    )

    id: Mapped[SerialId]
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    # Counts each account's entries from 1, without gaps.
    seq: Mapped[int]
    order_id: Mapped[int | None] = mapped_column(ForeignKey("payment_orders.id"))
    action: Mapped[str]
    amount: Mapped[Decimal] = mapped_column(Amount)
    delta: Mapped[Decimal] = mapped_column(Amount)
    balance_after: Mapped[Decimal] = mapped_column(Amount)
    rate_usd_to_credit: Mapped[Decimal | None] = mapped_column(Amount)
    currency: Mapped[str | None]
    source_type: Mapped[str]
    source_id: Mapped[str]
    meta: Mapped[dict[str, Any] | None]
    # SHA-256 of the previous entry's hash and this entry's content (services.credits.verify).
    hash: Mapped[bytes]
    created_at: Mapped[CreatedAt]


class OpenCharge(Model):
    """A charge of ours that is reversed unless the provider answers.

    The process that deletes the row decides, so a charge is settled or reversed once.
    """

    __tablename__ = "open_charges"

    entry_id: Mapped[int] = mapped_column(
        ForeignKey("credit_entries.id"), primary_key=True, autoincrement=False
    )
    # Names the call: an equal one costs nothing for a day once this one is settled.
    call: Mapped[str]
    # The work that the call asks for. Equal calls share one run of it, which takes one charge.
    work: Mapped[str] = mapped_column(index=True)
    # The worker that asks the provider for it. NULL: nobody has been asked.
    taken_by: Mapped[str | None]
    # From then on the charge is nobody's any more, and maintenance reverses it.
    deadline: Mapped[datetime] = mapped_column(index=True)


class CreditCheckpoint(Model):
    """Up to where an account's entries were verified: the entry's number and hash, and the sums.

    The signature covers all of that (`services.credits.verify`).
    """

    __tablename__ = "credit_checkpoints"

    user_id: Mapped[int] = mapped_column(
        ForeignKey("users.id"), primary_key=True, autoincrement=False
    )
    seq: Mapped[int]
    hash: Mapped[bytes]
    balance: Mapped[Decimal] = mapped_column(Amount)
    debt: Mapped[Decimal] = mapped_column(Amount)
    # A fault was found in the account since then, so it is read whole.
    is_suspect: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    signature: Mapped[str]


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
        Index(None, "channel", "session_id"),
        Index(None, "channel", "payment_id"),
        Index(None, "status", "created_at"),
        Index(None, "next_check_at", postgresql_where="next_check_at IS NOT NULL"),
        # Finds the orders that may be purged one day, oldest first.
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

    # The state of the ledger so far; changed in the transaction of the entries.
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
    """A change of an order's status, written by a trigger in the same transaction."""

    __tablename__ = "payment_order_changes"
    __table_args__ = (Index(None, "order_id", "id"),)

    id: Mapped[SerialId]
    order_id: Mapped[int] = mapped_column(ForeignKey("payment_orders.id"))
    # NULL: the order was made.
    from_status: Mapped[str | None]
    to_status: Mapped[str]
    via: Mapped[str]
    created_at: Mapped[CreatedAt]


class PaymentOrderCheckpoint(Model):
    """The last change of an order's status up to which `pressroom credits verify` found no fault.

    The table has one row, signed (`services.credits.verify`).
    """

    __tablename__ = "payment_order_checkpoints"

    change_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    signature: Mapped[str]


class PaymentEvent(Model):
    """The facts in a provider's webhook event, stored in the transaction of their effect.

    The event itself is not stored: it names the payer.
    """

    __tablename__ = "payment_events"
    __table_args__ = (UniqueConstraint("channel", "event_id"), Index(None, "order_id"))

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
