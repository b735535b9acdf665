"""The currencies in which credits are sold, as an operator writes them down."""

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Annotated

from pydantic import BeforeValidator, Field
from pydantic_settings import NoDecode

from core.money import is_storable, minor_digits

# Each is code:units for one US dollar:smallest order. An operator keeps the rates current.
DEFAULT_CURRENCIES = "USD:1:0.50,EUR:0.92:0.50,GBP:0.79:0.50,JPY:150:100"


@dataclass(frozen=True)
class Currency:
    """``per_usd`` units are worth one US dollar; ``minimum`` is the smallest order, in units."""

    code: str
    per_usd: Decimal
    minimum: Decimal

    @property
    def digits(self) -> int:
        return minor_digits(self.code)


def parse_all(text: str) -> tuple[Currency, ...]:
    """Read ``CODE:rate:minimum,…``; raises a ``ValueError`` that names the wrong entry."""
    currencies = tuple(_parse(entry.strip()) for entry in text.split(",") if entry.strip())
    codes = {currency.code for currency in currencies}
    if not codes or len(codes) != len(currencies):
        raise ValueError("needs at least one currency, and each once")
    return currencies


def _parse(entry: str) -> Currency:
    code, *texts = entry.split(":")
    if len(texts) != len(("rate", "minimum")):
        raise ValueError(f"{entry!r} is not written CODE:units per USD:minimum, as EUR:0.92:0.50")
    digits = minor_digits(code)
    numbers = []
    for text in texts:
        try:
            number = Decimal(text)
        except InvalidOperation:
            raise ValueError(f"{entry!r}: {text!r} is not a number") from None
        if not is_storable(number) or number <= 0:
            raise ValueError(f"{entry!r}: {text} is not above 0 with at most four decimals")
        numbers.append(number)
    rate, minimum = numbers
    if minimum != round(minimum, digits):
        raise ValueError(f"{entry!r}: the minimum has more decimals than {code}")
    return Currency(code, rate, minimum)


# Types of settings.
CreditsPerUsd = Annotated[Decimal, Field(gt=0, max_digits=15, decimal_places=4)]
ComposerPrice = Annotated[Decimal | None, Field(gt=0, max_digits=15, decimal_places=4)]
Currencies = Annotated[tuple[Currency, ...], NoDecode, BeforeValidator(parse_all)]
