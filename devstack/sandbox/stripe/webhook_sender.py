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
    """One more delivery of an event, perhaps with another amount, which is then signed as it is."""

    times: int = Field(default=1, ge=1, le=20)
    delay: float = Field(default=0.0, ge=0, le=60)
    signature: Literal["good", "wrong", "missing", "old", "rolled"] = "good"
    amount: int | None = None
    currency: str | None = None


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

    def find(self, event_id: str) -> SentEvent | None:
        return self._events.get(event_id)

    def release(self, mode: DeliveryMode) -> int:
        """Send all held events in this mode; return how many there were."""
        held = [each for each in self._events.values() if each.is_held]
        for sent in held:
            sent.is_held = False
            self._send_off(sent, mode)
        return len(held)

    async def deliver(self, sent: SentEvent, variant: DeliveryVariant) -> list[int | str]:
        """Deliver now, all times at once, without trying again; return each result."""
        await asyncio.sleep(variant.delay)
        body = json.dumps(_changed(sent.event, variant)).encode()
        return await asyncio.gather(
            *(self._post(sent, body, variant.signature) for _ in range(variant.times))
        )

    async def close(self) -> None:
        for task in self._under_way:
            task.cancel()
        if "_client" in self.__dict__:
            await self._client.aclose()

    def _send_off(self, sent: SentEvent, mode: DeliveryMode) -> None:
        if self._keys.webhook_url is None:
            return
        for _ in range(mode.times):
            extra = random.uniform(0, _SHUFFLED_OVER_SECONDS) if mode.shuffle else 0.0  # noqa: S311
            task = asyncio.create_task(self._persist(sent, mode.delay + extra))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def _persist(self, sent: SentEvent, delay: float) -> None:
        await asyncio.sleep(delay)
        body = json.dumps(sent.event).encode()
        for pause in (*_RETRY_PAUSES_SECONDS, None):
            outcome = await self._post(sent, body, "good")
            if pause is None or (isinstance(outcome, int) and outcome // 100 == 2):  # noqa: PLR2004
                return
            await asyncio.sleep(pause)

    async def _post(self, sent: SentEvent, body: bytes, signature: str) -> int | str:
        import httpx2

        outcome: int | str
        headers = {"Content-Type": "application/json; charset=utf-8", "User-Agent": "Stripe/1.0"}
        if signature != "missing":
            headers["Stripe-Signature"] = _signature(self._keys.webhook_secret, body, signature)
        try:
            url = self._keys.webhook_url or ""
            outcome = (await self._client.post(url, content=body, headers=headers)).status_code
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            outcome = type(error).__name__
        sent.attempts.append(outcome)
        return outcome

    @cached_property
    def _client(self) -> "httpx2.AsyncClient":
        # Imported at the first event: most sandboxes idle, and it takes megabytes.
        import httpx2

        limits = httpx2.Limits(max_connections=_MAX_CONCURRENT_DELIVERIES)
        return httpx2.AsyncClient(timeout=_TIMEOUT_SECONDS, limits=limits, trust_env=False)


def _signature(secret: str, body: bytes, kind: str) -> str:
    at = int(time.time()) - (_OLD_SECONDS if kind == "old" else 0)
    good, other = _mac(secret, at, body), _mac("whsec_of_somebody_else", at, body)
    listed = {"wrong": [other], "rolled": [other, good]}.get(kind, [good])
    # Stripe's test events carry a v0 signature too, which a receiver must not trust.
    return f"t={at}," + ",".join(f"v1={each}" for each in listed) + f",v0={other}"


def _mac(secret: str, at: int, body: bytes) -> str:
    return hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()


def _changed(event: Object, variant: DeliveryVariant) -> Object:
    about = dict(event["data"]["object"])
    if variant.amount is not None:
        for name in ("amount_total", "amount_subtotal", "amount"):
            if name in about:
                about[name] = variant.amount
    if variant.currency is not None:
        about["currency"] = variant.currency.lower()
    return {**event, "data": {"object": about}}
