"""Events for tests of the Stripe adapter: some from the sandbox, others built by the tests."""

import json

from devstack.harness.polling import eventually
from devstack.sandbox.stripe.objects import StripeKeys
from integrations.payments.port import Event, Evidence, OpenedCheckout
from integrations.payments.stripe import StripeCheckout
from tests.support.credits.payments import Json, SandboxPayments
from tests.support.credits.stripe_events import sign_body
from tests.support.http.webhook_receiver import Hook, HookReceiver


class EventReader:
    """Reads the webhook events about a checkout that the sandbox has sent to a test's receiver."""

    def __init__(
        self, receiver: HookReceiver, account: StripeCheckout, sandbox: SandboxPayments
    ) -> None:
        self._receiver = receiver
        self._account = account
        self._sandbox = sandbox

    def event(self, kind: str, opened: OpenedCheckout) -> Event:
        """Wait for an event of the type ``kind`` about a checkout, and return the event."""
        is_session = kind.startswith("checkout.session.")
        session = self._sandbox.session(opened.session_id)
        object_id = session["id" if is_session else "payment"]
        type_in_body = f'"type": "{kind}"'.encode()
        id_in_body = f'"{object_id}"'.encode()

        def find_hook() -> Hook | None:
            hooks = tuple(self._receiver.hooks)
            return next(
                (each for each in hooks if type_in_body in each.body and id_in_body in each.body),
                None,
            )

        hook = eventually(find_hook, what=f"an event {kind}")
        self._receiver.hooks.remove(hook)
        return self._account.parse_event(hook.body, hook.headers["stripe-signature"])

    def evidence(self, kind: str, opened: OpenedCheckout) -> Evidence:
        evidence = self.event(kind, opened).evidence
        assert evidence is not None
        return evidence


def sign_event(keys: StripeKeys, body: bytes) -> tuple[bytes, str]:
    """Return the body of an event, and the header with its signature."""
    return body, sign_body(body, keys.webhook_secret)


def build_paid_session(**changed: object) -> bytes:
    """Return the body of an event about a paid checkout session, with some fields changed."""
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
