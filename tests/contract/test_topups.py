from collections.abc import Iterator

import httpx
import pytest

from tests.contract import topups
from tests.contract.credits import balance
from tests.payments import SandboxPayments
from tests.stack import Stack


@pytest.fixture
def sandbox(stack: Stack) -> Iterator[SandboxPayments]:
    running = SandboxPayments(stack.sandbox_url)
    yield running
    running.mode()
    running.no_trouble()
    running.close()


def test_paid_order_is_credited(
    stack: Stack, client: httpx.Client, sandbox: SandboxPayments
) -> None:
    order = topups.ordered(client, '"amount": 5')
    print(order)
    sandbox.pay(order["order_id"])
    topups.await_status(stack, order["order_id"], "paid")
    assert balance(client) == 500
