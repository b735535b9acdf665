from collections.abc import Iterator

import pytest

from devstack.sandbox.stripe.objects import StripeKeys
from integrations.payments.port import OpenedCheckout
from integrations.payments.stripe import StripeCheckout
from tests.support.credits.payment_events import Reader
from tests.support.credits.payments import SandboxPayments, account_at, an_order, serving
from tests.support.http.webhook_receiver import HookReceiver, hooked


@pytest.fixture(scope="package")
def stripe_keys() -> StripeKeys:
    return StripeKeys()


@pytest.fixture(scope="package")
def stripe_receiver(stripe_keys: StripeKeys) -> Iterator[HookReceiver]:
    with hooked() as receiver:
        stripe_keys.webhook_url = receiver.url
        yield receiver


@pytest.fixture(scope="package")
def sandbox_url(stripe_keys: StripeKeys, stripe_receiver: HookReceiver) -> Iterator[str]:
    with serving(stripe_keys) as url:
        yield url


@pytest.fixture
def payment_sandbox(sandbox_url: str) -> Iterator[SandboxPayments]:
    sandbox = SandboxPayments(sandbox_url)
    yield sandbox
    sandbox.mode()
    sandbox.no_trouble()
    sandbox.close()


@pytest.fixture
def account(sandbox_url: str, stripe_keys: StripeKeys) -> StripeCheckout:
    return account_at(f"{sandbox_url}/stripe", stripe_keys)


@pytest.fixture
def opened_checkout(account: StripeCheckout) -> OpenedCheckout:
    return account.open_checkout(an_order())


@pytest.fixture
def read_event(
    stripe_receiver: HookReceiver, account: StripeCheckout, payment_sandbox: SandboxPayments
) -> Reader:
    return Reader(stripe_receiver, account, payment_sandbox)
