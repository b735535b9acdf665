"""Payments by Stripe's checkout, and Stripe's objects read as evidence about a payment.

The development stack's stand-in is called in the same way: only the base URL and the keys differ.
Objects come from answers and from webhooks, whose API version is that of the endpoint; what is read
here has been the same in every version since 2022. Sources: docs.stripe.com/api/checkout/sessions,
/api/idempotent_requests, /webhooks and /payments/checkout/fulfill-orders.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from http import HTTPStatus
from itertools import islice
from typing import Any, TypeVar

import orjson
import stripe
from pydantic import SecretStr

from core import clock
from core.calls.breaker import Breaker
from core.errors import DomainError, ServerFailed, TransientError
from core.errors.money import PAYMENTS_REFUSED, WEBHOOK_SIGNATURE_INVALID, WEBHOOK_UNREADABLE
from core.logging import get_logger
from integrations.http_client import HttpBounds, HttpClient, HttpFailure, reason_of
from integrations.payments.port import (
    Checkout,
    DisputeStatus,
    Event,
    Evidence,
    OpenedCheckout,
    PaymentChannel,
)

_log = get_logger(__name__)

# Other shops may use the same account at Stripe, and number their orders as we do.
APPLICATION = "pressroom"

Fields = Mapping[str, Any]

# A bank's mere inquiry (warning_…) takes no money, nor does what was settled before it became one.
_DISPUTES = {
    "needs_response": DisputeStatus.OPEN,
    "under_review": DisputeStatus.OPEN,
    "won": DisputeStatus.WON,
    "lost": DisputeStatus.LOST,
}

# The money of a refund in one of these stays with us. Any other one may be on its way to the payer.
_FAILED_REFUNDS = {"failed", "canceled"}


def order_of(fields: Fields) -> int | None:
    metadata = fields.get("metadata") or {}
    number = metadata.get("order_id") or ""
    if metadata.get("application") != APPLICATION or not number.isascii() or not number.isdigit():
        return None
    return int(number)


def session_evidence(session: Fields, *, failed: bool = False) -> Evidence | None:
    """A checkout by itself: paid, expired or neither; None for one that isn't ours."""
    if (order_id := order_of(session)) is None:
        return None
    return Evidence(
        order_id=order_id,
        session_id=session["id"],
        payment_id=identifier(session.get("payment_intent")),
        amount_minor=session.get("amount_total"),
        currency=_currency(session),
        paid=session.get("payment_status") == "paid",
        failed=failed,
        # A session with a payment under way is complete; an expired one has none, and gets none.
        expired=session.get("status") == "expired",
        closed=session.get("status") == "expired",
    )


def has_fallen_through(session: Fields) -> bool:
    """Return whether a promised payment won't come; a declined card alone ends no checkout."""
    match session:
        case {
            "status": "complete",
            "payment_status": "unpaid",
            "payment_intent": {"status": "requires_payment_method" | "canceled"},
        }:
            return True
    return False


def charge_evidence(charge: Fields) -> Evidence | None:
    """Money that came, and what of it went back; None for a charge that isn't ours."""
    order_id = order_of(charge)
    if order_id is None or charge.get("status") != "succeeded":
        return None
    return Evidence(
        order_id=order_id,
        payment_id=identifier(charge.get("payment_intent")),
        amount_minor=charge.get("amount"),
        currency=_currency(charge),
        paid=True,
        refunded_minor=charge.get("amount_refunded") or None,
    )


def failed_refund_evidence(refund: Fields) -> Evidence | None:
    """A refund that failed or was cancelled, by itself. It names the payment alone."""
    payment_id = identifier(refund.get("payment_intent"))
    if refund.get("status") not in _FAILED_REFUNDS or payment_id is None:
        return None
    return Evidence(payment_id=payment_id, refunds_failed_minor=refund["amount"])


def refunds_evidence(payment_id: str, refunds: Iterable[Fields]) -> Evidence:
    """All refunds of a payment together."""
    total = failed = 0
    for refund in refunds:
        total += refund["amount"]
        failed += refund["amount"] if refund["status"] in _FAILED_REFUNDS else 0
    return Evidence(payment_id=payment_id, refunded_minor=total, refunds_failed_minor=failed)


def dispute_evidence(dispute: Fields) -> Evidence | None:
    """A dispute by itself. It names the payment, and not the amount paid."""
    payment_id = identifier(dispute.get("payment_intent"))
    if dispute.get("status") not in _DISPUTES or payment_id is None:
        return None
    return with_disputes(Evidence(payment_id=payment_id), [dispute])


def with_disputes(evidence: Evidence, disputes: Iterable[Fields]) -> Evidence:
    """The evidence with the sums of these disputes of its payment."""
    total = ended = lost = 0
    for dispute in disputes:
        if state := _DISPUTES.get(dispute["status"]):
            total += dispute["amount"]
            ended += dispute["amount"] if state is not DisputeStatus.OPEN else 0
            lost += dispute["amount"] if state is DisputeStatus.LOST else 0
    return replace(
        evidence, disputes_minor=total, disputes_ended_minor=ended, disputes_lost_minor=lost
    )


def identifier(value: object) -> str | None:
    """The id of an object that Stripe gave in full or as its id alone."""
    if isinstance(value, Mapping):
        value = value.get("id")
    return value if isinstance(value, str) else None


def _currency(fields: Fields) -> str | None:
    currency = fields.get("currency")
    return currency.upper() if isinstance(currency, str) else None


READERS: dict[str, Callable[[Fields], Evidence | None]] = {
    "checkout.session.completed": session_evidence,
    "checkout.session.async_payment_succeeded": session_evidence,
    "checkout.session.async_payment_failed": partial(session_evidence, failed=True),
    "checkout.session.expired": session_evidence,
    "charge.refunded": charge_evidence,
    # Endpoints of older API versions get the last one instead of the first.
    "refund.failed": failed_refund_evidence,
    "refund.updated": failed_refund_evidence,
    "charge.refund.updated": failed_refund_evidence,
    "charge.dispute.created": dispute_evidence,
    "charge.dispute.updated": dispute_evidence,
    "charge.dispute.funds_withdrawn": dispute_evidence,
    "charge.dispute.funds_reinstated": dispute_evidence,
    "charge.dispute.closed": dispute_evidence,
}


_MAX_CONNECT_SECONDS = 2.0
_MAX_REPLY_BYTES = 4 * 1024 * 1024


class StripeHttpClient(stripe.HTTPClient):
    """For any number of threads at once. ``seconds`` bounds one attempt."""

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
            raise stripe.APIConnectionError(reason_of(failure), should_retry=True) from None  # type: ignore[no-untyped-call]
        return reply.body.decode("utf-8", "replace"), reply.status, reply.headers

    def close(self) -> None:
        self._client.close()


# The objects we read are those of this version, whichever one the account has as its default.
STRIPE_API_VERSION = "2026-10-28.endive"

# Two attempts and the pause between them stay below ten seconds.
_ATTEMPT_SECONDS = 4.5
_RETRIES = 1
_SERVER = "payment provider"
# Payers wait for it, so a failure alone refuses nobody else.
_TOLERATED_FAILURES = 2
_TOLERANCE_SECONDS = 300
# A payment's refunds, say: a list without an end would hold a thread for good.
_MAX_LISTED = 1_000
# Stripe's bounds are 30 minutes and 24 hours by its own clock; ours may differ a little.
_MIN_CHECKOUT_LIFETIME = timedelta(minutes=31)
_MAX_CHECKOUT_LIFETIME = timedelta(hours=24) - timedelta(minutes=1)
# Any other status, or no reply at all, is trouble that passes by itself.
_ERRORS = range(300, 500)
_PASSING = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_MANY_REQUESTS}

# For debugging, the library logs whole replies, with the payers' input on Stripe's page.
logging.getLogger("stripe").setLevel(logging.WARNING)

T = TypeVar("T")


class StripeCheckout:
    """An account at Stripe. For any number of threads at once."""

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
            max_network_retries=_RETRIES,
            stripe_version=STRIPE_API_VERSION,
        ).v1

    def open(self, checkout: Checkout) -> OpenedCheckout:
        """Open a checkout; asked again for the same order, answer the same one.

        An end outside of what Stripe allows, 30 minutes to 24 hours from now, is moved to the
        nearest that it does; the answer has the real one.
        """
        # By these the order's objects are known again.
        marks = {"application": APPLICATION, "order_id": str(checkout.order_id)}
        now = clock.now()
        earliest = now + _MIN_CHECKOUT_LIFETIME
        latest = now + _MAX_CHECKOUT_LIFETIME
        price = {
            "currency": checkout.currency.lower(),
            "unit_amount": checkout.amount_minor,
            "product_data": {"name": checkout.description},
        }
        # The library's type for these parameters is a maze.
        order: Any = {
            "mode": "payment",
            "line_items": [{"quantity": 1, "price_data": price}],
            "client_reference_id": str(checkout.order_id),
            "metadata": marks,
            "payment_intent_data": {"metadata": marks, "description": checkout.description},
            # Otherwise Stripe may ask for the payer's own currency, and the amounts would differ.
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
            raise _refused("the session has no page", None)
        return OpenedCheckout(session.id, session.url, _moment(session.expires_at))

    def evidence(self, session_id: str) -> Evidence:
        return self._evidence_of(self._session(session_id))

    def close(self, session_id: str) -> Evidence:
        session = self._session(session_id)
        if session.get("status") == "open":
            try:
                self._call(lambda: self._api.checkout.sessions.expire(session_id))
                session |= {"status": "expired"}
            except DomainError:
                # Stripe refuses to close what is not open, and says so in words alone.
                session = self._session(session_id)
                if session.get("status") == "open":
                    raise
        return self._evidence_of(session)

    def refunds(self, payment_id: str) -> Evidence:
        return refunds_evidence(payment_id, self._all_of(payment_id, self._api.refunds.list))

    def disputes(self, payment_id: str) -> Evidence:
        listed = self._all_of(payment_id, self._api.disputes.list)
        return with_disputes(Evidence(payment_id=payment_id), listed)

    def order_of(self, payment_id: str) -> int | None:
        try:
            payment = self._api.payment_intents.retrieve(payment_id)
        except stripe.StripeError as error:
            if error.http_status == HTTPStatus.NOT_FOUND:
                return None
            raise _verdict(error) from None
        return order_of(payment.to_dict())

    def event(self, body: bytes, signature: str) -> Event:
        secret = self._webhook_secret.get_secret_value()
        try:
            stripe.WebhookSignature.verify_header(body, signature, secret, _TOLERANCE_SECONDS)
        # The library raises the other two for a body or a header that is no text.
        except (stripe.SignatureVerificationError, ValueError, TypeError):
            raise WEBHOOK_SIGNATURE_INVALID() from None
        try:
            sent = orjson.loads(body)
            if sent["object"] != "event":
                raise WEBHOOK_UNREADABLE()
            kind = str(sent["type"])
            fields = sent["data"]["object"]
            reader = READERS.get(kind)
            # Test payments move no money: with a live key they count for nothing, nor the reverse.
            if reader and bool(sent["livemode"]) is not self._is_live:
                _log.warning("event of the other mode ignored", channel=self.channel, id=sent["id"])
                reader = None
            evidence = reader(fields) if reader else None
            return Event(str(sent["id"]), kind, _moment(sent["created"]), evidence)
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError):
            raise WEBHOOK_UNREADABLE() from None

    def _evidence_of(self, session: dict[str, Any]) -> Evidence:
        evidence = session_evidence(session, failed=has_fallen_through(session))
        if evidence is None:
            raise _refused("the session is not of an order", None)
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
        return with_disputes(evidence, self._all_of(payment_id, self._api.disputes.list))

    def _session(self, session_id: str) -> dict[str, Any]:
        expanded: Any = {"expand": ["payment_intent.latest_charge"]}
        session = self._call(lambda: self._api.checkout.sessions.retrieve(session_id, expanded))
        return session.to_dict()

    def _all_of(self, payment_id: str, listing: Callable[[Any], Any]) -> list[dict[str, Any]]:
        """All of a kind that a payment has, however many answers they fill."""
        query = {"payment_intent": payment_id, "limit": 100}

        def ask() -> list[dict[str, Any]]:
            listed = islice(listing(query).auto_paging_iter(), _MAX_LISTED + 1)
            return [each.to_dict() for each in listed]

        page = self._call(ask)
        if len(page) > _MAX_LISTED:
            raise _refused(f"{payment_id} has more than {_MAX_LISTED} of a kind", None)
        return page

    def _call(self, ask: Callable[[], T]) -> T:
        with self._breaker.protect():
            try:
                return ask()
            except stripe.StripeError as error:
                raise _verdict(error) from None


def _moment(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _verdict(error: stripe.StripeError) -> Exception:
    """The error of a failed call: one that is worth another try, or an error."""
    status = error.http_status
    what = f"{type(error).__name__} {status or ''}".rstrip()
    if status in _PASSING:
        return TransientError(f"The {_SERVER} refuses for now ({what}).")
    if status not in _ERRORS:
        return ServerFailed(_SERVER, what)
    # Not Stripe's own sentence: it quotes what was sent, the end of the key included.
    reason = ", ".join(filter(None, (error.code, getattr(error, "param", None))))
    return _refused(reason or type(error).__name__, status, request_id=error.request_id)


def _refused(reason: str, status: int | None, **details: str | None) -> DomainError:
    _log.error("payment provider refused", reason=reason, status=status, **details)
    return PAYMENTS_REFUSED(reason=reason)
