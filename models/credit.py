"""The ledger of credits, and orders for credits.

The ledger is append-only. Database triggers prevent changes and deletions of ledger entries.
"""

from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, Numeric, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from core.ids import AccountId
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
    """A single database function adds all ledger entries and changes all balances."""

    __tablename__ = "credit_accounts"
    __table_args__ = (
        CheckConstraint("balance >= 0", name="never_negative"),
        CheckConstraint("debt >= 0", name="debt_never_negative"),
        CheckConstraint("octet_length(last_hash) = 32", name="hash_length"),
        # Maintenance uses this index to find the owners that get a mail.
        Index("ix_credit_accounts_low_mail_due", "user_id", postgresql_where="low_mail_due"),
    )

    id: Mapped[SerialId]
    user_id: Mapped[AccountId] = mapped_column(ForeignKey("users.id"), unique=True)
    balance: Mapped[Decimal] = mapped_column(Amount, server_default=text("0"))
    # The number of refunded credits that the user had already spent. The user's next top-ups pay
    # off this debt.
    debt: Mapped[Decimal] = mapped_column(Amount, server_default=text("0"))
    # A balance below the threshold `low_below` causes a low balance event in the owner's feed.
    low_below: Mapped[Decimal] = mapped_column(Amount, server_default=text("100"))
    # True after a low balance event, until incoming credits raise the balance to the threshold. A
    # reversed charge doesn't set `low_told` to false, because the owner would otherwise get a
    # second low balance event.
    low_told: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    # True from a low balance event until maintenance has mailed the owner.
    low_mail_due: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    status: Mapped[str] = mapped_column(server_default="active")
    # The `seq` and the hash of the account's last ledger entry.
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
        # An index for finding an order's ledger entries when the order is deleted or verified.
        Index(None, "order_id", postgresql_where="order_id IS NOT NULL"),
    )

    id: Mapped[SerialId]
    user_id: Mapped[AccountId] = mapped_column(ForeignKey("users.id"))
    # The entry's number within its account. Numbers start at 1 and have no gaps.
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
    # SHA-256 of the ledger entry and of the preceding entry's hash (services.credits.verify).
    hash: Mapped[bytes]
    created_at: Mapped[CreatedAt]


class OpenCharge(Model):
    """A charge for a provider call that hasn't been answered yet.

    Maintenance reverses an open charge if the provider doesn't respond in time. Before a process
    settles or reverses an open charge, it deletes the charge's row, so that no other process can do
    the same.
    """

    __tablename__ = "open_charges"

    entry_id: Mapped[int] = mapped_column(
        ForeignKey("credit_entries.id"), primary_key=True, autoincrement=False
    )
    # Identifies the charged API call, which the user can repeat for free within a day after the
    # charge was settled.
    call: Mapped[str]
    # Identifies the work that an API call requests from a provider. Calls that request the same
    # work share one charge, and the work is done only once.
    work: Mapped[str] = mapped_column(index=True)
    # The worker that calls the provider, or NULL before a worker starts the call.
    taken_by: Mapped[str | None]
    # The time at which maintenance reverses the charge if the charge is still open.
    deadline: Mapped[datetime] = mapped_column(index=True)


class CreditCheckpoint(Model):
    """The last verified ledger entry of an account, with the resulting balance and debt.

    The signature covers every column except ``signature`` (`services.credits.verify`).
    """

    __tablename__ = "credit_checkpoints"

    user_id: Mapped[AccountId] = mapped_column(
        ForeignKey("users.id"), primary_key=True, autoincrement=False
    )
    seq: Mapped[int]
    hash: Mapped[bytes]
    balance: Mapped[Decimal] = mapped_column(Amount)
    debt: Mapped[Decimal] = mapped_column(Amount)
    # True if a verification found a fault in the account's ledger entries. The next verification of
    # a suspect account reads all of the account's ledger entries.
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
    CREDIT = "credit"
    REFUNDED = "refunded"


class OrderVia(StrEnum):
    REQUEST = "request"
    JOB = "job"
    WEBHOOK = "webhook"
    RETURN = "return"
    POLL = "poll"
    CLAIM = "claim"
    OPERATOR = "operator"


class PaymentOrder(Model):
    """A database trigger prevents changes to the terms, and the removal of payment facts."""

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
        # An index for finding the oldest abandoned orders, which maintenance deletes.
        Index(
            "ix_payment_orders_abandoned",
            "created_at",
            postgresql_where="user_id IS NULL AND paid_at IS NULL AND mismatch IS NULL"
            " AND next_check_at IS NULL",
        ),
    )

    id: Mapped[RandomId]
    # The user who gets the credits, or NULL until somebody claims an order that was created without
    # credentials.
    user_id: Mapped[AccountId | None] = mapped_column(ForeignKey("users.id"))
    status: Mapped[str] = mapped_column(default=OrderStatus.CREATED)
    changed_via: Mapped[str] = mapped_column(default=OrderVia.REQUEST)

    # The terms of the order, which never change.
    channel: Mapped[str]
    currency: Mapped[str]
    amount: Mapped[Decimal] = mapped_column(Amount)
    amount_minor: Mapped[int]
    credit_amount: Mapped[Decimal] = mapped_column(Amount)
    credits_per_usd: Mapped[Decimal] = mapped_column(Amount)
    units_per_usd: Mapped[Decimal] = mapped_column(Amount)
    expires_at: Mapped[datetime]

    # The ids that the payment provider assigned to the payment page and to the payment.
    session_id: Mapped[str | None]
    payment_id: Mapped[str | None]
    # The URL of the payment provider's page for the order.
    payment_url: Mapped[str | None]
    # The URL to which the payment page redirects the payer.
    redirect_url: Mapped[str | None]
    # The database stores only an HMAC of the claim token, which only the creator of the order has.
    claim_token_hmac: Mapped[bytes | None] = mapped_column(unique=True)
    claimed_at: Mapped[datetime | None]

    # The facts that the payment provider has reported about the payment. Facts are added but never
    # removed, so that the provider's reports can arrive in any order.
    paid_at: Mapped[datetime | None]
    is_failed: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    is_expired: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    # The time at which the payment provider reported that the payment page was closed.
    closed_at: Mapped[datetime | None]
    # The total amount of all refunds of the payment, in the smallest unit of the currency.
    refunded_minor: Mapped[int] = mapped_column(default=0, server_default=text("0"))
    # The total amount of failed refunds, which the payer didn't receive.
    refunds_failed_minor: Mapped[int] = mapped_column(default=0, server_default=text("0"))
    # The total amounts of three groups of disputes about the payment: all, ended, and lost.
    disputes_minor: Mapped[int] = mapped_column(default=0, server_default=text("0"))
    disputes_ended_minor: Mapped[int] = mapped_column(default=0, server_default=text("0"))
    disputes_lost_minor: Mapped[int] = mapped_column(default=0, server_default=text("0"))
    # The combined state of all disputes about the order's payment. An open dispute takes precedence
    # over a lost dispute, and a lost dispute over a won dispute.
    dispute: Mapped[str | None]
    # The total amount of open and lost disputes about the payment.
    disputed_minor: Mapped[int | None]
    # The reason why an operator must review the order, such as a payment of the wrong amount.
    mismatch: Mapped[str | None]
    resolution: Mapped[str | None]
    # The error that explains to the user why the order failed.
    error: Mapped[dict[str, Any] | None]

    # The number of credits that the ledger added for the order.
    credited: Mapped[Decimal] = mapped_column(Amount, default=0, server_default=text("0"))
    # The number of credits that the ledger removed because of refunds and disputes of the order.
    taken: Mapped[Decimal] = mapped_column(Amount, default=0, server_default=text("0"))

    # When a worker next asks the payment provider about the order, or NULL if no check is needed.
    next_check_at: Mapped[datetime | None]
    created_at: Mapped[CreatedAt]
    updated_at: Mapped[UpdatedAt]

    @property
    def lost_minor(self) -> int:
        """Return the amount that was returned to the payer through refunds and lost disputes."""
        return self._returned_minor(self.disputes_lost_minor)

    @property
    def gone_minor(self) -> int:
        """Return the total amount of the order's refunds, lost disputes and open disputes."""
        return self._returned_minor(self.disputed_minor or 0)

    @property
    def refunded_amount(self) -> Decimal:
        """Return the amount that was returned to the payer, in the currency's main unit."""
        return Decimal(self.lost_minor).scaleb(-minor_digits(self.currency))

    def _returned_minor(self, disputed: int) -> int:
        refunded = max(0, self.refunded_minor - self.refunds_failed_minor)
        return min(self.amount_minor, refunded + disputed)


class PaymentOrderTransition(Model):
    """A database trigger refuses every status change that isn't in this table."""

    __tablename__ = "payment_order_transitions"

    from_status: Mapped[str] = mapped_column(primary_key=True)
    to_status: Mapped[str] = mapped_column(primary_key=True)


class PaymentOrderChange(Model):
    """A database trigger records every change of an order's status."""

    __tablename__ = "payment_order_changes"
    __table_args__ = (Index(None, "order_id", "id"),)

    id: Mapped[SerialId]
    order_id: Mapped[int] = mapped_column(ForeignKey("payment_orders.id"))
    # The order's status before the change, or NULL for the creation of the order.
    from_status: Mapped[str | None]
    to_status: Mapped[str]
    via: Mapped[str]
    created_at: Mapped[CreatedAt]


class PaymentOrderCheckpoint(Model):
    """The last change of an order's status that `pressroom credits verify` has verified.

    The table has a single, signed row.
    """

    __tablename__ = "payment_order_checkpoints"

    change_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    signature: Mapped[str]


class PaymentEvent(Model):
    """A payment event is stored in the transaction that changes the order.

    The complete webhook event isn't stored, because it names the payer.
    """

    __tablename__ = "payment_events"
    __table_args__ = (UniqueConstraint("channel", "event_id"), Index(None, "order_id"))

    id: Mapped[SerialId]
    channel: Mapped[str]
    # The payment provider's id of the event. An event that is delivered twice keeps its id.
    event_id: Mapped[str]
    type: Mapped[str]
    order_id: Mapped[int] = mapped_column(ForeignKey("payment_orders.id"))
    facts: Mapped[dict[str, Any]]
    # The time at which the payment provider created the event.
    happened_at: Mapped[datetime]
    created_at: Mapped[CreatedAt]
