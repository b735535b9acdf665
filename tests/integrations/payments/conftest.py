import itertools
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest
import uvicorn
from pydantic import SecretStr

from core import clock
from devstack.ports import LOOPBACK
from devstack.sandbox.app import create_app
from devstack.sandbox.providers import payments
from devstack.sandbox.stripe.keys import Keys
from devstack.sandbox.stripe.server import StripeServer
from integrations.payments.port import Channel, Checkout, OpenedCheckout
from integrations.payments.stripe_checkout import StripeCheckout
from tests.integrations.payments.receiver import Receiver, receiving
from tests.payments import SandboxPayments
from tests.stack import eventually

RETURN_URL = "http://127.0.0.1:9/back?order=1"
_orders = itertools.count(1)


@pytest.fixture(scope="package")
def keys() -> Keys:
    return Keys()


@pytest.fixture(scope="package")
def receiver(keys: Keys) -> Iterator[Receiver]:
    with receiving() as running:
        keys.webhook_url = running.url
        yield running


@pytest.fixture(scope="package")
def sandbox_url(keys: Keys, receiver: Receiver) -> Iterator[str]:
    app = create_app((payments(StripeServer(keys)),))
    config = uvicorn.Config(app, host=LOOPBACK, port=0, log_config=None)
    server = uvicorn.Server(config)
    # Nobody waits for an answer that a test has given up.
    config.timeout_graceful_shutdown = 1
    thread = threading.Thread(target=server.run)
    thread.start()
    eventually(lambda: server.started, what="the sandbox")
    yield f"http://{LOOPBACK}:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


@pytest.fixture
def sandbox(sandbox_url: str) -> Iterator[SandboxPayments]:
    running = SandboxPayments(sandbox_url)
    yield running
    running.mode()
    running.no_trouble()
    running.close()


@pytest.fixture
def account(sandbox_url: str, keys: Keys) -> StripeCheckout:
    return account_at(f"{sandbox_url}/stripe", keys)


@pytest.fixture
def opened(account: StripeCheckout) -> OpenedCheckout:
    return account.open(an_order())


def account_at(url: str, keys: Keys, **chosen: float) -> StripeCheckout:
    return StripeCheckout(
        Channel.SANDBOX,
        base_url=url,
        secret_key=SecretStr(keys.secret_key),
        webhook_secret=SecretStr(keys.webhook_secret),
        **chosen,
    )


def an_order(
    amount: int = 1234, currency: str = "USD", lasting: timedelta = timedelta(hours=2)
) -> Checkout:
    """Each has a number of its own."""
    return Checkout(
        order_id=next(_orders),
        amount_minor=amount,
        currency=currency,
        description="1,234 credits",
        return_url=RETURN_URL,
        expires_at=clock.now() + lasting,
    )
