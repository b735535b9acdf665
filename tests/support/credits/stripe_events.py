"""Builds events of a payment provider, and posts them as signed webhooks in any order."""

import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from itertools import count
from typing import Any
from urllib.parse import parse_qs

import httpx2

from core import clock, ids
from devstack.harness.stack import Stack
from integrations.payments.port import PaymentChannel
from models import PaymentOrder
from services.credits import claim_tokens, verify
from tests.support.http.servers import QuietHandler, http_server, running_server

Json = dict[str, Any]
_numbers = count(1)
# The refunds and disputes that the fake provider lists for each payment.
_refunds: dict[str, list[Json]] = {}
_disputes: dict[str, list[Json]] = {}


@dataclass(frozen=True)
class OrderTerms:
    """A payment order.

    Attributes:
        minor: the price in the minor unit of the currency.
        credit_units: the ordered credits, in ten-thousandths of a credit.
        token: the claim token of the order.
    """

    order_id: int
    minor: int
    credit_units: int
    currency: str
    token: str

    @property
    def session_id(self) -> str:
        return f"cs_test_{self.order_id}"

    @property
    def payment_id(self) -> str:
        return f"pi_{self.order_id}"


def new_order(
    stack: Stack, user_id: int | None, *, minor: int, credit_units: int, currency: str = "USD"
) -> OrderTerms:
    """Create an order in the database, without the job that opens a checkout."""
    keyring = stack.resources.keyring
    order_id, digits = ids.random_id(), 0 if currency == "JPY" else 2
    token = claim_tokens.derive_token(keyring, order_id)
    with stack.resources.unit_of_work() as uow:
        order = PaymentOrder(
            id=order_id,
            user_id=user_id,
            channel=PaymentChannel.SANDBOX,
            currency=currency,
            amount=Decimal(minor).scaleb(-digits),
            amount_minor=minor,
            credit_amount=Decimal(credit_units).scaleb(-4),
            credits_per_usd=Decimal(100),
            units_per_usd=Decimal(1),
            claim_token_hmac=claim_tokens.token_hmac(keyring, token),
            expires_at=clock.now() + timedelta(hours=1),
        )
        uow.session.add(order)
    return OrderTerms(order_id, minor, credit_units, currency, token)


def session_event(
    terms: OrderTerms, kind: str = "checkout.session.completed", **more: object
) -> Json:
    """Return an event about the checkout session. ``more`` changes fields of the session."""
    content: Json = {
        "id": terms.session_id,
        "object": "checkout.session",
        "metadata": build_metadata(terms),
        "payment_intent": terms.payment_id,
        "amount_total": terms.minor,
        "currency": terms.currency.lower(),
        "payment_status": "paid",
        "status": "complete",
    }
    if kind == "checkout.session.expired":
        content |= {"payment_status": "unpaid", "status": "expired", "payment_intent": None}
    return build_event(kind, content | more)


def refund_event(terms: OrderTerms, total: int) -> Json:
    content: Json = {
        "id": f"ch_{terms.order_id}",
        "object": "charge",
        "metadata": build_metadata(terms),
        "payment_intent": terms.payment_id,
        "amount": terms.minor,
        "amount_refunded": total,
        "currency": terms.currency.lower(),
        "paid": True,
        "status": "succeeded",
    }
    return build_event("charge.refunded", content)


def add_refund(terms: OrderTerms, amount: int, status: str = "succeeded") -> Json:
    """Add a refund to the list of the fake provider, and return the refund."""
    refund: Json = {
        "id": f"re_{next(_numbers)}",
        "object": "refund",
        "payment_intent": terms.payment_id,
        "amount": amount,
        "status": status,
    }
    _refunds.setdefault(terms.payment_id, []).append(refund)
    return refund


def dispute_event(terms: OrderTerms, status: str, amount: int, *, number: int = 1) -> Json:
    """Return an event about a dispute, which names only the payment."""
    kind = "charge.dispute.created" if status == "needs_response" else "charge.dispute.closed"
    content: Json = {
        "id": f"dp_{terms.order_id}_{number}",
        "object": "dispute",
        "payment_intent": terms.payment_id,
        "amount": amount,
        "currency": terms.currency.lower(),
        "status": status,
    }
    return build_event(kind, content)


def list_disputes(terms: OrderTerms) -> list[Json]:
    return _disputes.setdefault(terms.payment_id, [])


def record_dispute(dispute: Json) -> None:
    """Add a dispute to the list of the fake provider, or update its status if it is still open."""
    disputes = _disputes.setdefault(dispute["payment_intent"], [])
    known = next((each for each in disputes if each["id"] == dispute["id"]), None)
    if known is None:
        disputes.append(dict(dispute))
    elif known["status"] == "needs_response":
        known["status"] = dispute["status"]


def build_metadata(terms: OrderTerms) -> Json:
    return {"application": "pressroom", "order_id": str(terms.order_id)}


def build_event(kind: str, content: Json) -> Json:
    return {
        "id": f"evt_till_{next(_numbers)}_{time.time_ns()}",
        "object": "event",
        "type": kind,
        "created": int(time.time()),
        "livemode": False,
        "data": {"object": content},
    }


class _ListOnlyProvider(QuietHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        kinds = {"refunds": _refunds, "disputes": _disputes}
        listed = kinds.get(path.rpartition("/v1/")[2])
        if listed is not None:
            [payment] = parse_qs(query)["payment_intent"]
            page = {"object": "list", "has_more": False, "data": listed.get(payment, [])}
            self.reply(200, json.dumps(page).encode())
            return
        # The header keeps Stripe's library from a retry, which would take half a second.
        self.reply(503, headers={"Stripe-Should-Retry": "false"})


@contextmanager
def running_list_only_provider() -> Iterator[str]:
    """Run a provider that lists refunds and disputes, and answers all other calls with 503."""
    with running_server(http_server(_ListOnlyProvider)) as url:
        yield url


def sign_body(body: bytes, secret: str, seconds_ago: float = 0) -> str:
    sent_at = int(time.time() - seconds_ago)
    mac = hmac.new(secret.encode(), f"{sent_at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={sent_at},v1={mac}"


@dataclass
class WebhookPoster:
    stack: Stack
    http: httpx2.Client = field(init=False)

    def __post_init__(self) -> None:
        self.http = self.stack.client()

    def post(
        self, sent: Json, *, secret: str | None = None, seconds_ago: float = 0
    ) -> httpx2.Response:
        if sent["data"]["object"].get("object") == "dispute":
            record_dispute(sent["data"]["object"])
        body = json.dumps(sent).encode()
        return self.http.post(
            "/webhooks/stripe",
            content=body,
            headers={
                "Content-Type": "application/json",
                "Stripe-Signature": self.sign(body, secret=secret, seconds_ago=seconds_ago),
            },
        )

    def sign(self, body: bytes, *, secret: str | None = None, seconds_ago: float = 0) -> str:
        key = secret or self.stack.environment["PRESSROOM_PAYMENTS_SANDBOX_WEBHOOK_SECRET"]
        return sign_body(body, key, seconds_ago)

    def close(self) -> None:
        self.http.close()


def kill_and_restart_api(stack: Stack) -> None:
    [api] = [each for each in stack.processes if each.name == "api"]
    api.kill()
    stack.processes.remove(api)
    stack.start_api()


def require_clean_books(stack: Stack) -> None:
    assert verify.verify_ledger(stack.resources, full=True).faults == []


def read_balance_and_debt(stack: Stack, user_id: int) -> tuple[object, ...]:
    rows = stack.query("SELECT balance, debt FROM credit_accounts WHERE user_id = %s", user_id)
    return rows[0] if rows else (Decimal(0), Decimal(0))
