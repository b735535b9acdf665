"""A Stripe account, which stores checkouts and sends events about changes of checkouts."""

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


class ActionNotPossible(Exception):
    """The status of a checkout doesn't allow an action. The message states the reason."""


class Account:
    """The checkouts of an account.

    ``send_event`` is called with an event's type, object and session id.
    """

    def __init__(self, tell: Callable[[str, Object, str], None]) -> None:
        self._tell = tell
        self._sessions: dict[str, CheckoutSession] = {}

    def keep(self, session: CheckoutSession) -> None:
        self._sessions[session.id] = session

    def newest_first(self) -> list[CheckoutSession]:
        return list(reversed(self._sessions.values()))

    def session(self, session_id: str) -> CheckoutSession | None:
        return self._sessions.get(session_id)

    def payment(self, payment_id: str) -> Payment | None:
        payments = (each.payment for each in self._sessions.values())
        return next((each for each in payments if each and each.id == payment_id), None)

    def pay(self, session: CheckoutSession, *, later: bool = False) -> None:
        """Pay a checkout by card. With ``later``, pay by a bank debit, which ``end_debit`` ends."""
        payment = self._attempt(session)
        payment.status = "processing" if later else "succeeded"
        payment.amount, payment.currency = session.amount, session.currency
        session.status, session.payment_status = "complete", "unpaid" if later else "paid"
        self._tell_of(session, "completed")

    def settle(self, session: CheckoutSession, *, comes: bool = True) -> None:
        """End a bank debit, which succeeds or fails."""
        if session.payment is None or not session.is_promised:
            raise ActionNotPossible("No bank debit is under way.")
        session.payment.status = "succeeded" if comes else "requires_payment_method"
        session.payment_status = "paid" if comes else "unpaid"
        self._tell_of(session, f"async_payment_{'succeeded' if comes else 'failed'}")

    def decline(self, session: CheckoutSession) -> None:
        """Decline a card. The checkout stays open, because the payer may try another card."""
        shown = objects.payment_object(self._attempt(session))
        self._tell("payment_intent.payment_failed", shown, session.id)

    def expire(self, session: CheckoutSession) -> None:
        _require(session.is_open, f"This checkout is {session.status}.")
        session.status = "expired"
        self._tell_of(session, "expired")

    def expire_due(self, now: int) -> None:
        """Expire every open checkout whose time is over."""
        for session in self.newest_first():
            if session.is_open and session.expires_at <= now:
                self.expire(session)

    def refund(self, session: CheckoutSession, amount: int | None = None) -> None:
        payment = _paid(session)
        left = payment.amount - payment.refunded
        given_back = left if amount is None else amount
        _require(0 < given_back <= left, f"{left} are left to be given back.")
        payment.refunds.append(objects.Refund(given_back))
        self._tell("charge.refunded", objects.charge_object(payment), session.id)

    def fail_refund(self, session: CheckoutSession) -> None:
        """Fail the last successful refund, as if the payer's bank had returned the money."""
        payment = _paid(session)
        refund = next((each for each in payment.refunds[::-1] if each.status == "succeeded"), None)
        if refund is None:
            raise ActionNotPossible("There is no refund that could fail.")
        refund.status = "failed"
        self._tell("refund.failed", objects.refund_object(payment, refund), session.id)

    def dispute(
        self, session: CheckoutSession, amount: int | None = None, *, is_inquiry: bool = False
    ) -> None:
        payment = _paid(session)
        left = payment.undisputed
        status = "warning_needs_response" if is_inquiry else "needs_response"
        dispute = Dispute(left if amount is None else amount, status)
        _require(0 < dispute.amount <= left, f"{left} are left to be disputed.")
        payment.disputes.append(dispute)
        self._tell_of_dispute(session, dispute, "created")
        if not is_inquiry:
            self._tell_of_dispute(session, dispute, "funds_withdrawn")

    def end_dispute(self, session: CheckoutSession, outcome: str, amount: int | None) -> None:
        """End the oldest open dispute, or the oldest open dispute about ``amount``."""
        found = (each for each in _paid(session).open_disputes if amount in (None, each.amount))
        dispute = next(found, None)
        if dispute is None:
            raise ActionNotPossible("There is no such open dispute.")
        dispute.status = "warning_closed" if dispute.status.startswith("warning_") else outcome
        self._tell_of_dispute(session, dispute, "closed")
        if dispute.status == "won":
            self._tell_of_dispute(session, dispute, "funds_reinstated")

    def _attempt(self, session: CheckoutSession) -> Payment:
        _require(session.is_open, f"This checkout is {session.status}.")
        if session.payment is None:
            about = (dict(session.payment_metadata), session.payment_description)
            session.payment = Payment(session.amount, session.currency, *about)
        return session.payment

    def _tell_of(self, session: CheckoutSession, kind: str) -> None:
        self._tell(f"checkout.session.{kind}", objects.session_object(session), session.id)

    def _tell_of_dispute(self, session: CheckoutSession, dispute: Dispute, what: str) -> None:
        shown = objects.dispute_object(_paid(session), dispute)
        self._tell(f"charge.dispute.{what}", shown, session.id)


def _paid(session: CheckoutSession) -> Payment:
    if session.payment is None or not session.payment.is_paid:
        raise ActionNotPossible("Nothing was paid here.")
    return session.payment


def _require(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise ActionNotPossible(otherwise)


_RETRY_PAUSES_SECONDS = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
_TIMEOUT_SECONDS = 30.0
_MAX_CONCURRENT_DELIVERIES = 20
_OLD_SECONDS = 600
_SHUFFLED_OVER_SECONDS = 1.0


class DeliveryMode(BaseModel):
    """How events are delivered from now on."""

    times: int = Field(default=1, ge=1, le=20)
    delay: float = Field(default=0.0, ge=0, le=60, description="Seconds until the first attempt")
    shuffle: bool = Field(default=False, description="In no order, within a second")
    hold: bool = Field(default=False, description="Keep them until they are released")


class DeliveryVariant(BaseModel):
    """Another delivery of an event."""

    times: int = Field(default=1, ge=1, le=20)
    signature: Literal["good", "wrong", "missing", "old", "rolled"] = "good"


@dataclass
class SentEvent:
    """An event, and the result of each attempt to deliver it: a status, or an error's name."""

    event: Object
    session_id: str
    is_held: bool = False
    attempts: list[int | str] = field(default_factory=list)


class WebhookSender:
    def __init__(self, keys: StripeKeys) -> None:
        self.mode = DeliveryMode()
        self._keys = keys
        self._events: dict[str, SentEvent] = {}
        self._under_way: set[asyncio.Task[None]] = set()

    def tell(self, kind: str, about: Object, session_id: str) -> None:
        event = {
            "id": objects.new_id("evt"),
            "object": "event",
            "api_version": objects.API_VERSION,
            "created": objects.now(),
            "data": {"object": about},
            "livemode": False,
            "type": kind,
        }
        sent = SentEvent(event, session_id, is_held=self.mode.hold)
        self._events[sent.event["id"]] = sent
        if not sent.is_held:
            self._send_off(sent, self.mode)

    def events(self, session_id: str | None = None) -> list[SentEvent]:
        """Return the events of one session or of all sessions, oldest first."""
        kept = self._events.values()
        return [each for each in kept if session_id in {None, each.session_id}]

    def find(self, event_id: str) -> SentEvent:
        if event_id not in self._events:
            raise HTTPException(404, "There is no such event.")
        return self._events[event_id]

    def release(self, mode: DeliveryMode) -> int:
        """Send all held events in a mode, and return the number of events."""
        held = [each for each in self._events.values() if each.is_held]
        for sent in held:
            sent.is_held = False
            self._send_off(sent, mode)
        return len(held)

    async def deliver(self, sent: SentEvent, variant: DeliveryVariant) -> list[int | str]:
        """Deliver an event immediately without retries. Return the result of each delivery."""
        body = json.dumps(sent.event).encode()
        return await asyncio.gather(
            *(self._post(sent, body, variant.signature) for _ in range(variant.times))
        )

    async def close(self) -> None:
        for task in self._under_way:
            task.cancel()
        if "_client" in self.__dict__:
            await self._client.aclose()

    def _send_off(self, sent: SentEvent, mode: DeliveryMode) -> None:
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
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def _post(self, sent: SentEvent, body: bytes, signature: str) -> int | str:
        import httpx2

        headers = {"Content-Type": "application/json; charset=utf-8", "User-Agent": "Stripe/1.0"}
        if signature != "missing":
            at = int(time.time()) - (_OLD_SECONDS if signature == "old" else 0)
            good, other = (
                hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
                for secret in (self._keys.webhook_secret, "whsec_of_another_account")
            )
            listed = {"wrong": [other], "rolled": [other, good]}.get(signature, [good])
            # Add a v0 signature like Stripe's test events. A receiver must not trust this
            # signature.
            signed = [f"t={at}", *(f"v1={each}" for each in listed), f"v0={other}"]
            headers["Stripe-Signature"] = ",".join(signed)
        try:
            url = self._keys.webhook_url or ""
            reply = await self._client.post(url, content=body, headers=headers)
            sent.attempts.append(reply.status_code)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            sent.attempts.append(type(error).__name__)
        return sent.attempts[-1]

    @cached_property
    def _client(self) -> "httpx2.AsyncClient":
        # Import httpx with the first event, because httpx takes megabytes and most sandboxes send
        # no event.
        import httpx2

        limits = httpx2.Limits(max_connections=_MAX_CONCURRENT_DELIVERIES)
        return httpx2.AsyncClient(timeout=_TIMEOUT_SECONDS, limits=limits, trust_env=False)
