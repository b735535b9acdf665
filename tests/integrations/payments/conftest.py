from collections.abc import Iterator

import pytest

from devstack.sandbox.stripe.objects import StripeKeys
from integrations.payments.port import OpenedCheckout
from integrations.payments.stripe import StripeCheckout
from tests.support.credits.payment_events import EventReader
from tests.support.credits.payments import (
    SandboxPayments,
    build_checkout,
    connect_adapter,
    running_payment_sandbox,
)
from tests.support.http.webhook_receiver import HookReceiver, running_receiver


@pytest.fixture(scope="package")
def stripe_keys() -> StripeKeys:
    return StripeKeys()


@pytest.fixture(scope="package")
def stripe_receiver(stripe_keys: StripeKeys) -> Iterator[HookReceiver]:
    with running_receiver() as receiver:
        stripe_keys.webhook_url = receiver.url
        yield receiver


@pytest.fixture(scope="package")
def sandbox_url(stripe_keys: StripeKeys, stripe_receiver: HookReceiver) -> Iterator[str]:
    with running_payment_sandbox(stripe_keys) as url:
        yield url


@pytest.fixture
def payment_sandbox(sandbox_url: str) -> Iterator[SandboxPayments]:
    sandbox = SandboxPayments(sandbox_url)
    yield sandbox
    sandbox.mode()
    sandbox.stop_failures()
    sandbox.close()


@pytest.fixture
def account(sandbox_url: str, stripe_keys: StripeKeys) -> StripeCheckout:
    return connect_adapter(f"{sandbox_url}/stripe", stripe_keys)


@pytest.fixture
def opened_checkout(account: StripeCheckout) -> OpenedCheckout:
    return account.open_checkout(build_checkout())


@pytest.fixture
def read_event(
    stripe_receiver: HookReceiver, account: StripeCheckout, payment_sandbox: SandboxPayments
) -> EventReader:
    return EventReader(stripe_receiver, account, payment_sandbox)
