"""The request and response bodies of the API endpoints for credits."""

import re
from decimal import Decimal
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from api.schemas.envelope import Body, Pagination, Schema, Timestamp, Url
from integrations.payments.port import PaymentChannel
from models import OrderStatus
from services.credits.ledger import MAX_SOURCE_ID_CHARACTERS

# JSON can contain NUL and lone surrogates, but the database can't store them.
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def _read_money(value: object) -> Decimal:
    # Refuse strings, which Pydantic would convert to numbers. Refuse booleans, which are integers
    # in Python.
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise PydanticCustomError("type", "must be a number")
    return Decimal(value)


def _read_text(value: object) -> str:
    if not isinstance(value, str):
        raise PydanticCustomError("type", "must be a string")
    if _UNSTORABLE.search(value):
        rule = "must not contain NUL characters or lone surrogates"
        raise PydanticCustomError("type", rule)
    return value


# The services check the range and the decimals of an amount of money, because each service has its
# own error codes.
Money = Annotated[
    Decimal,
    Field(allow_inf_nan=True),
    BeforeValidator(_read_money),
    WithJsonSchema({"type": "number"}),
]
Text = Annotated[str, BeforeValidator(_read_text)]
# The OpenAPI document doesn't say that optional fields accept null.
OptionalMoney = Annotated[Money | None, WithJsonSchema({"type": "number"})]
OptionalText = Annotated[Text | None, WithJsonSchema({"type": "string"})]
# The service validates the names in a JSON object, because invalid names have a separate error
# code.
OptionalObject = Annotated[dict[Any, Any] | None, WithJsonSchema({"type": "object"})]


class MoneyBody(BaseModel):
    """The base class of request bodies with amounts of money.

    JSON types are strict, and unknown fields are ignored.
    """

    model_config = ConfigDict(strict=True)


class NewCharge(MoneyBody):
    amount_credit: Money = Field(
        description="Credits to charge, with at most four decimals",
        examples=[1.5],
        json_schema_extra={"exclusiveMinimum": 0},
    )
    source_id: Text = Field(
        description="Your id of the purchased item. The id doesn't have to be unique.",
        examples=["article-1043"],
        json_schema_extra={"minLength": 1, "maxLength": MAX_SOURCE_ID_CHARACTERS},
    )
    meta: OptionalObject = Field(
        default=None,
        description="Additional data as a JSON object of at most 8 KB",
        examples=[{"title": "How we bake bread"}],
    )


class NewLowBalance(MoneyBody):
    below_credit: Money = Field(
        description="Threshold in credits, with at most four decimals. 0 disables the event.",
        examples=[250],
        json_schema_extra={"minimum": 0},
    )


class NewOrder(MoneyBody):
    amount: OptionalMoney = Field(
        default=None,
        description="Amount to pay, with at most the decimals of the currency",
        json_schema_extra={"minimum": 0},
    )
    credit_amount: OptionalMoney = Field(
        default=None,
        description="Credits to buy, with at most four decimals",
        examples=[500],
        json_schema_extra={"minimum": 0},
    )
    currency: OptionalText = Field(
        default=None, description="Code of the currency, such as USD", examples=["USD"]
    )
    channel: OptionalText = Field(default=None, json_schema_extra={"enum": [*PaymentChannel]})
    redirect_url: Annotated[Url, BeforeValidator(_read_text)] = Field(
        description="URL to which the payer returns after the payment. Pressroom adds "
        "order_id and status to the query.",
        examples=["https://www.example.com/thanks"],
    )


class CreditBalance(Schema):
    id: int
    user_id: int
    balance_credit: float = Field(
        description="Balance in credits, exact to four decimals", examples=[12.5]
    )
    debt_credit: float = Field(
        description="Debt in credits, which the next order pays first", examples=[0.0]
    )
    status: str = Field(examples=["active"])
    created_at: Timestamp
    updated_at: Timestamp


class LowBalance(Schema):
    below_credit: float = Field(
        description="Threshold in credits. A charge that takes the balance below the "
        "threshold creates the event credits.low. 0 disables the event.",
        examples=[100.0],
    )


class CreditEntryRecord(Schema):
    id: int
    seq: int = Field(
        description="Number of the entry within the account, starting at 1, without gaps",
        examples=[42],
    )
    user_id: int
    order_id: int | None = Field(examples=[None])
    action: str = Field(
        description="topup, consume, consume_reversal, topup_refund, grant, adjust or debt_payment",
        examples=["consume"],
    )
    amount_credit: float = Field(description="Amount of credits, always positive", examples=[1.5])
    delta_credit: float = Field(
        description="Change of the balance in credits, which can be negative", examples=[-1.5]
    )
    balance_after: float = Field(examples=[12.5])
    rate_usd_to_credit: float | None = Field(examples=[None])
    currency: str | None = Field(examples=[None])
    source_type: str = Field(examples=["consume"])
    source_id: str = Field(examples=["article-1043"])
    meta: dict[str, Any] | None = Field(examples=[{"title": "How we bake bread"}])
    created_at: Timestamp


class LedgerPage(Schema):
    pagination: Pagination
    items: list[CreditEntryRecord]


class OrderRecord(Schema):
    order_id: int
    status: OrderStatus = Field(
        description="Status of the order. A paid_unclaimed order is paid and can still be claimed.",
        examples=["pending"],
    )
    channel: str = Field(examples=["stripe"])
    currency: str = Field(examples=["USD"])
    amount: float = Field(description="Amount to pay, in the currency of the order", examples=[5.0])
    credit_amount: float = Field(
        description="Credits of the order, exact to four decimals", examples=[500.0]
    )
    refunded_amount: float = Field(description="Amount refunded so far", examples=[0.0])
    rate_usd_to_credit: float = Field(examples=[100.0])
    payment_url: Url | None = Field(
        description="URL of the payment page, or null if the order can't be paid",
        examples=["https://checkout.stripe.com/c/pay/cs_live_a1B2c3"],
    )
    is_claimed: bool = Field(description="Whether the order belongs to a user", examples=[True])
    error: dict[str, Any] | None = Field(description="Reason for the failure", examples=[None])
    expires_at: Timestamp
    paid_at: Timestamp | None = Field(examples=[None])
    created_at: Timestamp
    updated_at: Timestamp


class NewOrderRecord(OrderRecord):
    claim_token: str | None = Field(
        description="Secret with which a user can claim an order that was created without "
        "credentials. Works once. Never put the token into a URL.",
        examples=["dG9rZW4tb2YtMjU2LXJhbmRvbS1iaXRz"],
    )


class CurrencyPrice(Schema):
    currency: str = Field(examples=["EUR"])
    decimals: int = Field(description="Maximum number of decimals of an amount", examples=[2])
    minimum: float = Field(
        description="Smallest amount of an order, in the currency", examples=[0.5]
    )
    maximum: float = Field(
        description="Largest amount of an order, in the currency", examples=[999999.99]
    )
    credits_per_unit: float = Field(
        description="Credits per unit of the currency, rounded down to four decimals",
        examples=[108.6956],
    )


class CreditPrices(Schema):
    channels: list[str] = Field(
        description="Payment channels. The first channel is the default.", examples=[["stripe"]]
    )
    currencies: list[CurrencyPrice] = Field(
        description="Currencies. The first currency is the default."
    )
    composer_call: float | None = Field(
        description="Credits per composer request that uses a language model, or null if "
        "these requests are free",
        examples=[2.0],
    )


class ClaimToken(Body):
    claim_token: str = Field(max_length=255, examples=["dG9rZW4tb2YtMjU2LXJhbmRvbS1iaXRz"])
