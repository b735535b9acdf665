"""A provider's post office in the tests' hand: signed webhooks by real HTTP, in any order."""

import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
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
from tests.support.http.servers import QuietHandler, http_server, running

Json = dict[str, Any]
_numbers = count(1)
# What the provider lists of each payment.
_refunds: dict[str, list[Json]] = {}
_disputes: dict[str, list[Json]] = {}


@dataclass(frozen=True)
class Terms:
    order_id: int
    minor: int
    # In ten-thousandths.
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
) -> Terms:
    """An order as the API writes it, of which the provider will tell before any job has run."""
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
    return Terms(order_id, minor, credit_units, currency, token)


def session(terms: Terms, kind: str = "checkout.session.completed", **more: object) -> Json:
    """A checkout's event; `more` are fields that differ from what was ordered."""
    about: Json = {
        "id": terms.session_id,
        "object": "checkout.session",
        "metadata": marks(terms),
        "payment_intent": terms.payment_id,
        "amount_total": terms.minor,
        "currency": terms.currency.lower(),
        "payment_status": "paid",
        "status": "complete",
    }
    if kind == "checkout.session.expired":
        about |= {"payment_status": "unpaid", "status": "expired", "payment_intent": None}
    return event(kind, about | more)


def refund(terms: Terms, total: int) -> Json:
    """Given back so far, as the provider counts it up."""
    about: Json = {
        "id": f"ch_{terms.order_id}",
        "object": "charge",
        "metadata": marks(terms),
        "payment_intent": terms.payment_id,
        "amount": terms.minor,
        "amount_refunded": total,
        "currency": terms.currency.lower(),
        "paid": True,
        "status": "succeeded",
    }
    return event("charge.refunded", about)


def fallen_through(terms: Terms) -> Json:
    """A promised payment that did not come."""
    return session(terms, "checkout.session.async_payment_failed", payment_status="unpaid")


def failed_refund(refund: Json) -> Json:
    """It names the payment alone."""
    return event("refund.failed", refund | {"status": "failed"})


def refund_object(terms: Terms, amount: int, status: str = "succeeded") -> Json:
    """A refund as the provider lists it from now on."""
    refund: Json = {
        "id": f"re_{next(_numbers)}",
        "object": "refund",
        "payment_intent": terms.payment_id,
        "amount": amount,
        "status": status,
    }
    _refunds.setdefault(terms.payment_id, []).append(refund)
    return refund


def dispute(terms: Terms, status: str, amount: int, *, number: int = 1) -> Json:
    """It names the payment alone, which may have several."""
    kind = "charge.dispute.created" if status == "needs_response" else "charge.dispute.closed"
    about: Json = {
        "id": f"dp_{terms.order_id}_{number}",
        "object": "dispute",
        "payment_intent": terms.payment_id,
        "amount": amount,
        "currency": terms.currency.lower(),
        "status": status,
    }
    return event(kind, about)


def disputes_of(terms: Terms) -> list[Json]:
    """What the provider lists of the payment's disputes now."""
    return _disputes.setdefault(terms.payment_id, [])


def note_dispute(about: Json) -> None:
    """Let the provider list a dispute as it says in an event. One that has ended stays so."""
    listed = _disputes.setdefault(about["payment_intent"], [])
    known = next((each for each in listed if each["id"] == about["id"]), None)
    if known is None:
        listed.append(dict(about))
    elif known["status"] == "needs_response":
        known["status"] = about["status"]


def marks(terms: Terms) -> Json:
    return {"application": "pressroom", "order_id": str(terms.order_id)}


def event(kind: str, about: Json) -> Json:
    return {
        "id": f"evt_till_{next(_numbers)}_{time.time_ns()}",
        "object": "event",
        "type": kind,
        "created": int(time.time()),
        "livemode": False,
        "data": {"object": about},
    }


class _Unwilling(QuietHandler):
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
        # Stripe's library would ask again, half a second later.
        self.reply(503, headers={"Stripe-Should-Retry": "false"})


@contextmanager
def unwilling_provider() -> Iterator[str]:
    """The address of a provider that lists refunds and disputes, and says nothing else."""
    with running(http_server(_Unwilling)) as url:
        yield url


@dataclass
class Poster:
    """Signs and posts webhooks."""

    stack: Stack
    http: httpx2.Client = field(init=False)

    def __post_init__(self) -> None:
        self.http = self.stack.client()

    def post(
        self, sent: Json, *, secret: str | None = None, seconds_ago: float = 0
    ) -> httpx2.Response:
        if sent["data"]["object"].get("object") == "dispute":
            note_dispute(sent["data"]["object"])
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
        at = int(time.time() - seconds_ago)
        mac = hmac.new(key.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
        return f"t={at},v1={mac}"

    def close(self) -> None:
        self.http.close()


def kill_and_restart(bank: Stack) -> None:
    """kill -9 of the API process."""
    [api] = [each for each in bank.processes if each.name == "api"]
    api.kill()
    bank.processes.remove(api)
    bank.start_api()


def die_while_settling(bank: Stack, poster: Poster, sent: Json, seconds: float) -> None:
    """Post an event to an API process that is killed so long after, wherever it is then."""
    with ThreadPoolExecutor() as pool:
        posted = pool.submit(poster.post, sent)
        time.sleep(seconds)
        kill_and_restart(bank)
        with suppress(httpx2.TransportError):
            posted.result()


def require_clean_books(bank: Stack) -> None:
    assert verify.verify_ledger(bank.resources, full=True).faults == []


def state(bank: Stack, terms: Terms) -> str:
    [(status,)] = bank.query("SELECT status FROM payment_orders WHERE id = %s", terms.order_id)
    return str(status)


def standing(bank: Stack, user_id: int) -> tuple[object, ...]:
    rows = bank.query("SELECT balance, debt FROM credit_accounts WHERE user_id = %s", user_id)
    return rows[0] if rows else (Decimal(0), Decimal(0))
