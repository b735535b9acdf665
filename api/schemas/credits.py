from typing import Any

from pydantic import Field

from api.schemas.envelope import Pagination, Schema, Timestamp


class CreditBalance(Schema):
    id: int
    user_id: int
    balance_credit: float = Field(description="Exact to four decimals", examples=[12.5])
    debt_credit: float = Field(description="What the next topup pays first")
    status: str
    created_at: Timestamp
    updated_at: Timestamp


class CreditEntryRecord(Schema):
    id: int
    seq: int = Field(description="1, 2, 3 … of the account, without gaps")
    user_id: int
    order_id: int | None
    action: str = Field(
        description="topup, consume, consume_reversal, topup_refund, grant, adjust or debt_payment"
    )
    amount_credit: float = Field(description="Always positive")
    delta_credit: float = Field(description="What it did to the balance")
    balance_after: float
    rate_usd_to_credit: float | None
    currency: str | None
    source_type: str
    source_id: str
    meta: dict[str, Any] | None
    created_at: Timestamp


class LedgerPage(Schema):
    pagination: Pagination
    items: list[CreditEntryRecord]
