from typing import Any

from pydantic import Field

from api.schemas.envelope import Pagination, Schema, Timestamp


class CreditBalance(Schema):
    id: int
    user_id: int
    balance_credit: float = Field(description="Exact to four decimals", examples=[12.5])
    debt_credit: float = Field(description="What the next topup pays first", examples=[0.0])
    status: str = Field(examples=["active"])
    created_at: Timestamp
    updated_at: Timestamp


class CreditEntryRecord(Schema):
    id: int
    seq: int = Field(description="1, 2, 3 … of the account, without gaps", examples=[42])
    user_id: int
    order_id: int | None = Field(examples=[None])
    action: str = Field(
        description="topup, consume, consume_reversal, topup_refund, grant, adjust or debt_payment",
        examples=["consume"],
    )
    amount_credit: float = Field(description="Always positive", examples=[1.5])
    delta_credit: float = Field(description="What it did to the balance", examples=[-1.5])
    balance_after: float = Field(examples=[12.5])
    rate_usd_to_credit: float | None = Field(examples=[None])
    currency: str | None = Field(examples=[None])
    source_type: str = Field(examples=["consume"])
    source_id: str = Field(examples=["article-1043"])
    meta: dict[str, Any] | None = Field(examples=[{"title": "How we bake bread"}])
    created_at: Timestamp


class LedgerPagination(Pagination):
    next_cursor: str | None = Field(description="The next page at any depth; null at the end")


class LedgerPage(Schema):
    pagination: LedgerPagination
    items: list[CreditEntryRecord]
