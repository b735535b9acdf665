"""Exact amounts: NUMERIC(15,4), read from JSON text and never through binary fractions."""

from decimal import Decimal

PLACES = 4
LARGEST = Decimal("99999999999.9999")


def is_storable(amount: Decimal) -> bool:
    """Whether it is finite, has at most four decimals and fits NUMERIC(15,4)."""
    # Copying and comparing do not round; ``abs`` does, and breaks on exponents that JSON may have.
    if not amount.is_finite() or amount.copy_abs() > LARGEST:
        return False
    return amount == amount.quantize(Decimal(1).scaleb(-PLACES))
