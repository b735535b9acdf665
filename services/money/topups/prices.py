"""What credits cost. All arithmetic is exact: fractions, cut to decimals once, in our favour.

Money is rounded up to what can be paid, credits down to four decimals, so that no way of asking
gives more than was paid for.
"""

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from core.errors import DomainError, invalid
from core.money import MAX_AMOUNT, PLACES, is_storable
from core.settings import Settings
from core.settings.currencies import Currency

# What Stripe takes at most: eight digits of the minor unit.
MAX_AMOUNT_MINOR = 99_999_999
_AMOUNT, _CREDIT_AMOUNT = "body.amount", "body.credit_amount"


@dataclass(frozen=True)
class Price:
    currency: Currency
    amount: Decimal
    amount_minor: int
    credit_amount: Decimal
    credits_per_usd: Decimal


@dataclass(frozen=True)
class CreditRate:
    """Credits for money, both ways."""

    currency: Currency
    credits_per_usd: Decimal

    @property
    def _credits_per_unit(self) -> Fraction:
        return Fraction(self.credits_per_usd) / Fraction(self.currency.per_usd)

    def credits(self, minor: int) -> Decimal:
        """What an amount in the minor unit buys, rounded down."""
        bought = Fraction(minor, 10**self.currency.digits) * self._credits_per_unit
        return Decimal(math.floor(bought * 10**PLACES)).scaleb(-PLACES)

    def minor(self, credit_amount: Decimal) -> int:
        """What credits cost in the minor unit, rounded up."""
        units = Fraction(credit_amount) / self._credits_per_unit
        return math.ceil(units * int(10**self.currency.digits))


def price(
    settings: Settings,
    *,
    currency: str | None,
    amount: Decimal | None,
    credit_amount: Decimal | None,
) -> Price:
    """The order that was asked for, by money, by credits or by both; 0 counts as not given.

    Raises ``topup.currency``, ``topup.amount``, ``topup.amount_missing``,
    ``topup.amount_mismatch``, ``topup.amount_too_small``, ``topup.amount_too_large``.
    """
    rate = CreditRate(_currency(settings, currency), settings.credits_per_usd)
    if not amount and not credit_amount:
        raise invalid(
            "topup.amount_missing",
            "body.amount or body.credit_amount must be above 0.",
            field=_AMOUNT,
        )
    minor = _minor_of(rate.currency, amount) if amount else None
    if credit_amount:
        _check_credits(credit_amount)
        minor = _agreed(rate, minor, credit_amount)
    assert minor is not None
    _check_bounds(rate.currency, minor, _CREDIT_AMOUNT if not amount else _AMOUNT)
    bought = credit_amount or rate.credits(minor)
    _check_bought(bought)
    paid = Decimal(minor).scaleb(-rate.currency.digits)
    return Price(rate.currency, paid, minor, bought, rate.credits_per_usd)


def _currency(settings: Settings, code: str | None) -> Currency:
    if code is None:
        return settings.currencies[0]
    for currency in settings.currencies:
        if currency.code == code.upper():
            return currency
    known = ", ".join(currency.code for currency in settings.currencies)
    raise invalid("topup.currency", f"body.currency: is one of {known}", field="body.currency")


def _minor_of(currency: Currency, amount: Decimal) -> int:
    if not is_storable(amount) or amount < 0:
        raise _not_an_amount(_AMOUNT)
    minor = amount.scaleb(currency.digits)
    if minor != int(minor):
        raise invalid(
            "topup.amount",
            f"{_AMOUNT}: an amount in {currency.code} has at most {currency.digits} decimals",
            field=_AMOUNT,
        )
    return int(minor)


def _check_credits(credit_amount: Decimal) -> None:
    if not is_storable(credit_amount) or credit_amount < 0:
        raise _not_an_amount(_CREDIT_AMOUNT)


def _not_an_amount(field: str) -> DomainError:
    return invalid(
        "topup.amount",
        f"{field}: is above 0, at most {MAX_AMOUNT:,} and has at most four decimals",
        field=field,
    )


def _agreed(rate: CreditRate, minor: int | None, credit_amount: Decimal) -> int:
    """The price of these credits; whoever names both has computed one from the other."""
    price = rate.minor(credit_amount)
    if minor is None or minor == price:
        return price
    if rate.credits(minor) == credit_amount:
        return minor
    raise invalid(
        "topup.amount_mismatch",
        f"{_AMOUNT} and {_CREDIT_AMOUNT} do not agree; send one of them.",
        field=_AMOUNT,
    )


def _check_bounds(currency: Currency, minor: int, field: str) -> None:
    least = int(currency.minimum.scaleb(currency.digits))
    if minor < least:
        raise invalid(
            "topup.amount_too_small",
            f"{field}: the smallest order is {currency.minimum} {currency.code}",
            field=field,
        )
    if minor > MAX_AMOUNT_MINOR:
        most = Decimal(MAX_AMOUNT_MINOR).scaleb(-currency.digits)
        raise invalid(
            "topup.amount_too_large",
            f"{field}: the largest order is {most:,} {currency.code}",
            field=field,
        )


def _check_bought(credit_amount: Decimal) -> None:
    if not credit_amount:
        raise invalid("topup.amount_too_small", f"{_AMOUNT}: buys no credits at all", field=_AMOUNT)
    if credit_amount > MAX_AMOUNT:
        raise invalid("topup.amount_too_large", f"{_AMOUNT}: buys too many credits", field=_AMOUNT)
