"""Writes responses about credits, in which amounts are exact decimals."""

import time
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import orjson
from fastapi.responses import Response

from api.schemas.credits import OrderRecord
from core import clock
from core.settings import Settings
from models import OrderStatus, PaymentOrder
from services.composer.call_charges import get_call_price
from services.credits.prices import CreditRate


def describe_prices(settings: Settings, channels: Iterable[str]) -> dict[str, Any]:
    currencies = []
    for currency in settings.currencies:
        rate = CreditRate(currency, settings.credits_per_usd)
        digits = currency.digits
        currencies.append(
            {
                "currency": currency.code,
                "decimals": digits,
                "minimum": Decimal(rate.min_minor).scaleb(-digits),
                "maximum": Decimal(rate.max_minor).scaleb(-digits),
                "credits_per_unit": rate.credits(10**digits),
            }
        )
    return {
        "channels": list(channels),
        "currencies": currencies,
        "composer_call": get_call_price(settings),
    }


def describe_order(order: PaymentOrder) -> dict[str, Any]:
    special_values = {
        "order_id": order.id,
        "rate_usd_to_credit": order.credits_per_usd,
        "payment_url": order.payment_url if order.status == OrderStatus.PENDING else None,
        "is_claimed": order.user_id is not None,
        "expires_at": clock.format_timestamp(order.expires_at),
        "paid_at": clock.format_timestamp(order.paid_at) if order.paid_at else None,
        "created_at": clock.format_timestamp(order.created_at),
        "updated_at": clock.format_timestamp(order.updated_at),
    }
    fields = OrderRecord.model_fields
    return {
        name: special_values[name] if name in special_values else getattr(order, name)
        for name in fields
    }


def count_json_bytes(data: dict[str, Any]) -> int:
    return len(_dump_exact_json(data))


def _dump_exact_json(data: dict[str, Any]) -> bytes:
    def dump_decimal(value: object) -> orjson.Fragment:
        if isinstance(value, Decimal):
            return orjson.Fragment(format(value, "f"))
        raise TypeError(type(value).__name__)

    return orjson.dumps(data, default=dump_decimal)


def build_decimal_response(
    data: dict[str, Any] | str, headers: dict[str, str] | None = None
) -> Response:
    """Return a response with the fields of a record, or with its JSON text."""
    text = data if isinstance(data, str) else _dump_exact_json(data).decode()
    body = f'{{"data":{text},"ts":{int(time.time())}}}'
    return Response(body, headers=headers, media_type="application/json")
