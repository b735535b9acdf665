"""The stand-in's own side of Stripe's protocol, where the adapter doesn't go."""

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import stripe

from devstack.sandbox.stripe.account import MAX_SESSIONS, Account
from devstack.sandbox.stripe.objects import CheckoutSession, StripeKeys
from integrations.payments.stripe import StripeCheckout
from tests.payments import SandboxPayments, an_order
from tests.stack import eventually, plain_client
from tests.webhooks import Receiver

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
def http(sandbox_url: str, keys: StripeKeys) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {keys.secret_key}"}
    with plain_client(base_url=f"{sandbox_url}/stripe/v1", headers=headers) as client:
        yield client


@pytest.fixture
def library(sandbox_url: str, keys: StripeKeys) -> stripe.StripeClient:
    """Stripe's own library as it comes."""
    return stripe.StripeClient(keys.secret_key, base_addresses={"api": f"{sandbox_url}/stripe"})


@pytest.fixture
def paid(account: StripeCheckout, sandbox: SandboxPayments) -> dict[str, Any]:
    opened = account.open(an_order())
    sandbox.pay(opened.payment_url)
    return sandbox.session(opened.session_id)


def refusal(reply: httpx.Response, status: int = 400) -> dict[str, Any]:
    assert reply.status_code == status, reply.text
    assert reply.headers["Request-Id"].startswith("req_")
    error: dict[str, Any] = reply.json()["error"]
    return error


@pytest.mark.parametrize("header", [None, "Basic abc", "Bearer", "Bearer sk_test_of_another"])
def test_without_the_key_nothing_is_told(http: httpx.Client, header: str | None) -> None:
    del http.headers["Authorization"]
    headers = {"Authorization": header} if header else {}
    assert refusal(http.get("/events", headers=headers), 401)["type"] == "invalid_request_error"


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
def test_a_checkout_that_stripe_would_refuse_is_refused(
    http: httpx.Client, changed: dict[str, str], param: str
) -> None:
    form = {name: v for name, v in ORDER.items() if name.partition("[")[0] not in changed}
    error = refusal(http.post("/checkout/sessions", data=form | changed))
    assert (error["type"], error["param"]) == ("invalid_request_error", param)


def test_a_key_answers_the_first_answer_again_and_no_other_request(http: httpx.Client) -> None:
    key = {"Idempotency-Key": "order-once"}
    first = http.post("/checkout/sessions", data=ORDER, headers=key)
    again = http.post("/checkout/sessions", data=ORDER, headers=key)
    assert "Idempotent-Replayed" not in first.headers
    assert again.headers["Idempotent-Replayed"] == "true"
    assert first.json() == again.json()
    other = http.post("/checkout/sessions", data={**ORDER, "metadata[order_id]": "8"}, headers=key)
    assert refusal(other)["type"] == "idempotency_error"
    assert refusal(http.post("/refunds", data=ORDER, headers=key))["type"] == "idempotency_error"
    assert http.post("/checkout/sessions", data=ORDER).json()["id"] != first.json()["id"]


def test_what_was_refused_leaves_its_key_free(http: httpx.Client) -> None:
    key = {"Idempotency-Key": "order-mended"}
    refusal(http.post("/checkout/sessions", data={**ORDER, "mode": "setup"}, headers=key))
    assert http.post("/checkout/sessions", data=ORDER, headers=key).status_code == 200


def test_the_payer_is_sent_back_with_the_sessions_id(
    http: httpx.Client, sandbox: SandboxPayments
) -> None:
    session = http.post("/checkout/sessions", data=ORDER).json()
    assert sandbox.pay(session["id"]).endswith(f"?session={session['id']}")


def test_the_librarys_objects_are_those_that_are_served(
    library: stripe.StripeClient, paid: dict[str, Any]
) -> None:
    session = library.v1.checkout.sessions.retrieve(
        paid["id"], {"expand": ["payment_intent.latest_charge"]}
    )
    assert isinstance(session, stripe.checkout.Session)
    payment = session.payment_intent
    assert isinstance(payment, stripe.PaymentIntent)
    assert isinstance(payment.latest_charge, stripe.Charge)
    assert (payment.amount_received, payment.latest_charge.amount) == (1234, 1234)
    charge = library.v1.charges.retrieve(payment.latest_charge.id, {"expand": ["payment_intent"]})
    assert isinstance(charge.payment_intent, stripe.PaymentIntent)
    alone = library.v1.payment_intents.retrieve(payment.id)
    assert alone.latest_charge == charge.id
    events = library.v1.events.list()
    assert events.data[0].type == "checkout.session.completed"
    assert isinstance(events.data[0], stripe.Event)


def test_every_field_that_is_served_is_one_that_stripe_has(
    http: httpx.Client, paid: dict[str, Any], sandbox: SandboxPayments
) -> None:
    sandbox.dispute(paid["id"])
    shown: dict[Any, dict[str, Any]] = {
        stripe.checkout.Session: http.get(f"/checkout/sessions/{paid['id']}").json(),
        stripe.PaymentIntent: http.get(f"/payment_intents/{paid['payment']}").json(),
        stripe.Charge: http.get(f"/charges/{paid['charge']}").json(),
        stripe.Dispute: http.get("/disputes", params={"payment_intent": paid["payment"]}).json()[
            "data"
        ][0],
        stripe.Refund: http.post("/refunds", data={"charge": paid["charge"], "amount": "1"}).json(),
        stripe.Event: sandbox.events(paid["id"])[0]["event"],
    }
    for kind, fields in shown.items():
        known = {name for each in kind.__mro__ for name in getattr(each, "__annotations__", {})}
        assert fields.keys() <= known, kind
        assert fields["object"] == kind.OBJECT_NAME


def test_refunds_are_given_by_the_api_too_and_never_more_than_was_paid(
    library: stripe.StripeClient, paid: dict[str, Any]
) -> None:
    refund = library.v1.refunds.create({"payment_intent": paid["payment"], "amount": 34})
    assert (refund.amount, refund.status) == (34, "succeeded")
    with pytest.raises(stripe.InvalidRequestError):
        library.v1.refunds.create({"payment_intent": paid["payment"], "amount": 1201})
    assert library.v1.refunds.create({"charge": paid["charge"]}).amount == 1200
    with pytest.raises(stripe.InvalidRequestError) as refused:
        library.v1.refunds.create({"charge": paid["charge"]})
    assert refused.value.code == "charge_already_refunded"


@pytest.mark.parametrize(
    "path", ["/checkout/sessions/cs_test_x", "/payment_intents/pi_x", "/charges/ch_x"]
)
def test_what_is_not_there_is_missing(http: httpx.Client, path: str) -> None:
    assert refusal(http.get(path), 404)["code"] == "resource_missing"


def test_what_can_not_be_expanded_is_refused(http: httpx.Client, paid: dict[str, Any]) -> None:
    path = f"/checkout/sessions/{paid['id']}"
    for each in ("customer", "payment_intent.nothing", "payment_intent.latest_charge.dispute"):
        refusal(http.get(path, params={"expand[]": each}))


def test_an_event_that_is_not_taken_comes_again_newly_signed(
    sandbox: SandboxPayments, receiver: Receiver, paid: dict[str, Any]
) -> None:
    receiver.next("checkout.session.completed", paid["id"])
    receiver.statuses[:] = [500, 404]
    sandbox.refund(paid["id"])
    sent = [receiver.next("charge.refunded", paid["payment"]) for _ in range(3)]
    assert len({each.body for each in sent}) == 1

    def attempts() -> bool:
        return bool(sandbox.events(paid["id"])[-1]["attempts"] == [500, 404, 200])

    eventually(attempts, what="the third attempt")


def test_held_events_go_nowhere_until_they_are_released_as_often_as_told(
    sandbox: SandboxPayments, receiver: Receiver, paid: dict[str, Any]
) -> None:
    receiver.next("checkout.session.completed", paid["id"])
    sandbox.hold()
    sandbox.refund(paid["id"])
    sandbox.mode()
    sandbox.inquire(paid["id"])
    # What happened later has arrived, so the other would have, too.
    receiver.next("charge.dispute.created", paid["payment"])
    [_, held, _] = sandbox.events(paid["id"])
    assert (held["is_held"], held["attempts"]) == (True, [])
    assert sandbox.release(times=3, shuffle=True) == 1
    assert len({receiver.next("charge.refunded", paid["payment"]).body for _ in range(3)}) == 1
    assert sandbox.release() == 0


def test_an_event_is_delivered_with_another_amount_and_currency(
    sandbox: SandboxPayments, receiver: Receiver, paid: dict[str, Any]
) -> None:
    receiver.next("checkout.session.completed", paid["id"])
    [event] = sandbox.events(paid["id"])
    assert sandbox.deliver(event, amount=99, currency="EUR", times=2) == [200, 200]
    changed = receiver.next("checkout.session.completed", paid["id"]).body
    assert b'"amount_total": 99' in changed
    assert b'"currency": "eur"' in changed
    # The event itself stays what it was.
    assert sandbox.events(paid["id"])[0]["event"]["data"]["object"]["amount_total"] == 1234


def test_what_can_not_happen_is_refused(sandbox: SandboxPayments, paid: dict[str, Any]) -> None:
    for impossible in (sandbox.expire, sandbox.settle, sandbox.win, sandbox.decline):
        with pytest.raises(httpx.HTTPStatusError, match="409"):
            impossible(paid["id"])
    sandbox.dispute(paid["id"], 1000)
    with pytest.raises(httpx.HTTPStatusError, match="409"):
        sandbox.dispute(paid["id"], 235)
    sandbox.dispute(paid["id"], 234)
    with pytest.raises(httpx.HTTPStatusError, match="409"):
        sandbox.dispute(paid["id"])
    with pytest.raises(httpx.HTTPStatusError, match="409"):
        sandbox.win(paid["id"], 3)


def test_each_dispute_of_a_payment_ends_by_itself(
    sandbox: SandboxPayments, paid: dict[str, Any]
) -> None:
    sandbox.dispute(paid["id"], 234)
    sandbox.dispute(paid["id"])
    sandbox.lose(paid["id"], 1000)
    assert sandbox.session(paid["id"])["disputes"] == ["needs_response", "lost"]
    sandbox.win(paid["id"])
    assert sandbox.session(paid["id"])["disputes"] == ["won", "lost"]
    # What was won can be disputed once more.
    sandbox.dispute(paid["id"], 234)


def test_a_checkout_that_nobody_pays_expires_at_its_end_by_itself() -> None:
    told: list[str] = []
    account = Account(lambda kind, _, session_id: told.append(f"{kind} {session_id}"))
    sessions = [a_session(expires_at) for expires_at in (100, 101)]
    for each in sessions:
        account.keep(each)
    account.expire_due(99)
    assert told == []
    account.expire_due(100)
    account.expire_due(100)
    assert told == [f"checkout.session.expired {sessions[0].id}"]
    assert [each.status for each in sessions] == ["expired", "open"]


def test_the_oldest_checkout_is_forgotten_when_there_are_too_many() -> None:
    account = Account(lambda *_: None)
    sessions = [a_session(0) for _ in range(MAX_SESSIONS + 1)]
    for each in sessions:
        account.keep(each)
    assert account.session(sessions[0].id) is None
    assert account.session(sessions[1].id) is sessions[1]


def a_session(expires_at: int) -> CheckoutSession:
    return CheckoutSession(
        amount=1,
        currency="usd",
        name="Credits",
        reference=None,
        metadata={},
        payment_metadata={},
        payment_description=None,
        success_url="http://127.0.0.1:9/",
        cancel_url=None,
        expires_at=expires_at,
    )
