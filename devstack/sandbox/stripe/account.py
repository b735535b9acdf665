"""Simulates a Stripe account, which stores checkouts and sends events about their changes."""

import asyncio
import hashlib
import hmac
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from fastapi import HTTPException
from pydantic import BaseModel, Field

from devstack.sandbox.stripe import objects
from devstack.sandbox.stripe.objects import CheckoutSession, Dispute, Object, Payment, StripeKeys

if TYPE_CHECKING:
    import httpx2

_RETRY_PAUSES_SECONDS = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
_TIMEOUT_SECONDS = 30.0
_MAX_CONCURRENT_DELIVERIES = 20
_OLD_SECONDS = 600
_SHUFFLED_OVER_SECONDS = 1.0


class ActionNotPossible(Exception):
    """States why the status of a checkout doesn't allow an action."""


class Account:
    """``send_event`` gets the type, the object and the checkout session id of each event."""

    def __init__(self, send_event: Callable[[str, Object, str], None]) -> None:
        self._send_event = send_event
        self._sessions: dict[str, CheckoutSession] = {}

    def store(self, session: CheckoutSession) -> None:
        self._sessions[session.id] = session

    def list_newest_first(self) -> list[CheckoutSession]:
        return list(reversed(self._sessions.values()))

    def find_session(self, session_id: str) -> CheckoutSession | None:
        return self._sessions.get(session_id)

    def find_payment(self, payment_id: str) -> Payment | None:
        payments = (each.payment for each in self._sessions.values())
        return next((each for each in payments if each and each.id == payment_id), None)

    def pay(self, session: CheckoutSession, *, later: bool = False) -> None:
        """Pay a checkout by card.

        If ``later`` is true, start a bank debit, which stays unpaid until ``end_debit`` is called.
        """
        payment = self._start_payment(session)
        payment.status = "processing" if later else "succeeded"
        payment.amount = session.amount
        payment.currency = session.currency
        session.status = "complete"
        session.payment_status = "unpaid" if later else "paid"
        self._send_session_event(session, "completed")

    def end_debit(self, session: CheckoutSession, *, succeeds: bool = True) -> None:
        if session.payment is None or not session.is_promised:
            raise ActionNotPossible("No bank debit is in progress.")
        session.payment.status = "succeeded" if succeeds else "requires_payment_method"
        session.payment_status = "paid" if succeeds else "unpaid"
        self._send_session_event(session, f"async_payment_{'succeeded' if succeeds else 'failed'}")

    def decline(self, session: CheckoutSession) -> None:
        """Leave the checkout open, because the payer may try another card."""
        payment = objects.build_payment_object(self._start_payment(session))
        self._send_event("payment_intent.payment_failed", payment, session.id)

    def expire(self, session: CheckoutSession) -> None:
        _require(session.is_open, f"This checkout is {session.status}.")
        session.status = "expired"
        self._send_session_event(session, "expired")

    def expire_due(self, now: int) -> None:
        for session in self.list_newest_first():
            if session.is_open and session.expires_at <= now:
                self.expire(session)

    def refund(self, session: CheckoutSession, amount: int | None = None) -> None:
        payment = _require_payment(session)
        remaining = payment.amount - payment.refunded
        refund_amount = remaining if amount is None else amount
        _require(0 < refund_amount <= remaining, f"Only {remaining} can still be refunded.")
        payment.refunds.append(objects.Refund(refund_amount))
        self._send_event("charge.refunded", objects.build_charge_object(payment), session.id)

    def fail_refund(self, session: CheckoutSession) -> None:
        """Mark the latest successful refund as failed, as if the bank had rejected it."""
        payment = _require_payment(session)
        refund = next((each for each in payment.refunds[::-1] if each.status == "succeeded"), None)
        if refund is None:
            raise ActionNotPossible("There is no refund to fail.")
        refund.status = "failed"
        self._send_event("refund.failed", objects.build_refund_object(payment, refund), session.id)

    def dispute(
        self, session: CheckoutSession, amount: int | None = None, *, is_inquiry: bool = False
    ) -> None:
        payment = _require_payment(session)
        remaining = payment.undisputed
        status = "warning_needs_response" if is_inquiry else "needs_response"
        dispute = Dispute(remaining if amount is None else amount, status)
        _require(0 < dispute.amount <= remaining, f"Only {remaining} can still be disputed.")
        payment.disputes.append(dispute)
        self._send_dispute_event(session, dispute, "created")
        if not is_inquiry:
            self._send_dispute_event(session, dispute, "funds_withdrawn")

    def end_dispute(self, session: CheckoutSession, outcome: str, amount: int | None) -> None:
        """End the oldest open dispute.

        If ``amount`` is set, consider only disputes whose amount is ``amount``.
        """
        disputes = (
            each
            for each in _require_payment(session).open_disputes
            if amount in (None, each.amount)
        )
        dispute = next(disputes, None)
        if dispute is None:
            raise ActionNotPossible("There is no open dispute.")
        dispute.status = "warning_closed" if dispute.status.startswith("warning_") else outcome
        self._send_dispute_event(session, dispute, "closed")
        if dispute.status == "won":
            self._send_dispute_event(session, dispute, "funds_reinstated")

    def _start_payment(self, session: CheckoutSession) -> Payment:
        _require(session.is_open, f"This checkout is {session.status}.")
        if session.payment is None:
            details = (dict(session.payment_metadata), session.payment_description)
            session.payment = Payment(session.amount, session.currency, *details)
        return session.payment

    def _send_session_event(self, session: CheckoutSession, kind: str) -> None:
        self._send_event(
            f"checkout.session.{kind}", objects.build_session_object(session), session.id
        )

    def _send_dispute_event(self, session: CheckoutSession, dispute: Dispute, kind: str) -> None:
        dispute_object = objects.build_dispute_object(_require_payment(session), dispute)
        self._send_event(f"charge.dispute.{kind}", dispute_object, session.id)


def _require_payment(session: CheckoutSession) -> Payment:
    if session.payment is None or not session.payment.is_paid:
        raise ActionNotPossible("Nothing was paid here.")
    return session.payment


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ActionNotPossible(message)


class DeliveryMode(BaseModel):
    """Options for delivering all future webhook events."""

    times: int = Field(default=1, ge=1, le=20)
    delay: float = Field(default=0.0, ge=0, le=60, description="Seconds until the first attempt")
    shuffle: bool = Field(default=False, description="In no order, within a second")
    hold: bool = Field(default=False, description="Keep them until they are released")


class DeliveryVariant(BaseModel):
    """Options for delivering an event again."""

    times: int = Field(default=1, ge=1, le=20)
    signature: Literal["good", "wrong", "missing", "old", "rolled"] = "good"


@dataclass
class SentEvent:
    """The result of a delivery attempt is an HTTP status or the class name of an error."""

    event: Object
    session_id: str
    is_held: bool = False
    attempts: list[int | str] = field(default_factory=list)


class WebhookSender:
    def __init__(self, keys: StripeKeys) -> None:
        self.mode = DeliveryMode()
        self._keys = keys
        self._events: dict[str, SentEvent] = {}
        self._delivery_tasks: set[asyncio.Task[None]] = set()

    def send(self, kind: str, subject: Object, session_id: str) -> None:
        event = {
            "id": objects.new_id("evt"),
            "object": "event",
            "api_version": objects.API_VERSION,
            "created": objects.get_timestamp(),
            "data": {"object": subject},
            "livemode": False,
            "type": kind,
        }
        sent = SentEvent(event, session_id, is_held=self.mode.hold)
        self._events[sent.event["id"]] = sent
        if not sent.is_held:
            self._start_delivery(sent, self.mode)

    def list_events(self, session_id: str | None = None) -> list[SentEvent]:
        events = self._events.values()
        return [each for each in events if session_id in {None, each.session_id}]

    def find(self, event_id: str) -> SentEvent:
        if event_id not in self._events:
            raise HTTPException(404, "Event not found.")
        return self._events[event_id]

    def release(self, mode: DeliveryMode) -> int:
        held = [each for each in self._events.values() if each.is_held]
        for sent in held:
            sent.is_held = False
            self._start_delivery(sent, mode)
        return len(held)

    async def deliver(self, sent: SentEvent, variant: DeliveryVariant) -> list[int | str]:
        """Deliver an event immediately without retries."""
        body = json.dumps(sent.event).encode()
        return await asyncio.gather(
            *(self._post(sent, body, variant.signature) for _ in range(variant.times))
        )

    async def close(self) -> None:
        for task in self._delivery_tasks:
            task.cancel()
        if "_client" in self.__dict__:
            await self._client.aclose()

    def _start_delivery(self, sent: SentEvent, mode: DeliveryMode) -> None:
        async def send_until_accepted(delay: float) -> None:
            await asyncio.sleep(delay)
            body = json.dumps(sent.event).encode()
            for pause in (*_RETRY_PAUSES_SECONDS, 0.0):
                outcome = await self._post(sent, body, "good")
                if outcome in range(200, 300):
                    return
                await asyncio.sleep(pause)

        for _ in range(mode.times if self._keys.webhook_url else 0):
            extra = random.uniform(0, _SHUFFLED_OVER_SECONDS) if mode.shuffle else 0.0  # noqa: S311
            task = asyncio.create_task(send_until_accepted(mode.delay + extra))
            self._delivery_tasks.add(task)
            task.add_done_callback(self._delivery_tasks.discard)

    async def _post(self, sent: SentEvent, body: bytes, signature: str) -> int | str:
        import httpx2

        headers = {"Content-Type": "application/json; charset=utf-8", "User-Agent": "Stripe/1.0"}
        if signature != "missing":
            timestamp = int(time.time()) - (_OLD_SECONDS if signature == "old" else 0)
            signature_hash, foreign_hash = (
                hmac.new(
                    secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256
                ).hexdigest()
                for secret in (self._keys.webhook_secret, "whsec_of_another_account")
            )
            signatures = {"wrong": [foreign_hash], "rolled": [foreign_hash, signature_hash]}.get(
                signature, [signature_hash]
            )
            # Add an invalid v0 signature, as Stripe does for test events. A webhook receiver must
            # ignore v0 signatures.
            parts = [f"t={timestamp}", *(f"v1={each}" for each in signatures), f"v0={foreign_hash}"]
            headers["Stripe-Signature"] = ",".join(parts)
        try:
            url = self._keys.webhook_url or ""
            reply = await self._client.post(url, content=body, headers=headers)
            sent.attempts.append(reply.status_code)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            sent.attempts.append(type(error).__name__)
        return sent.attempts[-1]

    @cached_property
    def _client(self) -> "httpx2.AsyncClient":
        # Import httpx2 only to send an event, because httpx2 takes megabytes of memory and few
        # sandboxes send events.
        import httpx2

        limits = httpx2.Limits(max_connections=_MAX_CONCURRENT_DELIVERIES)
        return httpx2.AsyncClient(timeout=_TIMEOUT_SECONDS, limits=limits, trust_env=False)
