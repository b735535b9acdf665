"""Exact amounts of money and credits, stored as NUMERIC(15,4) instead of floating-point numbers."""

from decimal import Decimal

PLACES = 4
MAX_AMOUNT = Decimal("99999999999.9999")

# Maps each currency to its number of decimal places in a payment. Pressroom doesn't support ISK,
# MGA and UGX, because ISO 4217 and docs.stripe.com/currencies disagree about their decimal places.
# Pressroom doesn't support currencies with three decimal places, because Stripe accepts only
# amounts whose third decimal place is 0.
_CURRENCIES_WITHOUT_DECIMALS = "BIF CLP DJF GNF JPY KMF KRW PYG RWF VND VUV XAF XOF XPF"
_CURRENCIES_WITH_TWO_DECIMALS = (
    "AED ALL AMD ARS AUD AWG AZN BAM BBD BDT BGN BMD BND BOB BRL BSD BWP BZD CAD CHF CNY COP CRC "
    "CVE CZK DKK DOP DZD EGP ETB EUR FJD GBP GEL GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS INR JMD "
    "KES KGS KHR KYD KZT LAK LBP LKR LRD LSL MAD MDL MKD MMK MNT MOP MUR MVR MWK MXN MYR MZN NAD "
    "NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD SAR SBD SCR SEK SGD SZL THB TJS TOP "
    "TRY TTD TWD TZS UAH USD UYU UZS WST XCD YER ZAR ZMW"
)
_MINOR_DIGITS = {
    **dict.fromkeys(_CURRENCIES_WITHOUT_DECIMALS.split(), 0),
    **dict.fromkeys(_CURRENCIES_WITH_TWO_DECIMALS.split(), 2),
}


def is_storable(amount: Decimal) -> bool:
    # Use ``copy_abs``, because ``abs`` would round the amount and fail on large exponents.
    if not amount.is_finite() or amount.copy_abs() > MAX_AMOUNT:
        return False
    return amount == amount.quantize(Decimal(1).scaleb(-PLACES))


def minor_digits(currency: str) -> int:
    """Return the decimal places, such as 2 for USD. Raise ``ValueError`` for an unknown code."""
    if currency not in _MINOR_DIGITS:
        raise ValueError(f"{currency!r} is not a supported currency")
    return _MINOR_DIGITS[currency]


def format_money(amount: Decimal, currency: str) -> str:
    """Format an amount of money with the decimal places of its currency, as in "1,234.50 USD"."""
    return f"{amount:,.{minor_digits(currency)}f} {currency}"
