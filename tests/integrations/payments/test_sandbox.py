import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
import stripe

from devstack.harness.stack import plain_client
from devstack.sandbox.stripe.objects import StripeKeys
from integrations.payments.stripe import StripeCheckout
from tests.support.credits.payments import SandboxPayments, build_checkout

ORDER_FORM = {
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
    opened_checkout = account.open_checkout(build_checkout())
    payment_sandbox.pay(opened_checkout.payment_url)
    return payment_sandbox.session(opened_checkout.session_id)


def read_error(reply: httpx2.Response, status: int = 400) -> dict[str, Any]:
    assert reply.status_code == status, reply.text
    assert reply.headers["Request-Id"].startswith("req_")
    error: dict[str, Any] = reply.json()["error"]
    return error


@pytest.mark.parametrize(
    ("changes", "param"),
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
    stripe_client: httpx2.Client, changes: dict[str, str], param: str
) -> None:
    form = {name: v for name, v in ORDER_FORM.items() if name.partition("[")[0] not in changes}
    error = read_error(stripe_client.post("/checkout/sessions", data=form | changes))
    assert (error["type"], error["param"]) == ("invalid_request_error", param)


def test_stripe_sandbox_serves_only_fields_that_stripe_has(
    stripe_client: httpx2.Client, paid_session: dict[str, Any], payment_sandbox: SandboxPayments
) -> None:
    payment_sandbox.dispute(paid_session["id"])
    payment_sandbox.refund(paid_session["id"], 1)
    params = {"payment_intent": paid_session["payment"]}
    path = f"/checkout/sessions/{paid_session['id']}"
    expanded_session = stripe_client.get(
        path, params={"expand[0]": "payment_intent.latest_charge"}
    ).json()
    objects: dict[Any, dict[str, Any]] = {
        stripe.checkout.Session: stripe_client.get(path).json(),
        stripe.PaymentIntent: stripe_client.get(
            f"/payment_intents/{paid_session['payment']}"
        ).json(),
        stripe.Charge: expanded_session["payment_intent"]["latest_charge"],
        stripe.Dispute: stripe_client.get("/disputes", params=params).json()["data"][0],
        stripe.Refund: stripe_client.get("/refunds", params=params).json()["data"][0],
        stripe.Event: payment_sandbox.events(paid_session["id"])[0]["event"],
    }
    for kind, fields in objects.items():
        field_names = {
            name for each in kind.__mro__ for name in getattr(each, "__annotations__", {})
        }
        assert fields.keys() <= field_names, kind
        assert fields["object"] == kind.OBJECT_NAME
