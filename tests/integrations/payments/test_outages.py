import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from core.errors import DomainError, TransientError
from devstack.sandbox.stripe.objects import StripeKeys
from integrations.payments.port import OpenedCheckout
from integrations.payments.stripe import StripeCheckout
from tests.support.credits.payments import SandboxPayments, build_checkout, connect_adapter
from tests.support.http.servers import Listener, trickling_server

# The tests in this module wait for timeouts.
pytestmark = pytest.mark.slow

# The timeout of one attempt to call the payment provider. The adapter attempts each call twice, and
# pauses between the attempts.
ATTEMPT_SECONDS = 0.4
# The maximum duration of a call to a server that sends an endless response in small pieces.
HANG_SECONDS = 50.0


@pytest.fixture
def impatient_account(sandbox_url: str, stripe_keys: StripeKeys) -> StripeCheckout:
    """The Stripe account of the fixture `account`, with a shorter timeout per attempt."""
    return connect_adapter(f"{sandbox_url}/stripe", stripe_keys, attempt_seconds=ATTEMPT_SECONDS)


@pytest.mark.parametrize("status", [500, 502, 503, 409, 429])
def test_payment_provider_5xx_409_and_429_are_reported_as_transient(
    account: StripeCheckout,
    payment_sandbox: SandboxPayments,
    opened_checkout: OpenedCheckout,
    status: int,
) -> None:
    payment_sandbox.fail_next_calls(status=status, count=2)
    with pytest.raises(TransientError, match=str(status)):
        account.fetch_evidence(opened_checkout.session_id)
    payment_sandbox.stop_failures()
    assert (
        account.fetch_evidence(opened_checkout.session_id).session_id == opened_checkout.session_id
    )


def test_payment_provider_call_is_tried_twice_at_most(
    account: StripeCheckout, payment_sandbox: SandboxPayments, opened_checkout: OpenedCheckout
) -> None:
    payment_sandbox.fail_next_calls(status=500, count=3)
    with pytest.raises(TransientError):
        account.close_checkout(opened_checkout.session_id)
    account.close_checkout(opened_checkout.session_id)
    assert payment_sandbox.session(opened_checkout.session_id)["status"] == "expired"


@pytest.mark.parametrize("status", [500, None], ids=["broken", "slow"])
def test_checkout_is_opened_only_once_after_lost_response(
    impatient_account: StripeCheckout, payment_sandbox: SandboxPayments, status: int | None
) -> None:
    order = build_checkout()
    seconds = 0.0 if status else 60.0
    payment_sandbox.fail_next_calls(status=status, seconds=seconds, count=2, when="after")
    with pytest.raises(TransientError):
        impatient_account.open_checkout(order)
    payment_sandbox.stop_failures()
    opened_checkout = impatient_account.open_checkout(order)
    sessions = [
        each for each in payment_sandbox.sessions() if each["order_id"] == str(order.order_id)
    ]
    assert [each["id"] for each in sessions] == [opened_checkout.session_id]


def test_unreachable_payment_provider_is_a_transient_error(stripe_keys: StripeKeys) -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        account = connect_adapter(f"http://127.0.0.1:{reserved.getsockname()[1]}", stripe_keys)
        for call in (account.fetch_evidence, account.close_checkout, account.find_order_id):
            with pytest.raises(TransientError, match="APIConnectionError"):
                call("cs_test_1")


_OK_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    ("head", "drip"),
    [(_OK_HEAD + b"Content-Length: 1000\r\n\r\n", b" "), (_OK_HEAD + b"X-Slow: ", b"a")],
    ids=["body", "head"],
)
def test_trickling_payment_provider_response_times_out(
    head: bytes, drip: bytes, stripe_keys: StripeKeys
) -> None:
    start = time.monotonic()
    with trickling_server(head, drip) as url, pytest.raises(TransientError):
        connect_adapter(url, stripe_keys, attempt_seconds=ATTEMPT_SECONDS).fetch_evidence(
            "cs_test_1"
        )
    assert time.monotonic() - start < HANG_SECONDS


@contextmanager
def serving_answer(answer: bytes, stripe_keys: StripeKeys) -> Iterator[StripeCheckout]:
    with Listener(answer=answer).listening() as server:
        yield connect_adapter(f"http://{server.address}:{server.port}", stripe_keys)


@pytest.mark.parametrize(
    "answer",
    [
        _OK_HEAD + b"Content-Length: 15\r\n\r\n<title>Busy</t>",
        b"HTTP/1.1 503 Gone\r\nContent-Length: 4\r\n\r\nbusy",
        b"",
        b"nonsense\r\n\r\n",
        _OK_HEAD + b"Content-Length: 5000002\r\n\r\n{}" + b" " * 5_000_000,
    ],
    ids=["page", "503", "nothing", "nonsense", "endless"],
)
def test_invalid_payment_provider_response_is_a_transient_error(
    answer: bytes, stripe_keys: StripeKeys
) -> None:
    with serving_answer(answer, stripe_keys) as account, pytest.raises(TransientError):
        account.fetch_evidence("cs_test_1")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno",
    ],
    ids=["redirect", "404"],
)
def test_payment_provider_redirect_or_404_is_a_permanent_error(
    answer: bytes, stripe_keys: StripeKeys
) -> None:
    with serving_answer(answer, stripe_keys) as account, pytest.raises(DomainError) as error:
        account.fetch_evidence("cs_test_1")
    assert error.value.code == "payments.refused"


def test_concurrent_threads_can_share_one_stripe_account(
    account: StripeCheckout, payment_sandbox: SandboxPayments
) -> None:
    with ThreadPoolExecutor(16) as threads:
        session_ids = set(
            threads.map(lambda _: account.open_checkout(build_checkout()).session_id, range(16))
        )
    assert len(session_ids) == 16
    assert session_ids <= {each["id"] for each in payment_sandbox.sessions()}
