"""The sandbox's stand-in for Stripe, as tests use it: a payer, a bank, and a post office."""

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
    """``base_url``: the sandbox's, such as ``stack.sandbox_url``.

    A checkout is named by its session's id, by its payment page's URL, or by the order's number.
    Amounts are in the minor unit: cents, or yen.
    """

    def __init__(self, base_url: str) -> None:
        self._http = plain_client(base_url=f"{base_url}/stripe", trust_env=False)

    def pay(self, checkout: str | int) -> str:
        """Pay by card on the page; where the browser is sent then."""
        return self._choose(checkout, "pay")

    def cancel(self, checkout: str | int) -> str:
        return self._choose(checkout, "cancel")

    def decline(self, checkout: str | int) -> None:
        """A card that is refused: the page stays open."""
        self._do(checkout, "decline")

    def expire(self, checkout: str | int) -> None:
        self._do(checkout, "expire")

    def promise(self, checkout: str | int) -> None:
        """Order a bank debit, which then waits for ``settle`` or ``fall_through``."""
        self._do(checkout, "promise")

    def settle(self, checkout: str | int) -> None:
        self._do(checkout, "settle")

    def fall_through(self, checkout: str | int) -> None:
        self._do(checkout, "fall_through")

    def alter(self, checkout: str | int, *, amount: int) -> None:
        """Let the provider's checkout be about another amount than what was asked for."""
        self._do(checkout, "alter", amount=amount)

    def refund(self, checkout: str | int, amount: int | None = None) -> None:
        """Give back a part, or all that is left."""
        self._do(checkout, "refund", amount=amount)

    def fail_refund(self, checkout: str | int) -> None:
        """The payer's bank sends the last refund back."""
        self._do(checkout, "fail_refund")

    def dispute(self, checkout: str | int, amount: int | None = None) -> None:
        """The payer's bank takes the money, or a part, until ``win`` or for good, by ``lose``."""
        self._do(checkout, "dispute", amount=amount)

    def inquire(self, checkout: str | int) -> None:
        """The payer's bank asks, and takes nothing."""
        self._do(checkout, "inquire")

    def win(self, checkout: str | int) -> None:
        """End the oldest open dispute."""
        self._do(checkout, "win")

    def lose(self, checkout: str | int, amount: int | None = None) -> None:
        """End the oldest open dispute, or the oldest of that amount."""
        self._do(checkout, "lose", amount=amount)

    def mode(self, *, times: int = 1, hold: bool = False) -> None:
        """How events are delivered from now on; without arguments: once, at once."""
        self._put("/control/mode", times=times, hold=hold)

    def hold(self) -> None:
        """Deliver nothing until ``release``."""
        self.mode(hold=True)

    def release(self, *, times: int = 1, shuffle: bool = False) -> int:
        """Let go of what is held; how many events that was. New ones are held still."""
        given = {"times": times, "shuffle": shuffle}
        found: int = self._post("/control/release", given)["released"]
        return found

    def events(self, checkout: str | int | None = None) -> list[Json]:
        """Oldest first: id, type, is_held, attempts (statuses that it was answered), event."""
        params = {} if checkout is None else {"session": self.session(checkout)["id"]}
        listed: list[Json] = self._http.get("/control/events", params=params).json()
        return listed

    def deliver(self, event: Json, *, signature: Signature = "good") -> list[int | str]:
        """Post it now, signed as told; what was answered."""
        path = f"/control/events/{event['id']}/deliver"
        found: list[int | str] = self._post(path, {"signature": signature})["attempts"]
        return found

    def trouble(
        self,
        *,
        count: int = 1,
        status: int | None = None,
        seconds: float = 0.0,
        when: Literal["before", "after"] = "before",
    ) -> None:
        """Let the next calls be slow, or fail, before or after they have done their work.

        The library tries twice by itself: a call fails for good with ``count=2`` only.
        """
        self._put("/control/trouble", count=count, status=status, seconds=seconds, when=when)

    def no_trouble(self) -> None:
        self.trouble(count=0)

    def sessions(self) -> list[Json]:
        """Newest first: id, order_id, url, status, payment_status, amount, currency, payment …"""
        listed: list[Json] = self._http.get("/control/sessions").json()
        return listed

    def session(self, checkout: str | int) -> Json:
        """Return a checkout session.

        ``checkout``: the id of the order, or a text that contains the id of the session.
        """
        found = re.search(r"cs_test_\w+", str(checkout))
        name, value = ("id", found[0]) if found else ("order_id", str(checkout))
        return next(each for each in self.sessions() if each[name] == value)

    def close(self) -> None:
        self._http.close()

    def _choose(self, checkout: str | int, choice: str) -> str:
        reply = self._http.post(self.session(checkout)["url"], data={"choice": choice})
        assert reply.status_code == 303, reply.text
        return reply.headers["location"]

    def _do(self, checkout: str | int, action: str, **about: object) -> None:
        self._post(f"/control/sessions/{self.session(checkout)['id']}/{action}", about)

    def _post(self, path: str, given: Json) -> Json:
        reply: Json = self._http.post(path, json=given).raise_for_status().json()
        return reply

    def _put(self, path: str, **given: object) -> None:
        self._http.put(path, json=given).raise_for_status()


def serving(keys: StripeKeys) -> AbstractContextManager[str]:
    """The stand-in alone, in this process; its sandbox's URL."""
    router = strict_router(StripeServer(keys))
    app = create_app((SandboxProvider("Payments", "/stripe", "Stripe.", router, page="/stripe"),))
    return serving_app(app)


def account_at(url: str, keys: StripeKeys, **chosen: float) -> StripeCheckout:
    return StripeCheckout(
        PaymentChannel.SANDBOX,
        base_url=url,
        secret_key=SecretStr(keys.secret_key),
        webhook_secret=SecretStr(keys.webhook_secret),
        **chosen,
    )


def an_order(
    amount: int = 1234,
    currency: str = "USD",
    *,
    lasting: timedelta = timedelta(hours=2),
    return_url: str = RETURN_URL,
) -> Checkout:
    """Each has a number of its own."""
    return Checkout(
        order_id=next(_orders),
        amount_minor=amount,
        currency=currency,
        description="1,234 credits",
        return_url=return_url,
        expires_at=clock.now() + lasting,
    )
