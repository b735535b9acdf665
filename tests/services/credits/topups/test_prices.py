from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from core.errors import DomainError
from core.money import MAX_AMOUNT, is_storable
from core.settings import Settings
from core.settings.notations import DEFAULT_CURRENCIES, Currency, parse_currencies
from services.credits.prices import MAX_AMOUNT_MINOR, CreditRate, Price, price_order


def create_settings(currencies: str = DEFAULT_CURRENCIES, credits_per_usd: str = "100") -> Settings:
    return Settings.model_construct(
        currencies=parse_currencies(currencies), credits_per_usd=Decimal(credits_per_usd)
    )


def price_topup(
    currency: str | None = "USD",
    amount: str | None = None,
    credit_amount: str | None = None,
    settings: Settings | None = None,
) -> Price:
    return price_order(
        settings or create_settings(),
        currency=currency,
        amount=None if amount is None else Decimal(amount),
        credit_amount=None if credit_amount is None else Decimal(credit_amount),
    )


@pytest.mark.parametrize(
    ("code", "currency", "amount", "credit_amount"),
    [
        ("topup.amount_missing", "USD", None, None),
        ("topup.amount_missing", "USD", "0", None),
        ("topup.amount_missing", "USD", "0", "0"),
        ("topup.amount", "USD", "-1", None),
        ("topup.amount", "USD", "-5", "500"),
        ("topup.amount", "USD", None, "-1"),
        ("topup.amount", "USD", "1.001", None),
        ("topup.amount", "JPY", "100.5", None),
        ("topup.amount", "USD", "1e-9", None),
        ("topup.amount", "USD", "1e99", None),
        ("topup.amount", "USD", "Infinity", None),
        ("topup.amount", "USD", None, "1.00001"),
        ("topup.amount", "USD", None, "1e999999"),
        ("topup.amount_mismatch", "USD", "5", "501"),
        ("topup.amount_mismatch", "USD", "5", "499"),
        ("topup.amount_mismatch", "EUR", "1", "109"),
        ("topup.amount_too_small", "USD", "0.49", None),
        ("topup.amount_too_small", "USD", None, "49"),
        ("topup.amount_too_small", "JPY", "99", None),
        ("topup.amount_too_large", "USD", "1000000", None),
        ("topup.amount_too_large", "JPY", "100000000", None),
        ("topup.amount_too_large", "USD", None, "99999999.0001"),
        ("topup.currency", "CHF", "5", None),
        ("topup.currency", "", "5", None),
    ],
)
def test_invalid_topup_amount_or_currency_is_rejected_with_its_field(
    code: str, currency: str, amount: str | None, credit_amount: str | None
) -> None:
    with pytest.raises(DomainError) as error:
        price_topup(currency, amount, credit_amount)
    assert error.value.code == code
    [problem] = error.value.problems
    assert problem.field in {"body.amount", "body.credit_amount", "body.currency"}


def test_topup_that_buys_no_or_too_many_credits_is_rejected() -> None:
    with pytest.raises(DomainError, match="too small to buy any credits"):
        price_topup(amount="0.50", settings=create_settings(credits_per_usd="0.0001"))
    with pytest.raises(DomainError, match="more credits than an account can hold"):
        price_topup(amount="999999", settings=create_settings(credits_per_usd="99999999999"))


@given(
    code=st.sampled_from(["USD", "EUR", "JPY"]),
    per_usd=st.decimals("0.0001", 1000, places=4),
    minimum=st.integers(1, 1000),
    credits_per_usd=st.decimals("0.0001", 1_000_000, places=4),
)
def test_topup_accepts_minimum_and_maximum_amount_and_rejects_amounts_beyond(
    code: str, per_usd: Decimal, minimum: int, credits_per_usd: Decimal
) -> None:
    settings = create_settings(f"{code}:{per_usd}:{minimum}", str(credits_per_usd))
    rate = CreditRate(settings.currencies[0], credits_per_usd)
    min_minor = rate.min_minor
    max_minor = rate.max_minor

    def is_accepted(minor: int) -> bool:
        amount = Decimal(minor).scaleb(-rate.currency.digits)
        try:
            price_order(settings, currency=code, amount=amount, credit_amount=None)
        except DomainError:
            return False
        return True

    if min_minor <= max_minor:
        assert is_accepted(min_minor)
        assert is_accepted(max_minor)
    assert not is_accepted(min_minor - 1)
    assert not is_accepted(max_minor + 1)


def test_topup_accepts_amount_and_credits_that_match_after_rounding() -> None:
    # 100 credits cost 0.92 EUR; 1 EUR buys 108.6956, which cost 1 EUR.
    for amount, credit_amount in (("0.92", "100"), ("1", "108.6956"), ("0.5", "54.3478")):
        price = price_topup("EUR", amount, credit_amount)
        assert (price.amount, price.credit_amount) == (Decimal(amount), Decimal(credit_amount))
    assert price_topup("USD", "0", "500").amount == 5


rates = st.decimals("0.0001", "100000", places=4)
codes = st.sampled_from(["USD", "JPY", "KWD", "EUR"]).filter(lambda code: code != "KWD")
credit_rates = st.builds(
    CreditRate,
    st.builds(Currency, codes, rates, st.just(Decimal(1))),
    rates.filter(lambda rate: rate > 0),
)


def calculate_worth(rate: CreditRate, minor: int) -> Fraction:
    units = Fraction(minor, 10**rate.currency.digits)
    return units / Fraction(rate.currency.per_usd) * Fraction(rate.credits_per_usd)


@given(credit_rates, st.integers(1, MAX_AMOUNT_MINOR))
def test_topup_money_never_buys_more_credits_than_it_is_worth(rate: CreditRate, minor: int) -> None:
    bought_credits = rate.credits(minor)
    assert 0 <= calculate_worth(rate, minor) - Fraction(bought_credits) < Fraction(1, 10_000)
    if is_storable(bought_credits) and bought_credits:
        # The money that bought some credits must be enough to pay for an order of exactly these
        # credits.
        assert rate.minor(bought_credits) <= minor


@given(credit_rates, st.decimals("0.0001", MAX_AMOUNT, places=4))
def test_topup_credits_never_cost_less_than_they_are_worth(
    rate: CreditRate, credit_amount: Decimal
) -> None:
    minor = rate.minor(credit_amount)
    assert (
        calculate_worth(rate, minor) >= Fraction(credit_amount) > calculate_worth(rate, minor - 1)
    )
    assert rate.credits(minor) >= credit_amount


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("currencies", "USD"),
        ("currencies", "USD:1"),
        ("currencies", "usd:1:1"),
        ("currencies", "XTS:1:1"),
        ("currencies", "USD:0:1"),
        ("currencies", "USD:-1:1"),
        ("currencies", "USD:1:0.001"),
        ("currencies", "JPY:150:0.5"),
        ("currencies", "USD:1:1,USD:2:1"),
        ("currencies", "USD:NaN:1"),
        ("currencies", ","),
        ("credits_per_usd", "0"),
        ("credits_per_usd", "-1"),
        ("credits_per_usd", "1.00001"),
        ("redirect_origins", "example.com"),
        ("redirect_origins", "https://example.com/path"),
        ("redirect_origins", "https://user@example.com"),
        ("redirect_origins", "ftp://example.com"),
        ("redirect_origins", "https://example.com:99999"),
        ("redirect_origins", "https://*.example.com"),
    ],
)
def test_invalid_topup_setting_is_rejected_by_name(name: str, value: str) -> None:
    with pytest.raises(ValidationError) as raised:
        Settings.model_validate({name: value})
    assert name in {error["loc"][0] for error in raised.value.errors()}
