from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from pydantic import Field

from api.schemas.envelope import Body, Schema, Timestamp, Url
from core import clock
from core.settings import Settings
from models import OrderStatus, PaymentOrder
from services.composer.call_charges import price_of_call
from services.money.topups.prices import CreditRate


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


class CurrencyPrice(Schema):
    currency: str = Field(examples=["EUR"])
    decimals: int = Field(description="How many decimals an amount may have", examples=[2])
    minimum: float = Field(description="The smallest order, in the currency", examples=[0.5])
    maximum: float = Field(description="The largest order, in the currency", examples=[999999.99])
    credits_per_unit: float = Field(
        description="What one unit of the currency buys, rounded down to four decimals",
        examples=[108.6956],
    )


class CreditPrices(Schema):
    channels: list[str] = Field(
        description="Where an order can be paid; the first is the default", examples=[["stripe"]]
    )
    currencies: list[CurrencyPrice] = Field(description="The first is the default")
    composer_call: float | None = Field(
        description="Credits for a call of the composer that a language model answers; null: none",
        examples=[2.0],
    )


class ClaimToken(Body):
    claim_token: str = Field(max_length=255, examples=["dG9rZW4tb2YtMjU2LXJhbmRvbS1iaXRz"])


def prices_of(settings: Settings, channels: Iterable[str]) -> dict[str, Any]:
    """A ``CreditPrices`` whose decimals are exact."""
    currencies = []
    for currency in settings.currencies:
        rate, digits = CreditRate(currency, settings.credits_per_usd), currency.digits
        currencies.append(
            {
                "currency": currency.code,
                "decimals": digits,
                "minimum": Decimal(rate.least_minor).scaleb(-digits),
                "maximum": Decimal(rate.most_minor).scaleb(-digits),
                "credits_per_unit": rate.credits(10**digits),
            }
        )
    return {
        "channels": list(channels),
        "currencies": currencies,
        "composer_call": price_of_call(settings),
    }


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
