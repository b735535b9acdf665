"""Controls the sandbox's imitation of Stripe: a payer, the payer's bank, and Stripe's webhooks."""

import itertools
import re
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, Literal

from pydantic import SecretStr

from core import clock
from devstack.harness.stack import plain_client
from devstack.sandbox.app import SandboxProvider, create_app
from devstack.sandbox.stripe.objects import StripeKeys
from devstack.sandbox.stripe.pages import StripeServer
from integrations.payments.port import Checkout, PaymentChannel
from integrations.payments.stripe import StripeCheckout
from tests.support.http.servers import serving_app
from tests.support.sandbox.stripe_strictness import strict_router

RETURN_URL = "http://127.0.0.1:9/back?order=1"
_orders = itertools.count(1)

Json = dict[str, Any]
Signature = Literal["good", "wrong", "missing", "old", "rolled"]


class SandboxPayments:
    """Controls payments in the sandbox.

    The argument ``checkout`` is the id of a checkout session, the URL of its payment page, or the
    id of the order. Amounts are in the currency's minor unit, for example in cents or yen.

    ``base_url``: the URL of the sandbox, such as ``stack.sandbox_url``.
    """

    def __init__(self, base_url: str) -> None:
        self._http = plain_client(base_url=f"{base_url}/stripe", trust_env=False)

    def pay(self, checkout: str | int) -> str:
        """Pay by card on the payment page, and return the URL to which the page redirects."""
        return self._choose(checkout, "pay")

    def cancel(self, checkout: str | int) -> str:
        return self._choose(checkout, "cancel")

    def decline(self, checkout: str | int) -> None:
        """Pay with a card that the bank declines, so that the payer must try another card."""
        self._do(checkout, "decline")

    def expire(self, checkout: str | int) -> None:
        self._do(checkout, "expire")

    def promise(self, checkout: str | int) -> None:
        """Order a bank debit, which is pending until ``settle`` or ``fall_through`` is called."""
        self._do(checkout, "promise")

    def settle(self, checkout: str | int) -> None:
        self._do(checkout, "settle")

    def fall_through(self, checkout: str | int) -> None:
        self._do(checkout, "fall_through")

    def alter(self, checkout: str | int, *, amount: int) -> None:
        self._do(checkout, "alter", amount=amount)

    def refund(self, checkout: str | int, amount: int | None = None) -> None:
        """Refund an amount, by default the whole remaining amount."""
        self._do(checkout, "refund", amount=amount)

    def fail_refund(self, checkout: str | int) -> None:
        """Make the last refund fail, as if the payer's bank had sent the money back to Stripe."""
        self._do(checkout, "fail_refund")

    def dispute(self, checkout: str | int, amount: int | None = None) -> None:
        """Open a dispute about a payment: the payer's bank takes back the money or a part of it."""
        self._do(checkout, "dispute", amount=amount)

    def inquire(self, checkout: str | int) -> None:
        """Open an inquiry about a payment, which doesn't take money from the seller."""
        self._do(checkout, "inquire")

    def win(self, checkout: str | int) -> None:
        """End the oldest open dispute: the seller wins."""
        self._do(checkout, "win")

    def lose(self, checkout: str | int, amount: int | None = None) -> None:
        """End the oldest open dispute: the seller loses."""
        self._do(checkout, "lose", amount=amount)

    def mode(self, *, times: int = 1, hold: bool = False) -> None:
        """Set how many times each webhook event is delivered, and whether events are held back."""
        self._put("/control/mode", times=times, hold=hold)

    def hold(self) -> None:
        """Hold all webhook events back until ``release`` is called."""
        self.mode(hold=True)

    def release(self, *, times: int = 1, shuffle: bool = False) -> int:
        options = {"times": times, "shuffle": shuffle}
        count: int = self._post("/control/release", options)["released"]
        return count

    def events(self, checkout: str | int | None = None) -> list[Json]:
        """Return all events, or the events of a checkout, oldest first."""
        params = {} if checkout is None else {"session": self.session(checkout)["id"]}
        events: list[Json] = self._http.get("/control/events", params=params).json()
        return events

    def deliver(self, event: Json, *, signature: Signature = "good") -> list[int | str]:
        """Deliver a webhook event now, and return the results of all attempts to deliver it."""
        path = f"/control/events/{event['id']}/deliver"
        attempts: list[int | str] = self._post(path, {"signature": signature})["attempts"]
        return attempts

    def fail_next_calls(
        self,
        *,
        count: int = 1,
        status: int | None = None,
        seconds: float = 0.0,
        when: Literal["before", "after"] = "before",
    ) -> None:
        """Make the next ``count`` calls to the imitation of Stripe slow, or make them fail.

        If ``when`` is ``before``, a failing call changes nothing. If ``when`` is ``after``, a
        failing call takes effect although the caller gets an error.

        The Stripe library retries a failed call once. If the Stripe library's retry must also fail,
        pass ``count=2``.
        """
        self._put("/control/trouble", count=count, status=status, seconds=seconds, when=when)

    def stop_failures(self) -> None:
        self.fail_next_calls(count=0)

    def sessions(self) -> list[Json]:
        """Return all checkout sessions, newest first."""
        sessions: list[Json] = self._http.get("/control/sessions").json()
        return sessions

    def session(self, checkout: str | int) -> Json:
        """Return a checkout session."""
        session_id = re.search(r"cs_test_\w+", str(checkout))
        name, value = ("id", session_id[0]) if session_id else ("order_id", str(checkout))
        return next(each for each in self.sessions() if each[name] == value)

    def close(self) -> None:
        self._http.close()

    def _choose(self, checkout: str | int, choice: str) -> str:
        reply = self._http.post(self.session(checkout)["url"], data={"choice": choice})
        assert reply.status_code == 303, reply.text
        return reply.headers["location"]

    def _do(self, checkout: str | int, action: str, **options: object) -> None:
        self._post(f"/control/sessions/{self.session(checkout)['id']}/{action}", options)

    def _post(self, path: str, body: Json) -> Json:
        reply: Json = self._http.post(path, json=body).raise_for_status().json()
        return reply

    def _put(self, path: str, **body: object) -> None:
        self._http.put(path, json=body).raise_for_status()


def running_payment_sandbox(keys: StripeKeys) -> AbstractContextManager[str]:
    """Run the sandbox's imitation of Stripe in this process, and yield the sandbox's URL."""
    router = strict_router(StripeServer(keys))
    app = create_app((SandboxProvider("Payments", "/stripe", "Stripe.", router, page="/stripe"),))
    return serving_app(app)


def connect_adapter(url: str, keys: StripeKeys, **chosen: float) -> StripeCheckout:
    """Return Pressroom's adapter for Stripe, connected to the simulation of Stripe at this URL."""
    return StripeCheckout(
        PaymentChannel.SANDBOX,
        base_url=url,
        secret_key=SecretStr(keys.secret_key),
        webhook_secret=SecretStr(keys.webhook_secret),
        **chosen,
    )


def build_checkout(
    amount: int = 1234,
    currency: str = "USD",
    *,
    requested_duration: timedelta = timedelta(hours=2),
    return_url: str = RETURN_URL,
) -> Checkout:
    """Return a checkout of a new order, with an order id that no other test uses."""
    return Checkout(
        order_id=next(_orders),
        amount_minor=amount,
        currency=currency,
        description="1,234 credits",
        return_url=return_url,
        expires_at=clock.now() + requested_duration,
    )
