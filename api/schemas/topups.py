from typing import Any

from pydantic import Field

from api.schemas.envelope import Body, Schema, Timestamp, Url
from core import clock
from models import OrderStatus, PaymentOrder


class OrderRecord(Schema):
    order_id: int
    status: OrderStatus = Field(
        description="Paid is paid; paid_unclaimed waits for a claim", examples=["pending"]
    )
    channel: str = Field(examples=["stripe"])
    currency: str = Field(examples=["USD"])
    amount: float = Field(description="What is paid, in the currency", examples=[5.0])
    credit_amount: float = Field(
        description="What it buys, exact to four decimals", examples=[500.0]
    )
    refunded_amount: float = Field(
        description="What of the amount was given back so far", examples=[0.0]
    )
    rate_usd_to_credit: float = Field(examples=[100.0])
    payment_url: Url | None = Field(
        description="Where it can be paid, while it can",
        examples=["https://checkout.stripe.com/c/pay/cs_live_a1B2c3"],
    )
    is_claimed: bool = Field(description="Whether it belongs to a user", examples=[True])
    error: dict[str, Any] | None = Field(description="Why it failed", examples=[None])
    expires_at: Timestamp
    paid_at: Timestamp | None = Field(examples=[None])
    created_at: Timestamp
    updated_at: Timestamp


class NewOrderRecord(OrderRecord):
    claim_token: str | None = Field(
        description="Takes the credits of an order made without credentials; works once. Keep it "
        "secret, and out of URLs",
        examples=["dG9rZW4tb2YtMjU2LXJhbmRvbS1iaXRz"],
    )


class ClaimToken(Body):
    claim_token: str = Field(max_length=255, examples=["dG9rZW4tb2YtMjU2LXJhbmRvbS1iaXRz"])


def record_of(order: PaymentOrder) -> dict[str, Any]:
    """An ``OrderRecord`` whose decimals are exact."""
    special = {
        "order_id": order.id,
        "rate_usd_to_credit": order.credits_per_usd,
        "payment_url": order.payment_url if order.status == OrderStatus.PENDING else None,
        "is_claimed": order.user_id is not None,
        "expires_at": clock.iso(order.expires_at),
        "paid_at": clock.iso(order.paid_at) if order.paid_at else None,
        "created_at": clock.iso(order.created_at),
        "updated_at": clock.iso(order.updated_at),
    }
    fields = OrderRecord.model_fields
    return {name: special[name] if name in special else getattr(order, name) for name in fields}
