"""Exact amounts in words, and amounts that a person typed."""

import re
from collections.abc import Mapping
from decimal import Decimal

from api.console.typed_forms import wrong_field
from core.money import minor_digits

# Digits, or digits in groups of three as the console writes them.
_TYPED = re.compile(r"(?:\d{1,15}|\d{1,3}(?:,\d{3}){1,4})(?:\.\d{1,15})?", re.ASCII)


def credits_text(amount: Decimal) -> str:
    """As many decimals as it has: "1,234.5"."""
    return f"{amount.normalize():,f}"


def signed_credits(amount: Decimal) -> str:
    # A minus sign, which is as wide as the plus.
    return f"{amount.normalize():+,f}".replace("-", "\N{MINUS SIGN}") if amount else "0"


def money_text(amount: Decimal, currency: str) -> str:
    """With the currency's own decimals: "1,234.50 USD"."""
    return f"{amount:,.{minor_digits(currency)}f} {currency}"


def typed_amount(form: Mapping[str, str], name: str) -> Decimal | None:
    """The amount in this field; ``None`` for nothing. Raises ``body.invalid``."""
    typed = form.get(name, "").strip()
    if not typed:
        return None
    if not _TYPED.fullmatch(typed):
        raise wrong_field(name, "must be a number, such as 500 or 12.5")
    return Decimal(typed.replace(",", ""))
