"""Calculates the price of an order in money and credits.

Prices are rounded up and credits are rounded down, so that nobody gets more credits than they have
paid for. A ``minor`` amount is in the currency's minor unit, such as cents.
"""

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from core.errors import money as errors
from core.money import MAX_AMOUNT, PLACES, is_storable
from core.settings import Settings
from core.settings.notations import Currency

# The largest amount that Stripe accepts has eight digits in the currency's minor unit.
MAX_AMOUNT_MINOR = 99_999_999
_AMOUNT = "body.amount"
_CREDIT_AMOUNT = "body.credit_amount"


@dataclass(frozen=True)
class Price:
    """The price of an order, whose fields are named like columns of ``payment_orders``."""

    currency: str
    amount: Decimal
    amount_minor: int
    credit_amount: Decimal
    credits_per_usd: Decimal
    units_per_usd: Decimal


@dataclass(frozen=True)
class CreditRate:
    currency: Currency
    credits_per_usd: Decimal

    @property
    def _credits_per_unit(self) -> Fraction:
        return Fraction(self.credits_per_usd) / Fraction(self.currency.per_usd)

    def credits(self, minor: int) -> Decimal:
        bought = Fraction(minor, 10**self.currency.digits) * self._credits_per_unit
        return Decimal(math.floor(bought * 10**PLACES)).scaleb(-PLACES)

    def minor(self, credit_amount: Decimal) -> int:
        units = Fraction(credit_amount) / self._credits_per_unit
        return math.ceil(units * int(10**self.currency.digits))

    @property
    def min_minor(self) -> int:
        """Return the minimum price, which buys at least the smallest storable amount of credits."""
        smallest = self.minor(Decimal(1).scaleb(-PLACES))
        return max(int(self.currency.minimum.scaleb(self.currency.digits)), smallest)

    @property
    def max_minor(self) -> int:
        """Return the maximum price, which both the provider and the maximum balance allow."""
        limit = self.minor(MAX_AMOUNT)
        if self.credits(limit) > MAX_AMOUNT:
            limit -= 1
        return min(MAX_AMOUNT_MINOR, limit)


def price_order(
    settings: Settings,
    *,
    currency: str | None,
    amount: Decimal | None,
    credit_amount: Decimal | None,
) -> Price:
    """Return the price of an amount of money, of credits, or both, where 0 counts as missing."""
    known = {each.code: each for each in settings.currencies}
    code = next(iter(known)) if currency is None else currency.upper()
    if code not in known:
        raise errors.TOPUP_CURRENCY(known=", ".join(known))
    rate = CreditRate(known[code], settings.credits_per_usd)
    minor = _price_in_minor_unit(rate, amount, credit_amount)
    place = _AMOUNT if amount else _CREDIT_AMOUNT
    minimum = rate.currency.minimum
    digits = rate.currency.digits
    if minor < int(minimum.scaleb(digits)):
        raise errors.TOPUP_AMOUNT_TOO_SMALL(place=place, least=minimum, currency=code)
    if minor > MAX_AMOUNT_MINOR:
        maximum = Decimal(MAX_AMOUNT_MINOR).scaleb(-digits)
        raise errors.TOPUP_AMOUNT_TOO_LARGE(place=place, most=maximum, currency=code)
    bought = credit_amount or rate.credits(minor)
    if not bought:
        raise errors.TOPUP_BUYS_NOTHING()
    if bought > MAX_AMOUNT:
        raise errors.TOPUP_BUYS_TOO_MUCH()
    paid = Decimal(minor).scaleb(-digits)
    return Price(code, paid, minor, bought, rate.credits_per_usd, rate.currency.per_usd)


def _price_in_minor_unit(
    rate: CreditRate, amount: Decimal | None, credit_amount: Decimal | None
) -> int:
    """Return the price of an order. An amount of money and an amount of credits must match."""
    if not amount and not credit_amount:
        raise errors.TOPUP_AMOUNT_MISSING()
    paid = None
    if amount:
        _check_amount(amount, _AMOUNT)
        currency = rate.currency
        exact = amount.scaleb(currency.digits)
        if exact != int(exact):
            raise errors.TOPUP_AMOUNT_DECIMALS(currency=currency.code, digits=currency.digits)
        paid = int(exact)
    if credit_amount:
        _check_amount(credit_amount, _CREDIT_AMOUNT)
        price = rate.minor(credit_amount)
        if paid is None:
            return price
        if paid != price and rate.credits(paid) != credit_amount:
            raise errors.TOPUP_AMOUNT_MISMATCH()
    assert paid is not None
    return paid


def _check_amount(amount: Decimal, place: str) -> None:
    if not is_storable(amount) or amount < 0:
        raise errors.TOPUP_AMOUNT(place=place, most=MAX_AMOUNT)
