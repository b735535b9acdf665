"""What credits cost. All arithmetic is exact: fractions, cut to decimals once, in our favour.

Money is rounded up to what can be paid, credits down to four decimals, so that no way of asking
gives more than was paid for.
"""

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from core.money import MAX_AMOUNT, PLACES, is_storable
from core.refusals.money import (
    TOPUP_AMOUNT,
    TOPUP_AMOUNT_DECIMALS,
    TOPUP_AMOUNT_MISMATCH,
    TOPUP_AMOUNT_MISSING,
    TOPUP_AMOUNT_TOO_LARGE,
    TOPUP_AMOUNT_TOO_SMALL,
    TOPUP_BUYS_NOTHING,
    TOPUP_BUYS_TOO_MUCH,
    TOPUP_CURRENCY,
)
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
        raise TOPUP_AMOUNT_MISSING()
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
    raise TOPUP_CURRENCY(known=known)


def _minor_of(currency: Currency, amount: Decimal) -> int:
    if not is_storable(amount) or amount < 0:
        raise TOPUP_AMOUNT(place=_AMOUNT, most=MAX_AMOUNT)
    minor = amount.scaleb(currency.digits)
    if minor != int(minor):
        raise TOPUP_AMOUNT_DECIMALS(currency=currency.code, digits=currency.digits)
    return int(minor)


def _check_credits(credit_amount: Decimal) -> None:
    if not is_storable(credit_amount) or credit_amount < 0:
        raise TOPUP_AMOUNT(place=_CREDIT_AMOUNT, most=MAX_AMOUNT)


def _agreed(rate: CreditRate, minor: int | None, credit_amount: Decimal) -> int:
    """The price of these credits; whoever names both has computed one from the other."""
    price = rate.minor(credit_amount)
    if minor is None or minor == price:
        return price
    if rate.credits(minor) == credit_amount:
        return minor
    raise TOPUP_AMOUNT_MISMATCH()


def _check_bounds(currency: Currency, minor: int, field: str) -> None:
    least = int(currency.minimum.scaleb(currency.digits))
    if minor < least:
        raise TOPUP_AMOUNT_TOO_SMALL(place=field, least=currency.minimum, currency=currency.code)
    if minor > MAX_AMOUNT_MINOR:
        most = Decimal(MAX_AMOUNT_MINOR).scaleb(-currency.digits)
        raise TOPUP_AMOUNT_TOO_LARGE(place=field, most=most, currency=currency.code)


def _check_bought(credit_amount: Decimal) -> None:
    if not credit_amount:
        raise TOPUP_BUYS_NOTHING()
    if credit_amount > MAX_AMOUNT:
        raise TOPUP_BUYS_TOO_MUCH()
