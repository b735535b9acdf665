"""Exact amounts: NUMERIC(15,4), read from JSON text and never rounded to binary fractions."""

from decimal import Decimal

PLACES = 4
MAX_AMOUNT = Decimal("99999999999.9999")

# The decimals of each currency in a payment (ISO 4217 and docs.stripe.com/currencies). The table
# leaves out currencies on which the two sources disagree (ISK, MGA, UGX), and those with three
# decimals, since Stripe accepts only a zero as the third.
_WITH_NONE = "BIF CLP DJF GNF JPY KMF KRW PYG RWF VND VUV XAF XOF XPF"
_WITH_TWO = (
    "AED ALL AMD ARS AUD AWG AZN BAM BBD BDT BGN BMD BND BOB BRL BSD BWP BZD CAD CHF CNY COP CRC "
    "CVE CZK DKK DOP DZD EGP ETB EUR FJD GBP GEL GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS INR JMD "
    "KES KGS KHR KYD KZT LAK LBP LKR LRD LSL MAD MDL MKD MMK MNT MOP MUR MVR MWK MXN MYR MZN NAD "
    "NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD SAR SBD SCR SEK SGD SZL THB TJS TOP "
    "TRY TTD TWD TZS UAH USD UYU UZS WST XCD YER ZAR ZMW"
)
_MINOR_DIGITS = dict.fromkeys(_WITH_NONE.split(), 0) | dict.fromkeys(_WITH_TWO.split(), 2)


def is_storable(amount: Decimal) -> bool:
    """Return whether the amount is finite, has at most four decimals and fits NUMERIC(15,4)."""
    # Copying and comparing don't round; ``abs`` does, and fails on exponents that JSON may have.
    if not amount.is_finite() or amount.copy_abs() > MAX_AMOUNT:
        return False
    return amount == amount.quantize(Decimal(1).scaleb(-PLACES))


def minor_digits(currency: str) -> int:
    """Return the decimals of a currency's smallest payable unit: 2 for USD (cents), 0 for JPY.

    Raises ``ValueError`` for an unknown code; codes are three capital letters.
    """
    if currency not in _MINOR_DIGITS:
        raise ValueError(f"{currency!r} is no currency that can be paid in")
    return _MINOR_DIGITS[currency]
