"""The form by which a person buys credits, and what they cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from api.console.of_credits.amounts import credits_text, money_text, typed_amount
from api.console.typed_forms import text_or_none, wrong_field
from api.schemas.topups import prices_of
from api.state import State
from core.refusals.money import TOPUP_CHANNEL, TOPUP_CURRENCY
from integrations.payments.port import PaymentChannel
from services.money.topups import return_urls
from services.money.topups.checkout import OrderRequest

CREDITS, MONEY, CURRENCY, CHANNEL = "credit_amount", "amount", "currency", "channel"
# Beside which field a refusal stands that names none.
PLACES = {TOPUP_CURRENCY.code: CURRENCY, TOPUP_CHANNEL.code: CHANNEL}
_CHANNELS = {PaymentChannel.STRIPE: "Stripe", PaymentChannel.SANDBOX: "The sandbox: no real money"}


@dataclass(frozen=True)
class CreditPrice:
    """What credits cost in one currency."""

    currency: str
    per_unit: str
    least: str
    most: str


def credit_prices(state: State) -> Sequence[CreditPrice]:
    """As the API tells them."""
    prices = prices_of(state.resources.settings, state.payments.configured)
    return [_shown(**each) for each in prices["currencies"]]


def channel_choices(state: State) -> Sequence[tuple[str, str]]:
    return [(str(each), _CHANNELS[each]) for each in state.payments.configured]


def order_request(state: State, form: Mapping[str, str]) -> OrderRequest:
    """What the form asks for: so many credits, or as many as an amount of money buys.

    Its payer comes back to the console. Raises ``body.invalid``.
    """
    bought, paid = typed_amount(form, CREDITS), typed_amount(form, MONEY)
    if bought and paid:
        raise wrong_field(MONEY, "is for those who leave the number of credits empty")
    if not bought and not paid:
        raise wrong_field(CREDITS, "say how many credits you want, or what you want to pay")
    return OrderRequest(
        amount=paid,
        credit_amount=bought,
        currency=text_or_none(form, CURRENCY),
        channel=text_or_none(form, CHANNEL),
        redirect_url=return_urls.console_url(state.resources.settings),
    )


def _shown(
    *,
    currency: str,
    credits_per_unit: Decimal,
    minimum: Decimal,
    maximum: Decimal,
    **_others: object,
) -> CreditPrice:
    return CreditPrice(
        currency,
        credits_text(credits_per_unit),
        money_text(minimum, currency),
        money_text(maximum, currency),
    )
