"""Sends events to the webhook, signed as Stripe signs them, and again until it accepts them."""

import asyncio
import hashlib
import hmac
import json
import random
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from fastapi import HTTPException
from pydantic import BaseModel, Field

from devstack.sandbox.stripe.keys import StripeKeys
from devstack.sandbox.stripe.records import new_id, now
from devstack.sandbox.stripe.stripe_objects import API_VERSION, Object

if TYPE_CHECKING:
    import httpx2

MAX_EVENTS = 5_000
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
    """One more delivery of an event."""

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
        self._events: OrderedDict[str, SentEvent] = OrderedDict()
        self._under_way: set[asyncio.Task[None]] = set()

    def tell(self, kind: str, about: Object, session_id: str) -> None:
        event = {
            "id": new_id("evt"),
            "object": "event",
            "api_version": API_VERSION,
            "created": now(),
            "data": {"object": about},
            "livemode": False,
            "pending_webhooks": 1,
            "request": {"id": None, "idempotency_key": None},
            "type": kind,
        }
        sent = SentEvent(event, session_id, is_held=self.mode.hold)
        self._events[sent.event["id"]] = sent
        if len(self._events) > MAX_EVENTS:
            self._events.popitem(last=False)
        if not sent.is_held:
            self._send_off(sent, self.mode)

    def events(self, session_id: str | None = None) -> list[SentEvent]:
        """The events of one session, or of all, in the order in which they happened."""
        kept = self._events.values()
        return [each for each in kept if session_id in {None, each.session_id}]

    def find(self, event_id: str) -> SentEvent:
        if event_id not in self._events:
            raise HTTPException(404, "There is no such event, or not any more.")
        return self._events[event_id]

    def release(self, mode: DeliveryMode) -> int:
        """Send all held events in this mode; return how many there were."""
        held = [each for each in self._events.values() if each.is_held]
        for sent in held:
            sent.is_held = False
            self._send_off(sent, mode)
        return len(held)

    async def deliver(self, sent: SentEvent, variant: DeliveryVariant) -> list[int | str]:
        """Deliver now, all times at once, without trying again; return each result."""
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
            # Stripe's test events carry a v0 signature too, which a receiver must not trust.
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
        # Imported at the first event: most sandboxes idle, and it takes megabytes.
        import httpx2

        limits = httpx2.Limits(max_connections=_MAX_CONCURRENT_DELIVERIES)
        return httpx2.AsyncClient(timeout=_TIMEOUT_SECONDS, limits=limits, trust_env=False)
