"""Compares the credits after random payments, refunds and disputes with those of a simple model."""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any

import httpx2
import pytest

from devstack.harness.stack import Owner, Stack
from models import Resolution
from services.credits import ledger, settlement
from tests.support.credits import stripe_events
from tests.support.credits.stripe_events import (
    Json,
    OrderTerms,
    WebhookPoster,
    build_event,
    kill_and_restart_api,
    session_event,
)
from tests.support.credits.topups import read_order_status
from tests.support.sizes import sized

_HISTORY_COUNT = sized(4, 300)
# With 20 payment histories, a test takes minutes on two CPU cores.
_HISTORIES_PER_TEST = sized(4, 20)
# The types of refund and dispute events begin with these prefixes. Events of these types contain
# the id of a payment, but no id of an order.
PAYMENT_EVENT_PREFIXES = ("charge.dispute", "refund")


def failed_payment_event(terms: OrderTerms) -> Json:
    """Return an event about a bank debit that has failed."""
    return session_event(terms, "checkout.session.async_payment_failed", payment_status="unpaid")


def failed_refund_event(refund: Json) -> Json:
    """Return an event about a failed refund, which names only the payment."""
    return build_event("refund.failed", refund | {"status": "failed"})


def kill_api_while_settling(
    stack: Stack, poster: WebhookPoster, sent: Json, seconds: float
) -> None:
    """Post an event, and kill the API process this many seconds later."""
    with ThreadPoolExecutor() as pool:
        posted = pool.submit(poster.post, sent)
        time.sleep(seconds)
        kill_and_restart_api(stack)
        with suppress(httpx2.TransportError):
            posted.result()


@dataclass
class Account:
    """The expected amounts of a credit account, in ten-thousandths of a credit."""

    owner: Owner
    balance: int = 0
    debt: int = 0
    granted: int = 0
    spent: int = 0

    def add_credits(self, units: int) -> None:
        repaid_debt = min(self.debt, units)
        self.balance += units - repaid_debt
        self.debt -= repaid_debt

    def take_credits(self, units: int) -> None:
        available = min(self.balance, units)
        self.balance -= available
        self.debt += units - available


@dataclass
class ExpectedOrder:
    """The state that the test expects of an order after the events delivered so far.

    The test computes the expected state in integers, without Pressroom's code for payments.
    """

    terms: OrderTerms
    account: Account | None
    paid: bool = False
    # The checkout session expired, or a delayed payment failed, before any payment arrived.
    expired: bool = False
    failed_first: bool = False
    # The total amount of all reported refunds, and the total amount of the failed refunds among
    # them, in the currency's minor unit.
    refunded: int = 0
    failed: int = 0
    # The refunds as the payment provider shows them after it has sent all events.
    provider_refunds: list[Json] = field(default_factory=list)
    # The total amount of the order's open and lost disputes. ``disputed`` is the expected amount
    # after the events delivered so far, and ``final_disputed`` the amount after all events.
    disputed: int = 0
    final_disputed: int = 0
    in_review: bool = False
    was_in_review: bool = False
    credited: bool = False
    # The credits that were taken back because of refunds and disputes, in ten-thousandths of a
    # credit.
    taken: int = 0

    def apply_event(self, event: Json) -> None:
        subject = event["data"]["object"]
        is_open = not (self.paid or self.expired or self.failed_first or self.was_in_review)
        self.expired |= is_open and subject.get("status") == "expired"
        self.failed_first |= is_open and event["type"] == "checkout.session.async_payment_failed"
        if "amount_total" in subject or "amount_refunded" in subject:
            self._apply_payment(subject)
        elif subject["object"] == "refund":
            self._update_refunds()
        else:
            self._update_disputes()
        self.settle()

    def _apply_payment(self, payment: Json) -> None:
        amount = payment.get("amount_total", payment.get("amount"))
        currency = payment["currency"].upper()
        is_paid = payment.get("payment_status") == "paid" or payment.get("paid", False)
        if (amount, currency) != (self.terms.minor, self.terms.currency):
            self.in_review |= is_paid and not self.credited
            self.was_in_review |= self.in_review
            return
        if is_paid and self.failed_first and not self.paid:
            self.in_review = self.was_in_review = True
        self.paid |= is_paid
        has_other_total = self.refunded not in (0, payment.get("amount_refunded"))
        if "amount_refunded" in payment and (self.failed or has_other_total):
            self._update_refunds()
        self.refunded = max(self.refunded, payment.get("amount_refunded", 0))

    def _update_refunds(self) -> None:
        refunds = self.provider_refunds
        self.refunded = sum(each["amount"] for each in refunds)
        self.failed = sum(each["amount"] for each in refunds if each["status"] == "failed")

    def _update_disputes(self) -> None:
        disputes = stripe_events.list_disputes(self.terms)
        self.disputed = sum(each["amount"] for each in disputes if each["status"] != "won")

    @property
    def returned_amount(self) -> int:
        """The refunded or disputed part of the payment, in the currency's minor unit."""
        return min(self.terms.minor, self.refunded - self.failed + self.disputed)

    def settle(self) -> None:
        if self.account is None or not self.paid or self.in_review:
            return
        if not self.credited:
            self.account.add_credits(self.terms.credit_units)
            self.credited = True
        # Round up the credits that a refund or dispute takes back, so that an account never keeps a
        # credit that wasn't paid for.
        due = -(-self.terms.credit_units * self.returned_amount // self.terms.minor)
        if due > self.taken:
            self.account.take_credits(due - self.taken)
        elif due < self.taken:
            self.account.add_credits(self.taken - due)
        self.taken = due


@dataclass
class History:
    """Random payments, refunds and disputes of a few accounts."""

    stack: Stack
    poster: WebhookPoster
    chance: random.Random
    accounts: list[Account] = field(default_factory=list)
    orders: list[ExpectedOrder] = field(default_factory=list)
    # The events that the payment provider still has to send, each with the order that it concerns.
    queued_events: list[tuple[ExpectedOrder, Json]] = field(default_factory=list)
    processed_event_ids: set[str] = field(default_factory=set)
    # How many more times the test will kill the API while the API settles a payment.
    remaining_kills: int = sized(1, 4)

    def begin(self) -> None:
        for _ in range(3):
            self.accounts.append(Account(self.stack.create_owner()))
        for _ in range(sized(8, 20)):
            self._add_order()
        # The payment provider sends each event twice, in any order.
        self.queued_events *= 2
        self.chance.shuffle(self.queued_events)

    def _add_order(self) -> None:
        account = self.chance.choice([*self.accounts, None])
        currency = self.chance.choice(["USD", "JPY"])
        minor = self.chance.choice([3, 7, 100, 500, 99_999_999])
        units = self.chance.randint(1, 10_000) if minor < 10 else self.chance.randint(1, 10**9)
        terms = stripe_events.new_order(
            self.stack,
            account.owner.user_id if account else None,
            minor=minor,
            credit_units=units,
            currency=currency,
        )
        order = ExpectedOrder(terms, account)
        self.orders.append(order)
        events = self._draw_events(order, is_owned=account is not None)
        self.queued_events += [(order, event) for event in events]

    def _draw_events(self, order: ExpectedOrder, *, is_owned: bool) -> list[Json]:
        terms = order.terms
        draw = self.chance.random
        events = [stripe_events.session_event(terms)] if draw() < 0.8 else []
        if draw() < 0.3:
            events.append(stripe_events.session_event(terms, "checkout.session.expired"))
        if is_owned and draw() < 0.15:
            events.append(failed_payment_event(terms))
        if events and draw() < 0.6:
            events += self._draw_refunds(order)
        if events and draw() < 0.4:
            events += self._draw_disputes(order)
        if is_owned and draw() < 0.15:
            wrong_fields: Json = self.chance.choice(
                [{"amount_total": terms.minor + 1}, {"currency": "eur"}]
            )
            events.append(stripe_events.session_event(terms, **wrong_fields))
        return events

    def _draw_disputes(self, order: ExpectedOrder) -> list[Json]:
        """Return the events of one or more disputes.

        Together, the disputes may exceed the payment, because a bank may also take back money that
        was already refunded.
        """
        terms = order.terms
        events: list[Json] = []
        for number in range(self.chance.choice([1, 1, 2, 2, 3])):
            amount = self.chance.choice([terms.minor, self.chance.randint(1, terms.minor)])
            final_state = self.chance.choice(["won", "lost", None])
            order.final_disputed += amount if final_state != "won" else 0
            states = ["needs_response", *([final_state] if final_state else [])]
            events += [
                stripe_events.dispute_event(terms, each, amount, number=number) for each in states
            ]
        return events

    def _draw_refunds(self, order: ExpectedOrder) -> list[Json]:
        """Return the events of up to three refunds of an order, some of which fail.

        The event of a failed refund may be missing, as if the payment provider had lost the event.
        The last refund's event is never missing.
        """
        terms = order.terms
        refunded_amount = 0
        events: list[Json] = []
        for is_last in (False, False, True):
            if refunded_amount == terms.minor:
                break
            amount = self.chance.randint(1, terms.minor - refunded_amount)
            fails = self.chance.random() < 0.3
            refund = stripe_events.add_refund(terms, amount, "failed" if fails else "succeeded")
            order.provider_refunds.append(refund)
            events.append(stripe_events.refund_event(terms, refunded_amount + amount))
            if fails and (is_last or self.chance.random() < 0.7):
                events.append(failed_refund_event(refund))
            elif not fails:
                refunded_amount += amount
        return events

    def run(self) -> None:
        while self.queued_events:
            order, event = self.queued_events.pop(0)
            self._deliver(order, event)
            if self.chance.random() < 0.5:
                self._spend(self.chance.choice(self.accounts))
            if self.chance.random() < 0.1:
                self._claim(self.chance.choice(self.accounts))
            if self.chance.random() < 0.1:
                self._grant(self.chance.choice(self.accounts))

    def _deliver(self, order: ExpectedOrder, event: Json) -> None:
        if self.remaining_kills and self.chance.random() < 0.1:
            self.remaining_kills -= 1
            # The pause is random, so that the API is killed before, during or after the settlement.
            kill_api_while_settling(self.stack, self.poster, event, self.chance.uniform(0, 0.03))
        reply = self.poster.post(event)
        if reply.status_code == 503:
            # Pressroom has rejected the event of a refund or dispute that arrived before the event
            # of the payment. If an event of the payment is still queued, send the rejected event
            # again later.
            assert event["type"].startswith(PAYMENT_EVENT_PREFIXES)
            later_types = [
                later_event["type"]
                for other_order, later_event in self.queued_events
                if other_order is order
            ]
            if not all(event_type.startswith(PAYMENT_EVENT_PREFIXES) for event_type in later_types):
                self.queued_events.append((order, event))
            return
        assert reply.status_code == 200, reply.text
        if event["id"] not in self.processed_event_ids:
            self.processed_event_ids.add(event["id"])
            order.apply_event(event)

    def _spend(self, account: Account) -> None:
        units = self.chance.choice([1, self.chance.randint(1, 10**6), max(account.balance, 1)])
        body = f'{{"amount_credit": {Decimal(units).scaleb(-4):f}, "source_id": "x"}}'
        headers = {"Content-Type": "application/json"}
        reply = self._post(account, "/auxilia/credits/consume", content=body, headers=headers)
        assert reply.status_code == (200 if units <= account.balance else 402)
        if reply.status_code == 200:
            account.balance -= units
            account.spent += units

    def _claim(self, account: Account) -> None:
        unclaimed_orders = [each for each in self.orders if each.account is None]
        if not unclaimed_orders:
            return
        order = self.chance.choice(unclaimed_orders)
        token = {"claim_token": order.terms.token}
        reply = self._post(account, "/auxilia/credits/orders/claim", json=token)
        if reply.status_code == 200:
            order.account = account
            order.settle()
        else:
            # The whole payment was refunded or disputed, so the order has no credits to claim.
            returned_all = (409, True, order.terms.minor)
            assert (reply.status_code, order.paid, order.returned_amount) == returned_all

    def _post(self, account: Account, path: str, **request: Any) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {account.owner.key}"} | request.get("headers", {})
        return self.poster.http.post(path, **request | {"headers": headers})

    def _grant(self, account: Account) -> None:
        units = self.chance.randint(1, 10**5)
        database = self.stack.resources.database
        ledger.grant_credits(
            database, account.owner.account_id, Decimal(units).scaleb(-4), source_id="gift"
        )
        account.balance += units
        account.granted += units

    def resolve(self) -> None:
        """Resolve all orders in review, as an operator does."""
        for order in self.orders:
            if read_order_status(self.stack, order.terms.order_id) != "review":
                assert not order.in_review
                continue
            assert order.in_review
            resolution = self.chance.choice(list(Resolution))
            with self.stack.resources.unit_of_work() as uow:
                settlement.resolve_order(uow, order.terms.order_id, resolution)
            if resolution is Resolution.CREDIT:
                order.in_review = False
                order.paid = True
                order.settle()

    def require_exact(self) -> None:
        for order in self.orders:
            # Skip orders that were in review. While no payment matches an order, Pressroom rejects
            # the events of the order's refunds and disputes, so the order's totals are incomplete.
            if order.paid and not order.was_in_review:
                refunded_amounts = [
                    each["amount"] for each in order.provider_refunds if each["status"] != "failed"
                ]
                assert order.refunded - order.failed == sum(refunded_amounts)
                assert order.disputed == order.final_disputed
        for account in self.accounts:
            expected = (Decimal(account.balance).scaleb(-4), Decimal(account.debt).scaleb(-4))
            assert (
                stripe_events.read_balance_and_debt(self.stack, account.owner.user_id) == expected
            )
            credited_orders = [
                each for each in self.orders if each.account is account and each.credited
            ]
            # Require that the account received only credits that were granted or paid for.
            bought_units = sum(each.terms.credit_units - each.taken for each in credited_orders)
            received_units = account.balance + account.spent - account.debt
            assert received_units == account.granted + bought_units
            paid_units = sum(
                Fraction(each.terms.credit_units)
                * (each.terms.minor - each.returned_amount)
                / each.terms.minor
                for each in credited_orders
            )
            assert bought_units <= paid_units


@pytest.mark.parametrize("first", range(0, _HISTORY_COUNT, _HISTORIES_PER_TEST))
def test_random_payment_histories_leave_the_exact_balance(
    payment_stack: Stack, payment_webhooks: WebhookPoster, first: int
) -> None:
    for seed in range(first, first + _HISTORIES_PER_TEST):
        history = History(payment_stack, payment_webhooks, random.Random(seed))
        history.begin()
        history.run()
        history.resolve()
        history.require_exact()
    # Verify the ledger only once, because no later event can repair an error in the ledger.
    stripe_events.require_clean_books(payment_stack)
