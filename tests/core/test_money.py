import pytest

from core.money import minor_digits


@pytest.mark.parametrize(
    ("currency", "digits"), [("USD", 2), ("EUR", 2), ("GBP", 2), ("JPY", 0), ("KRW", 0)]
)
def test_amounts_use_the_decimal_places_of_their_currency(currency: str, digits: int) -> None:
    assert minor_digits(currency) == digits


@pytest.mark.parametrize("currency", ["", "usd", "XTS", "ISK", "KWD", "Euro"])
def test_unsupported_payment_currency_is_rejected(currency: str) -> None:
    with pytest.raises(ValueError, match="not a supported currency"):
        minor_digits(currency)
