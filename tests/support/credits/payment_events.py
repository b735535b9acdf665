"""Events for the adapter to read: those that the sandbox sent, and others."""

import hashlib
import hmac
import json
import time

from devstack.harness.polling import eventually
from devstack.sandbox.stripe.objects import StripeKeys
from integrations.payments.port import Event, Evidence, OpenedCheckout
from integrations.payments.stripe import StripeCheckout
from tests.support.credits.payments import Json, SandboxPayments
from tests.support.http.webhook_receiver import Hook, HookReceiver


class Reader:
    """Reads what the webhook was sent about one checkout."""

    def __init__(
        self, receiver: HookReceiver, account: StripeCheckout, sandbox: SandboxPayments
    ) -> None:
        self._receiver = receiver
        self._account = account
        self._sandbox = sandbox

    def event(self, kind: str, opened: OpenedCheckout) -> Event:
        """The first such event that was sent about it; it is forgotten then."""
        is_session = kind.startswith("checkout.session.")
        session = self._sandbox.session(opened.session_id)
        about = session["id" if is_session else "payment"]
        named = f'"type": "{kind}"'.encode(), f'"{about}"'.encode()

        def arrived() -> Hook | None:
            kept = tuple(self._receiver.hooks)
            return next((each for each in kept if all(n in each.body for n in named)), None)

        sent = eventually(arrived, what=f"an event {kind}")
        self._receiver.hooks.remove(sent)
        return self._account.parse_event(sent.body, sent.headers["stripe-signature"])

    def evidence(self, kind: str, opened: OpenedCheckout) -> Evidence:
        found = self.event(kind, opened).evidence
        assert found is not None
        return found


def signed(keys: StripeKeys, body: bytes) -> tuple[bytes, str]:
    at = str(int(time.time()))
    mac = hmac.new(keys.webhook_secret.encode(), at.encode() + b"." + body, hashlib.sha256)
    return body, f"t={at},v1={mac.hexdigest()}"


def a_paid_session(**changed: object) -> bytes:
    session: Json = {
        "id": "cs_live_1",
        "object": "checkout.session",
        "amount_total": 100,
        "currency": "usd",
        "metadata": {"application": "pressroom", "order_id": "7"},
        "payment_intent": "pi_1",
        "payment_status": "paid",
        "status": "complete",
    }
    session |= {name: value for name, value in changed.items() if name in session}
    event = {
        "id": "evt_1",
        "object": "event",
        "created": 1,
        "data": {"object": session},
        "livemode": changed.get("livemode", False),
        "type": "checkout.session.completed",
    }
    return json.dumps(event).encode()
