"""An adapter for payments with Stripe Checkout.

The development stack's sandbox differs from Stripe only in the base URL and the keys. The API
version of Stripe's webhooks can be older than the API version of Stripe's replies. The Stripe
adapter reads only fields that are the same in all API versions since 2022.

Stripe documents its API at docs.stripe.com/api/checkout/sessions, /api/idempotent_requests,
/webhooks and /payments/checkout/fulfill-orders.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from http import HTTPStatus
from itertools import islice
from typing import Any, TypeVar

import stripe
from pydantic import SecretStr

from core import clock
from core.calls.breaker import Breaker
from core.errors import DomainError, ServerFailed, TransientError
from core.errors.money import PAYMENTS_REFUSED, WEBHOOK_SIGNATURE_INVALID, WEBHOOK_UNREADABLE
from core.json_parsing import parse_json
from core.logging import get_logger
from integrations.http_client import HttpBounds, HttpClient, HttpFailure, describe_failure
from integrations.payments.port import (
    Checkout,
    DisputeStatus,
    Event,
    Evidence,
    OpenedCheckout,
    PaymentChannel,
)

_log = get_logger(__name__)

# The metadata value that marks Pressroom's orders. Shops that share a Stripe account may use the
# same order numbers.
APPLICATION = "pressroom"
# The API version of Stripe's replies, which overrides the account's default version.
STRIPE_API_VERSION = "2026-10-28.endive"

_MAX_CONNECT_SECONDS = 2.0
_MAX_REPLY_BYTES = 4 * 1024 * 1024
# The time limit of each attempt to call Stripe. Two attempts to call Stripe and the pause between
# them must take less than ten seconds.
_ATTEMPT_SECONDS = 4.5
_MAX_RETRIES = 1
_SERVER = "payment provider"
# Tolerate a few failed calls, because an open circuit breaker makes every payer's call fail.
_TOLERATED_FAILURES = 2
_SIGNATURE_TOLERANCE_SECONDS = 300
# The maximum number of refunds or disputes to read per payment. Without a limit, an endless list of
# refunds or disputes would occupy a thread forever.
_MAX_LISTED_OBJECTS = 1_000
# Stripe requires a checkout to expire between 30 minutes and 24 hours after its creation. The
# limits for the lifetime of a checkout are a minute stricter than Stripe's limits, because Stripe's
# clock may differ.
_MIN_CHECKOUT_LIFETIME = timedelta(minutes=31)
_MAX_CHECKOUT_LIFETIME = timedelta(hours=24) - timedelta(minutes=1)
# The HTTP statuses with which Stripe rejects a call. Connection errors and HTTP statuses of 500 or
# above count as outages of Stripe.
_REFUSED_STATUSES = range(300, 500)
_TEMPORARY_STATUSES = {
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.CONFLICT,
    HTTPStatus.TOO_MANY_REQUESTS,
}

# The statuses in which Stripe has withdrawn the disputed money. A bank's inquiry (status
# `warning_…`) withdraws no money.
_DISPUTE_STATUSES = {
    "needs_response": DisputeStatus.OPEN,
    "under_review": DisputeStatus.OPEN,
    "won": DisputeStatus.WON,
    "lost": DisputeStatus.LOST,
}

# The statuses of refunds that pay no money back.
_FAILED_REFUND_STATUSES = {"failed", "canceled"}

Fields = Mapping[str, Any]
T = TypeVar("T")

# At debug level, Stripe's library logs complete responses, including what payers entered.
logging.getLogger("stripe").setLevel(logging.WARNING)


def parse_order_id(fields: Fields) -> int | None:
    metadata = fields.get("metadata") or {}
    number = metadata.get("order_id") or ""
    if metadata.get("application") != APPLICATION or not number.isascii() or not number.isdigit():
        return None
    return int(number)


def parse_session(session: Fields, *, failed: bool = False) -> Evidence | None:
    """Return the facts in a checkout session, or ``None`` for another program's session."""
    if (order_id := parse_order_id(session)) is None:
        return None
    return Evidence(
        order_id=order_id,
        session_id=session["id"],
        payment_id=parse_id(session.get("payment_intent")),
        amount_minor=session.get("amount_total"),
        currency=_currency(session),
        paid=session.get("payment_status") == "paid",
        failed=failed,
        # No payment is in progress for an expired checkout session, because a promised payment
        # changes the status to `complete`.
        expired=session.get("status") == "expired",
        closed=session.get("status") == "expired",
    )


def has_failed_payment(session: Fields) -> bool:
    """Don't count a declined card as a failed payment, because the payer can try another card."""
    match session:
        case {
            "status": "complete",
            "payment_status": "unpaid",
            "payment_intent": {"status": "requires_payment_method" | "canceled"},
        }:
            return True
    return False


def parse_charge(charge: Fields) -> Evidence | None:
    """Return ``None`` unless the charge is successful and belongs to an order of Pressroom."""
    order_id = parse_order_id(charge)
    if order_id is None or charge.get("status") != "succeeded":
        return None
    return Evidence(
        order_id=order_id,
        payment_id=parse_id(charge.get("payment_intent")),
        amount_minor=charge.get("amount"),
        currency=_currency(charge),
        paid=True,
        refunded_minor=charge.get("amount_refunded") or None,
    )


def parse_failed_refund(refund: Fields) -> Evidence | None:
    """Return the facts about a failed or cancelled refund, or ``None`` for any other refund."""
    payment_id = parse_id(refund.get("payment_intent"))
    if refund.get("status") not in _FAILED_REFUND_STATUSES or payment_id is None:
        return None
    return Evidence(payment_id=payment_id, refunds_failed_minor=refund["amount"])


def sum_refunds(payment_id: str, refunds: Iterable[Fields]) -> Evidence:
    total = 0
    failed = 0
    for refund in refunds:
        total += refund["amount"]
        failed += refund["amount"] if refund["status"] in _FAILED_REFUND_STATUSES else 0
    return Evidence(payment_id=payment_id, refunded_minor=total, refunds_failed_minor=failed)


def parse_dispute(dispute: Fields) -> Evidence | None:
    """Return the evidence in a dispute, or ``None`` for an inquiry that withdraws no money."""
    payment_id = parse_id(dispute.get("payment_intent"))
    if dispute.get("status") not in _DISPUTE_STATUSES or payment_id is None:
        return None
    return add_disputes(Evidence(payment_id=payment_id), [dispute])


def add_disputes(evidence: Evidence, disputes: Iterable[Fields]) -> Evidence:
    total = 0
    ended = 0
    lost = 0
    for dispute in disputes:
        if status := _DISPUTE_STATUSES.get(dispute["status"]):
            total += dispute["amount"]
            ended += dispute["amount"] if status is not DisputeStatus.OPEN else 0
            lost += dispute["amount"] if status is DisputeStatus.LOST else 0
    return replace(
        evidence, disputes_minor=total, disputes_ended_minor=ended, disputes_lost_minor=lost
    )


def parse_id(value: object) -> str | None:
    """Return the id of a Stripe object, given the object or its id."""
    if isinstance(value, Mapping):
        value = value.get("id")
    return value if isinstance(value, str) else None


def _currency(fields: Fields) -> str | None:
    currency = fields.get("currency")
    return currency.upper() if isinstance(currency, str) else None


# Maps each Stripe event type to the function that parses its evidence.
EVENT_PARSERS: dict[str, Callable[[Fields], Evidence | None]] = {
    "checkout.session.completed": parse_session,
    "checkout.session.async_payment_succeeded": parse_session,
    "checkout.session.async_payment_failed": partial(parse_session, failed=True),
    "checkout.session.expired": parse_session,
    "charge.refunded": parse_charge,
    "refund.failed": parse_failed_refund,
    "refund.updated": parse_failed_refund,
    # Depending on its API version, a webhook endpoint receives ``charge.refund.updated`` instead of
    # ``refund.failed``.
    "charge.refund.updated": parse_failed_refund,
    "charge.dispute.created": parse_dispute,
    "charge.dispute.updated": parse_dispute,
    "charge.dispute.funds_withdrawn": parse_dispute,
    "charge.dispute.funds_reinstated": parse_dispute,
    "charge.dispute.closed": parse_dispute,
}


class StripeHttpClient(stripe.HTTPClient):
    """A thread-safe HTTP client for Stripe's library."""

    name = "httpx2"

    def __init__(self, seconds: float) -> None:
        super().__init__()
        bounds = HttpBounds(
            seconds, _MAX_CONNECT_SECONDS, _MAX_REPLY_BYTES, provider="payment provider"
        )
        self._client = HttpClient(bounds)

    def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None,
        post_data: Any = None,
        **_: object,
    ) -> tuple[str, int, Mapping[str, str]]:
        try:
            reply = self._client.send(method, url, headers=headers, content=post_data)
        except HttpFailure as failure:
            raise stripe.APIConnectionError(describe_failure(failure), should_retry=True) from None  # type: ignore[no-untyped-call]
        return reply.body.decode("utf-8", "replace"), reply.status, reply.headers

    def close(self) -> None:
        self._client.close()


class StripeCheckout:
    """A thread-safe adapter for a Stripe account."""

    def __init__(
        self,
        channel: PaymentChannel,
        *,
        base_url: str,
        secret_key: SecretStr,
        webhook_secret: SecretStr,
        attempt_seconds: float = _ATTEMPT_SECONDS,
    ) -> None:
        self.channel = channel
        self._webhook_secret = webhook_secret
        self._is_live = "_live_" in secret_key.get_secret_value()
        self._breaker = Breaker(_SERVER, tolerated=_TOLERATED_FAILURES)
        self._api = stripe.StripeClient(
            secret_key.get_secret_value(),
            base_addresses={"api": base_url.rstrip("/")},
            http_client=StripeHttpClient(attempt_seconds),
            max_network_retries=_MAX_RETRIES,
            stripe_version=STRIPE_API_VERSION,
        ).v1

    def open_checkout(self, checkout: Checkout) -> OpenedCheckout:
        """Replace an expiry outside Stripe's limits with the nearest limit, and return the actual
        expiry.

        Stripe requires a checkout to expire between 30 minutes and 24 hours after its creation.
        """
        # Stripe returns the metadata in webhooks and replies, so that Pressroom can find the order.
        metadata = {"application": APPLICATION, "order_id": str(checkout.order_id)}
        now = clock.now()
        earliest = now + _MIN_CHECKOUT_LIFETIME
        latest = now + _MAX_CHECKOUT_LIFETIME
        price = {
            "currency": checkout.currency.lower(),
            "unit_amount": checkout.amount_minor,
            "product_data": {"name": checkout.description},
        }
        # The type is Any because Stripe's parameter types are very complicated.
        order: Any = {
            "mode": "payment",
            "line_items": [{"quantity": 1, "price_data": price}],
            "client_reference_id": str(checkout.order_id),
            "metadata": metadata,
            "payment_intent_data": {"metadata": metadata, "description": checkout.description},
            # With adaptive pricing, Stripe could charge a different currency and amount.
            "adaptive_pricing": {"enabled": False},
            "expires_at": int(min(max(checkout.expires_at, earliest), latest).timestamp()),
            "success_url": checkout.return_url,
            "cancel_url": checkout.return_url,
        }
        key = f"{APPLICATION}-order-{checkout.order_id}"
        session = self._call(
            lambda: self._api.checkout.sessions.create(order, {"idempotency_key": key})
        )
        if not session.url:
            raise _create_refusal("the session has no page", None)
        return OpenedCheckout(session.id, session.url, _parse_time(session.expires_at))

    def fetch_evidence(self, session_id: str) -> Evidence:
        return self._collect_evidence(self._fetch_session(session_id))

    def close_checkout(self, session_id: str) -> Evidence:
        session = self._fetch_session(session_id)
        if session.get("status") == "open":
            try:
                self._call(lambda: self._api.checkout.sessions.expire(session_id))
                session |= {"status": "expired"}
            except DomainError:
                # Stripe has no error code for closing a checkout session that is no longer open, so
                # check the session's status.
                session = self._fetch_session(session_id)
                if session.get("status") == "open":
                    raise
        return self._collect_evidence(session)

    def fetch_refunds(self, payment_id: str) -> Evidence:
        return sum_refunds(payment_id, self._fetch_all(payment_id, self._api.refunds.list))

    def fetch_disputes(self, payment_id: str) -> Evidence:
        disputes = self._fetch_all(payment_id, self._api.disputes.list)
        return add_disputes(Evidence(payment_id=payment_id), disputes)

    def find_order_id(self, payment_id: str) -> int | None:
        try:
            payment = self._api.payment_intents.retrieve(payment_id)
        except stripe.StripeError as error:
            if error.http_status == HTTPStatus.NOT_FOUND:
                return None
            raise _translate_error(error) from None
        return parse_order_id(payment.to_dict())

    def parse_event(self, body: bytes, signature: str) -> Event:
        secret = self._webhook_secret.get_secret_value()
        try:
            stripe.WebhookSignature.verify_header(
                body, signature, secret, _SIGNATURE_TOLERANCE_SECONDS
            )
        # Stripe's library raises ValueError or TypeError if the body or the signature is not text.
        except (stripe.SignatureVerificationError, ValueError, TypeError):
            raise WEBHOOK_SIGNATURE_INVALID() from None
        try:
            event = parse_json(body)
            if event["object"] != "event":
                raise WEBHOOK_UNREADABLE()
            event_type = str(event["type"])
            fields = event["data"]["object"]
            parser = EVENT_PARSERS.get(event_type)
            # With a live key, Pressroom ignores test events, because test payments move no money.
            # With a test key, Pressroom ignores events about real payments.
            if parser and bool(event["livemode"]) is not self._is_live:
                _log.warning(
                    "event of the other mode ignored", channel=self.channel, id=event["id"]
                )
                parser = None
            evidence = parser(fields) if parser else None
            created_at = _parse_time(event["created"])
            return Event(str(event["id"]), event_type, created_at, evidence)
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError):
            raise WEBHOOK_UNREADABLE() from None

    def _collect_evidence(self, session: dict[str, Any]) -> Evidence:
        evidence = parse_session(session, failed=has_failed_payment(session))
        if evidence is None:
            raise _create_refusal("the session doesn't belong to an order", None)
        if evidence.failed:
            return evidence
        intent = session.get("payment_intent")
        charge = intent.get("latest_charge") if isinstance(intent, Mapping) else None
        payment_id = evidence.payment_id
        if payment_id is None or not evidence.paid or not isinstance(charge, Mapping):
            return evidence
        evidence = replace(evidence, refunded_minor=charge.get("amount_refunded") or None)
        if not charge.get("disputed"):
            return evidence
        return add_disputes(evidence, self._fetch_all(payment_id, self._api.disputes.list))

    def _fetch_session(self, session_id: str) -> dict[str, Any]:
        options: Any = {"expand": ["payment_intent.latest_charge"]}
        session = self._call(lambda: self._api.checkout.sessions.retrieve(session_id, options))
        return session.to_dict()

    def _fetch_all(
        self, payment_id: str, list_objects: Callable[[Any], Any]
    ) -> list[dict[str, Any]]:
        """Return all refunds or all disputes of a payment from all result pages."""
        query = {"payment_intent": payment_id, "limit": 100}

        def fetch() -> list[dict[str, Any]]:
            objects = islice(list_objects(query).auto_paging_iter(), _MAX_LISTED_OBJECTS + 1)
            return [each.to_dict() for each in objects]

        objects = self._call(fetch)
        if len(objects) > _MAX_LISTED_OBJECTS:
            reason = f"{payment_id} has more than {_MAX_LISTED_OBJECTS} of a kind"
            raise _create_refusal(reason, None)
        return objects

    def _call(self, call: Callable[[], T]) -> T:
        with self._breaker.protect():
            try:
                return call()
            except stripe.StripeError as error:
                raise _translate_error(error) from None


def _parse_time(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _translate_error(error: stripe.StripeError) -> Exception:
    status = error.http_status
    summary = f"{type(error).__name__} {status or ''}".rstrip()
    if status in _TEMPORARY_STATUSES:
        return TransientError(f"The {_SERVER} rejected the request temporarily ({summary}).")
    if status not in _REFUSED_STATUSES:
        return ServerFailed(_SERVER, summary)
    # Omit Stripe's error message, because it contains the end of the secret key.
    reason = ", ".join(filter(None, (error.code, getattr(error, "param", None))))
    return _create_refusal(reason or type(error).__name__, status, request_id=error.request_id)


def _create_refusal(reason: str, status: int | None, **details: str | None) -> DomainError:
    _log.error("payment provider refused", reason=reason, status=status, **details)
    return PAYMENTS_REFUSED(reason=reason)
