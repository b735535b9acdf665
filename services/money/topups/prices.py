"""The price of credits, computed exactly: in fractions, rounded once at the end, in our favour.

Money is rounded up to the minor unit and credits down to four decimals, so that no order gives
more credits than were paid.
"""

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from core.money import MAX_AMOUNT, PLACES, is_storable
from core.refusals import money as refusals
from core.settings import Settings
from core.settings.currencies import Currency

# The most that Stripe takes: eight digits of the minor unit.
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
    """Converts money to credits, and credits to money."""

    currency: Currency
    credits_per_usd: Decimal

    @property
    def _credits_per_unit(self) -> Fraction:
        return Fraction(self.credits_per_usd) / Fraction(self.currency.per_usd)

    def credits(self, minor: int) -> Decimal:
        """Return the credits that an amount in the minor unit buys, rounded down."""
        bought = Fraction(minor, 10**self.currency.digits) * self._credits_per_unit
        return Decimal(math.floor(bought * 10**PLACES)).scaleb(-PLACES)

    def minor(self, credit_amount: Decimal) -> int:
        """Return the price of credits in the minor unit, rounded up."""
        units = Fraction(credit_amount) / self._credits_per_unit
        return math.ceil(units * int(10**self.currency.digits))


def price(
    settings: Settings,
    *,
    currency: str | None,
    amount: Decimal | None,
    credit_amount: Decimal | None,
) -> Price:
    """Price an order by its money, its credits or both; 0 counts as not given.

    Raises ``topup.currency``, ``topup.amount``, ``topup.amount_missing``,
    ``topup.amount_mismatch``, ``topup.amount_too_small``, ``topup.amount_too_large``.
    """
    rate = CreditRate(_currency(settings, currency), settings.credits_per_usd)
    if not amount and not credit_amount:
        raise refusals.TOPUP_AMOUNT_MISSING()
    minor = None
    if amount:
        _check_amount(amount, _AMOUNT)
        exact = amount.scaleb(rate.currency.digits)
        if exact != int(exact):
            code, digits = rate.currency.code, rate.currency.digits
            raise refusals.TOPUP_AMOUNT_DECIMALS(currency=code, digits=digits)
        minor = int(exact)
    if credit_amount:
        _check_amount(credit_amount, _CREDIT_AMOUNT)
        minor = _agreed(rate, minor, credit_amount)
    assert minor is not None
    _check_bounds(rate.currency, minor, _CREDIT_AMOUNT if not amount else _AMOUNT)
    bought = credit_amount or rate.credits(minor)
    if not bought:
        raise refusals.TOPUP_BUYS_NOTHING()
    if bought > MAX_AMOUNT:
        raise refusals.TOPUP_BUYS_TOO_MUCH()
    paid = Decimal(minor).scaleb(-rate.currency.digits)
    return Price(rate.currency, paid, minor, bought, rate.credits_per_usd)


def _currency(settings: Settings, code: str | None) -> Currency:
    if code is None:
        return settings.currencies[0]
    for currency in settings.currencies:
        if currency.code == code.upper():
            return currency
    known = ", ".join(currency.code for currency in settings.currencies)
    raise refusals.TOPUP_CURRENCY(known=known)


def _check_amount(amount: Decimal, place: str) -> None:
    if not is_storable(amount) or amount < 0:
        raise refusals.TOPUP_AMOUNT(place=place, most=MAX_AMOUNT)


def _agreed(rate: CreditRate, minor: int | None, credit_amount: Decimal) -> int:
    """Return the price of the credits; a caller that sends both computed one from the other."""
    price = rate.minor(credit_amount)
    if minor is None or minor == price:
        return price
    if rate.credits(minor) == credit_amount:
        return minor
    raise refusals.TOPUP_AMOUNT_MISMATCH()


def _check_bounds(currency: Currency, minor: int, place: str) -> None:
    if minor < int(currency.minimum.scaleb(currency.digits)):
        raise refusals.TOPUP_AMOUNT_TOO_SMALL(
            place=place, least=currency.minimum, currency=currency.code
        )
    if minor > MAX_AMOUNT_MINOR:
        most = Decimal(MAX_AMOUNT_MINOR).scaleb(-currency.digits)
        raise refusals.TOPUP_AMOUNT_TOO_LARGE(place=place, most=most, currency=currency.code)
