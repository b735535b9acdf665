"""The ledger of credits, and the orders that pay for credits.

The ledger is append-only. Database triggers refuse to change or delete an entry.
"""

from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, Numeric, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from core.money import minor_digits
from models.declarative import CreatedAt, Model, RandomId, SerialId, UpdatedAt, allow_values

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
    """A user's balance of credits.

    A single database function adds an entry to the ledger and changes the balance.
    """

    __tablename__ = "credit_accounts"
    __table_args__ = (
        CheckConstraint("balance >= 0", name="never_negative"),
        CheckConstraint("debt >= 0", name="debt_never_negative"),
        CheckConstraint("octet_length(last_hash) = 32", name="hash_length"),
    )

    id: Mapped[SerialId]
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"), unique=True)
    balance: Mapped[Decimal] = mapped_column(Amount, server_default=text("0"))
    # Refunded credits that the user had already spent. The next topup pays this debt.
    debt: Mapped[Decimal] = mapped_column(Amount, server_default=text("0"))
    # The threshold for the low balance event in the owner's feed.
    low_below: Mapped[Decimal] = mapped_column(Amount, server_default=text("100"))
    # True if the feed contains a low balance event since the last credits were added. The flag
    # prevents many events while charges are made and reversed.
    low_told: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    status: Mapped[str] = mapped_column(server_default="active")
    # The `seq` and the hash of the last entry.
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
        allow_values("action", CreditAction),
        Index(
            "uq_credit_entries_topup_order_id",
            "order_id",
            unique=True,
            postgresql_where="action = 'topup'",
        ),
        # Finds the entries of an order, when the order is deleted or verified.
        Index(None, "order_id", postgresql_where="order_id IS NOT NULL"),
    )

    id: Mapped[SerialId]
    user_id: Mapped[int] = mapped_column(ForeignKey("users.id"))
    # The number of the entry in the account, starting at 1 and without gaps.
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
    """A charge for a provider call that hasn't ended yet. A charge without a response is reversed.

    A process must delete the row before it settles or reverses the charge. No charge is therefore
    settled or reversed twice.
    """

    __tablename__ = "open_charges"

    entry_id: Mapped[int] = mapped_column(
        ForeignKey("credit_entries.id"), primary_key=True, autoincrement=False
    )
    # Identifies the call. After the charge is settled, the same call is free for a day.
    call: Mapped[str]
    # Identifies the requested work. Equal calls share one run of the work and one charge.
    work: Mapped[str] = mapped_column(index=True)
    # The worker that calls the provider. NULL before the call.
    taken_by: Mapped[str | None]
    # The time at which maintenance reverses the charge.
    deadline: Mapped[datetime] = mapped_column(index=True)


class CreditCheckpoint(Model):
    """The last verified entry of an account, with the sums up to this entry.

    The signature covers all other columns (`services.credits.verify`).
    """

    __tablename__ = "credit_checkpoints"

    user_id: Mapped[int] = mapped_column(
        ForeignKey("users.id"), primary_key=True, autoincrement=False
    )
    seq: Mapped[int]
    hash: Mapped[bytes]
    balance: Mapped[Decimal] = mapped_column(Amount)
    debt: Mapped[Decimal] = mapped_column(Amount)
    # True if a fault was found in the account. The next verification then reads all entries.
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
    """The decision of an operator about an order in review."""

    CREDIT = "credit"
    REFUNDED = "refunded"


class OrderVia(StrEnum):
    """The source of the facts that changed an order."""

    REQUEST = "request"
    JOB = "job"
    WEBHOOK = "webhook"
    RETURN = "return"
    POLL = "poll"
    CLAIM = "claim"
    OPERATOR = "operator"


class PaymentOrder(Model):
    """An order of credits, with its terms and the known facts about its payment.

    A database trigger allows only the transitions in ``payment_order_transitions``. The trigger
    refuses any change of the terms and any removal of facts. A second trigger on
    the table writes ``payment_order_changes``.
    """

    __tablename__ = "payment_orders"
    __table_args__ = (
        allow_values("status", OrderStatus),
        CheckConstraint("amount > 0 AND amount_minor > 0", name="amount_positive"),
        CheckConstraint("credit_amount > 0", name="credit_amount_positive"),
        CheckConstraint("credits_per_usd > 0 AND units_per_usd > 0", name="rates_positive"),
        CheckConstraint("refunded_minor >= 0", name="refunded_not_negative"),
        CheckConstraint("refunds_failed_minor >= 0", name="refunds_failed_not_negative"),
        allow_values("dispute", ("open", "won", "lost")),
        allow_values("resolution", Resolution),
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
        # Finds abandoned orders, which maintenance deletes, starting with the oldest order.
        Index(
            "ix_payment_orders_abandoned",
            "created_at",
            postgresql_where="user_id IS NULL AND paid_at IS NULL AND mismatch IS NULL"
            " AND next_check_at IS NULL",
        ),
    )

    id: Mapped[RandomId]
    # The user who gets the credits. NULL until somebody claims an order without credentials.
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

    # The provider's ids of the payment page and of the payment.
    session_id: Mapped[str | None]
    payment_id: Mapped[str | None]
    # The URL of the provider's payment page.
    payment_url: Mapped[str | None]
    # The URL to which the payment page redirects the payer.
    redirect_url: Mapped[str | None]
    # Only the caller who created the order has the claim token.
    claim_token_hmac: Mapped[bytes | None] = mapped_column(unique=True)
    claimed_at: Mapped[datetime | None]

    # The facts about the payment. A true fact never becomes false, so facts may arrive in any
    # order.
    paid_at: Mapped[datetime | None]
    is_failed: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    is_expired: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    # The time at which the provider reported that the payment page is closed.
    closed_at: Mapped[datetime | None]
    # The sum of all refunds, in the smallest unit of the currency.
    refunded_minor: Mapped[int] = mapped_column(default=0, server_default=text("0"))
    # The sum of failed refunds, which the payer didn't get.
    refunds_failed_minor: Mapped[int] = mapped_column(default=0, server_default=text("0"))
    # The sums of all disputes, of ended disputes, and of lost disputes.
    disputes_minor: Mapped[int] = mapped_column(default=0, server_default=text("0"))
    disputes_ended_minor: Mapped[int] = mapped_column(default=0, server_default=text("0"))
    disputes_lost_minor: Mapped[int] = mapped_column(default=0, server_default=text("0"))
    # The combined state of the order's disputes. An open dispute takes precedence over a lost
    # dispute, and a lost dispute over a won dispute.
    dispute: Mapped[str | None]
    # The sum of open and lost disputes.
    disputed_minor: Mapped[int | None]
    # The reason for an operator's review, such as a payment of the wrong amount.
    mismatch: Mapped[str | None]
    resolution: Mapped[str | None]
    # The reason for a failed order, as a text for the owner.
    error: Mapped[dict[str, Any] | None]

    # The number of credits that the ledger added for the order.
    credited: Mapped[Decimal] = mapped_column(Amount, default=0, server_default=text("0"))
    # The number of credits that the ledger removed again because of refunds and disputes.
    taken: Mapped[Decimal] = mapped_column(Amount, default=0, server_default=text("0"))

    # The time of the next query to the provider. NULL if no more facts can arrive.
    next_check_at: Mapped[datetime | None]
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[UpdatedAt]

    @property
    def lost_minor(self) -> int:
        """The amount that the payer got back permanently by refunds and lost disputes."""
        return self._returned_minor(self.disputes_lost_minor)

    @property
    def gone_minor(self) -> int:
        """The amount in refunds, lost disputes and open disputes."""
        return self._returned_minor(self.disputed_minor or 0)

    @property
    def refunded_amount(self) -> Decimal:
        """The permanently returned amount in the main unit of the currency."""
        return Decimal(self.lost_minor).scaleb(-minor_digits(self.currency))

    def _returned_minor(self, disputed: int) -> int:
        refunded = max(0, self.refunded_minor - self.refunds_failed_minor)
        return min(self.amount_minor, refunded + disputed)


class PaymentOrderTransition(Model):
    """An allowed change of an order's status. A database trigger refuses all other changes."""

    __tablename__ = "payment_order_transitions"

    from_status: Mapped[str] = mapped_column(primary_key=True)
    to_status: Mapped[str] = mapped_column(primary_key=True)


class PaymentOrderChange(Model):
    """A change of an order's status. A database trigger writes the row with the change."""

    __tablename__ = "payment_order_changes"
    __table_args__ = (Index(None, "order_id", "id"),)

    id: Mapped[SerialId]
    order_id: Mapped[int] = mapped_column(ForeignKey("payment_orders.id"))
    # NULL for the creation of the order.
    from_status: Mapped[str | None]
    to_status: Mapped[str]
    via: Mapped[str]
    created_at: Mapped[CreatedAt]


class PaymentOrderCheckpoint(Model):
    """The last verified change of order statuses.

    `pressroom credits verify` found no fault up to this change. The table has a single row with a
    signature (`services.credits.verify`).
    """

    __tablename__ = "payment_order_checkpoints"

    change_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    signature: Mapped[str]


class PaymentEvent(Model):
    """The facts in a provider's webhook event.

    The transaction that applies the facts stores the row. The complete event isn't stored, because
    the event names the payer.
    """

    __tablename__ = "payment_events"
    __table_args__ = (UniqueConstraint("channel", "event_id"), Index(None, "order_id"))

    id: Mapped[SerialId]
    channel: Mapped[str]
    # The provider's id of the event, which is the same for repeated deliveries.
    event_id: Mapped[str]
    type: Mapped[str]
    order_id: Mapped[int] = mapped_column(ForeignKey("payment_orders.id"))
    facts: Mapped[dict[str, Any]]
    # The time at which the provider created the event.
    happened_at: Mapped[datetime]
    created_at: Mapped[CreatedAt]
