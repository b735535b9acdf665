from collections.abc import Iterator

import pytest

from devstack.sandbox.stripe.objects import StripeKeys
from integrations.payments.port import OpenedCheckout
from integrations.payments.stripe import StripeCheckout
from tests.support.credits.payment_events import Reader
from tests.support.credits.payments import SandboxPayments, account_at, an_order, serving
from tests.support.http.webhook_receiver import HookReceiver, hooked


@pytest.fixture(scope="package")
def keys() -> StripeKeys:
    return StripeKeys()


@pytest.fixture(scope="package")
def receiver(keys: StripeKeys) -> Iterator[HookReceiver]:
    with hooked() as running:
        keys.webhook_url = running.url
        yield running


@pytest.fixture(scope="package")
def sandbox_url(keys: StripeKeys, receiver: HookReceiver) -> Iterator[str]:
    with serving(keys) as url:
        yield url


@pytest.fixture
def sandbox(sandbox_url: str) -> Iterator[SandboxPayments]:
    running = SandboxPayments(sandbox_url)
    yield running
    running.mode()
    running.no_trouble()
    running.close()


@pytest.fixture
def account(sandbox_url: str, keys: StripeKeys) -> StripeCheckout:
    return account_at(f"{sandbox_url}/stripe", keys)


@pytest.fixture
def opened(account: StripeCheckout) -> OpenedCheckout:
    return account.open(an_order())


@pytest.fixture
def read(receiver: HookReceiver, account: StripeCheckout, sandbox: SandboxPayments) -> Reader:
    return Reader(receiver, account, sandbox)
