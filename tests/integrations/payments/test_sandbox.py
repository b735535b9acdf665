import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
import stripe

from devstack.harness.stack import plain_client
from devstack.sandbox.stripe.objects import StripeKeys
from integrations.payments.stripe import StripeCheckout
from tests.support.credits.payments import SandboxPayments, an_order

ORDER = {
    "mode": "payment",
    "line_items[0][quantity]": "1",
    "line_items[0][price_data][currency]": "usd",
    "line_items[0][price_data][unit_amount]": "500",
    "line_items[0][price_data][product_data][name]": "Credits",
    "metadata[order_id]": "7",
    "success_url": "http://127.0.0.1:9/back?session={CHECKOUT_SESSION_ID}",
}


@pytest.fixture
def stripe_client(sandbox_url: str, stripe_keys: StripeKeys) -> Iterator[httpx2.Client]:
    headers = {"Authorization": f"Bearer {stripe_keys.secret_key}"}
    with plain_client(base_url=f"{sandbox_url}/stripe/v1", headers=headers) as client:
        yield client


@pytest.fixture
def paid_session(account: StripeCheckout, payment_sandbox: SandboxPayments) -> dict[str, Any]:
    opened_checkout = account.open_checkout(an_order())
    payment_sandbox.pay(opened_checkout.payment_url)
    return payment_sandbox.session(opened_checkout.session_id)


def rejection(reply: httpx2.Response, status: int = 400) -> dict[str, Any]:
    assert reply.status_code == status, reply.text
    assert reply.headers["Request-Id"].startswith("req_")
    error: dict[str, Any] = reply.json()["error"]
    return error


@pytest.mark.parametrize(
    ("changed", "param"),
    [
        ({"mode": "subscription"}, "mode"),
        ({"mode": ""}, "mode"),
        ({"surprise": "1"}, "surprise"),
        ({"success_url": "javascript:alert(1)"}, "success_url"),
        ({"expires_at": str(int(time.time()) + 60)}, "expires_at"),
        ({"expires_at": str(int(time.time()) + 3 * 86400)}, "expires_at"),
        ({"line_items[0][price_data][unit_amount]": "5.5"}, "unit_amount"),
        ({"line_items[0][price_data][unit_amount]": "0"}, "unit_amount"),
        ({"line_items[0][price_data][unit_amount]": "100000000"}, "unit_amount"),
        ({"line_items[0][price_data][currency]": "USD"}, "currency"),
        ({"line_items[1][quantity]": "1"}, "line_items"),
        ({"metadata": "7"}, "metadata"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_stripe_sandbox_rejects_checkouts_that_stripe_would_reject(
    stripe_client: httpx2.Client, changed: dict[str, str], param: str
) -> None:
    form = {name: v for name, v in ORDER.items() if name.partition("[")[0] not in changed}
    error = rejection(stripe_client.post("/checkout/sessions", data=form | changed))
    assert (error["type"], error["param"]) == ("invalid_request_error", param)


def test_stripe_sandbox_serves_only_fields_that_stripe_has(
    stripe_client: httpx2.Client, paid_session: dict[str, Any], payment_sandbox: SandboxPayments
) -> None:
    payment_sandbox.dispute(paid_session["id"])
    payment_sandbox.refund(paid_session["id"], 1)
    of_payment = {"payment_intent": paid_session["payment"]}
    path = f"/checkout/sessions/{paid_session['id']}"
    whole = stripe_client.get(path, params={"expand[0]": "payment_intent.latest_charge"}).json()
    shown: dict[Any, dict[str, Any]] = {
        stripe.checkout.Session: stripe_client.get(path).json(),
        stripe.PaymentIntent: stripe_client.get(
            f"/payment_intents/{paid_session['payment']}"
        ).json(),
        stripe.Charge: whole["payment_intent"]["latest_charge"],
        stripe.Dispute: stripe_client.get("/disputes", params=of_payment).json()["data"][0],
        stripe.Refund: stripe_client.get("/refunds", params=of_payment).json()["data"][0],
        stripe.Event: payment_sandbox.events(paid_session["id"])[0]["event"],
    }
    for kind, fields in shown.items():
        known = {name for each in kind.__mro__ for name in getattr(each, "__annotations__", {})}
        assert fields.keys() <= known, kind
        assert fields["object"] == kind.OBJECT_NAME
