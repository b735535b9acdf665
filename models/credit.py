"""The ledger of credits. It is append-only: the database refuses to change or delete an entry."""

from decimal import Decimal
from enum import StrEnum
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, Numeric, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import CreatedAt, Model, SerialId, UpdatedAt, known

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
    # The owner's feed tells of a balance that falls below this.
    low_below: Mapped[Decimal] = mapped_column(Amount, server_default=text("100"))
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
        Index("ix_credit_entries_order_id", "order_id", postgresql_where="order_id IS NOT NULL"),
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
    # SHA-256 of the previous entry's hash and this entry's content (services.money.credits.verify).
    hash: Mapped[bytes]
    created_at: Mapped[CreatedAt]


class CreditCheckpoint(Model):
    """Up to where an account's entries were verified: the entry's number and hash, and the sums.

    The signature covers all of that (`services.money.credits.checkpoints`).
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
