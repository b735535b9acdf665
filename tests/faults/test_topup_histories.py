import random
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any

import httpx2
import pytest

from devstack.harness.stack import Owner, Stack
from models import Resolution
from services.credits import ledger, settlement
from tests.support.credits import till
from tests.support.credits.till import Json, Poster, Terms
from tests.support.sizes import sized

_HISTORIES = sized(4, 300)
# So many in one test: two cores take minutes for them.
_PART = sized(4, 20)
# Events that name a payment and no order.
OF_PAYMENTS = ("charge.dispute", "refund")


@dataclass
class Account:
    """What a user has, in ten-thousandths of a credit."""

    owner: Owner
    balance: int = 0
    debt: int = 0
    granted: int = 0
    spent: int = 0

    def get(self, units: int) -> None:
        pay = min(self.debt, units)
        self.balance, self.debt = self.balance + units - pay, self.debt - pay

    def lose(self, units: int) -> None:
        part = min(self.balance, units)
        self.balance, self.debt = self.balance - part, self.debt + units - part


@dataclass
class Sold:
    """What the test itself knows of an order: its own rules, in whole numbers."""

    terms: Terms
    account: Account | None
    paid: bool = False
    # Its time ran out, or a promised payment fell through, before any payment came.
    expired: bool = False
    failed_first: bool = False
    # Of the money: all refunds that the test knows of, those that failed, and how it is in truth.
    refunded: int = 0
    failed: int = 0
    truth: list[Json] = field(default_factory=list)
    # Of all disputes, what is open or was lost: as far as it was heard, and at the end.
    disputed: int = 0
    disputed_at_last: int = 0
    in_review: bool = False
    was_in_review: bool = False
    credited: bool = False
    taken: int = 0

    def hear(self, sent: Json) -> None:
        about = sent["data"]["object"]
        is_open = not (self.paid or self.expired or self.failed_first or self.was_in_review)
        self.expired |= is_open and about.get("status") == "expired"
        self.failed_first |= is_open and sent["type"] == "checkout.session.async_payment_failed"
        if "amount_total" in about or "amount_refunded" in about:
            self._hear_of_money(about)
        elif about["object"] == "refund":
            self._hear_of_refunds()
        else:
            self._hear_of_disputes()
        self.settle()

    def _hear_of_money(self, about: Json) -> None:
        said = (about.get("amount_total", about.get("amount")), about["currency"].upper())
        is_paid = about.get("payment_status") == "paid" or about.get("paid", False)
        if said != (self.terms.minor, self.terms.currency):
            self.in_review |= is_paid and not self.credited
            self.was_in_review |= self.in_review
            return
        if is_paid and self.failed_first and not self.paid:
            self.in_review = self.was_in_review = True
        self.paid |= is_paid
        said_before = self.refunded not in (0, about.get("amount_refunded"))
        if "amount_refunded" in about and (self.failed or said_before):
            self._hear_of_refunds()
        self.refunded = max(self.refunded, about.get("amount_refunded", 0))

    def _hear_of_refunds(self) -> None:
        self.refunded = sum(each["amount"] for each in self.truth)
        self.failed = sum(each["amount"] for each in self.truth if each["status"] == "failed")

    def _hear_of_disputes(self) -> None:
        listed = till.disputes_of(self.terms)
        self.disputed = sum(each["amount"] for each in listed if each["status"] != "won")

    @property
    def gone(self) -> int:
        """Of the money, in the minor unit."""
        return min(self.terms.minor, self.refunded - self.failed + self.disputed)

    def settle(self) -> None:
        if self.account is None or not self.paid or self.in_review:
            return
        if not self.credited:
            self.account.get(self.terms.credit_units)
            self.credited = True
        due = -(-self.terms.credit_units * self.gone // self.terms.minor)
        if due > self.taken:
            self.account.lose(due - self.taken)
        elif due < self.taken:
            self.account.get(self.taken - due)
        self.taken = due


@dataclass
class History:
    """One random life of some accounts and orders."""

    bank: Stack
    poster: Poster
    chance: random.Random
    accounts: list[Account] = field(default_factory=list)
    sold: list[Sold] = field(default_factory=list)
    letters: list[tuple[Sold, Json]] = field(default_factory=list)
    told: set[str] = field(default_factory=set)
    # How often the process that settles is killed while it does.
    deaths: int = sized(1, 4)

    def begin(self) -> None:
        for _ in range(3):
            self.accounts.append(Account(self.bank.create_owner()))
        for _ in range(sized(8, 20)):
            self._sell()
        self.letters *= 2
        self.chance.shuffle(self.letters)

    def _sell(self) -> None:
        account = self.chance.choice([*self.accounts, None])
        currency = self.chance.choice(["USD", "JPY"])
        minor = self.chance.choice([3, 7, 100, 500, 99_999_999])
        units = self.chance.randint(1, 10_000) if minor < 10 else self.chance.randint(1, 10**9)
        terms = till.new_order(
            self.bank,
            account.owner.user_id if account else None,
            minor=minor,
            credit_units=units,
            currency=currency,
        )
        sold = Sold(terms, account)
        self.sold.append(sold)
        self.letters += [(sold, sent) for sent in self._events(sold, is_owned=account is not None)]

    def _events(self, sold: Sold, *, is_owned: bool) -> list[Json]:
        terms = sold.terms
        likely = self.chance.random
        events = [till.session(terms)] if likely() < 0.8 else []
        if likely() < 0.3:
            events.append(till.session(terms, "checkout.session.expired"))
        if is_owned and likely() < 0.15:
            events.append(till.fallen_through(terms))
        if events and likely() < 0.6:
            events += self._refunds(sold)
        if events and likely() < 0.4:
            events += self._disputes(sold)
        if is_owned and likely() < 0.15:
            wrong: Json = self.chance.choice(
                [{"amount_total": terms.minor + 1}, {"currency": "eur"}]
            )
            events.append(till.session(terms, **wrong))
        return events

    def _disputes(self, sold: Sold) -> list[Json]:
        """One dispute or several, each with its end.

        A bank may take what was given back already, so they may be about more than was paid.
        """
        terms, events = sold.terms, list[Json]()
        for number in range(self.chance.choice([1, 1, 2, 2, 3])):
            amount = self.chance.choice([terms.minor, self.chance.randint(1, terms.minor)])
            end = self.chance.choice(["won", "lost", None])
            sold.disputed_at_last += amount if end != "won" else 0
            states = ["needs_response", *([end] if end else [])]
            events += [till.dispute(terms, each, amount, number=number) for each in states]
        return events

    def _refunds(self, sold: Sold) -> list[Json]:
        """Refunds one after the other, of which some fail before the next one is made.

        The news of a failure may be lost, but for that of the last.
        """
        terms, back, events = sold.terms, 0, list[Json]()
        for is_last in (False, False, True):
            if back == terms.minor:
                break
            amount = self.chance.randint(1, terms.minor - back)
            fails = self.chance.random() < 0.3
            refund = till.refund_object(terms, amount, "failed" if fails else "succeeded")
            sold.truth.append(refund)
            events.append(till.refund(terms, back + amount))
            if fails and (is_last or self.chance.random() < 0.7):
                events.append(till.failed_refund(refund))
            elif not fails:
                back += amount
        return events

    def run(self) -> None:
        while self.letters:
            sold, sent = self.letters.pop(0)
            self._deliver(sold, sent)
            if self.chance.random() < 0.5:
                self._spend(self.chance.choice(self.accounts))
            if self.chance.random() < 0.1:
                self._claim(self.chance.choice(self.accounts))
            if self.chance.random() < 0.1:
                self._give(self.chance.choice(self.accounts))

    def _deliver(self, sold: Sold, sent: Json) -> None:
        if self.deaths and self.chance.random() < 0.1:
            self.deaths -= 1
            # Before it began, in the middle, or when only its answer was lost.
            till.die_while_settling(self.bank, self.poster, sent, self.chance.uniform(0, 0.03))
        reply = self.poster.post(sent)
        if reply.status_code == 503:
            # News of a payment before it; the provider sends them again, if there ever was one.
            assert sent["type"].startswith(OF_PAYMENTS)
            still = [later["type"] for other, later in self.letters if other is sold]
            if not all(kind.startswith(OF_PAYMENTS) for kind in still):
                self.letters.append((sold, sent))
            return
        assert reply.status_code == 200, reply.text
        if sent["id"] not in self.told:
            self.told.add(sent["id"])
            sold.hear(sent)

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
        unowned = [each for each in self.sold if each.account is None]
        if not unowned:
            return
        sold = self.chance.choice(unowned)
        token = {"claim_token": sold.terms.token}
        reply = self._post(account, "/auxilia/credits/orders/claim", json=token)
        if reply.status_code == 200:
            sold.account = account
            sold.settle()
        else:
            # All of it went back: there is nothing to have.
            assert (reply.status_code, sold.paid, sold.gone) == (409, True, sold.terms.minor)

    def _post(self, account: Account, path: str, **sent: Any) -> httpx2.Response:
        key = {"Authorization": f"Bearer {account.owner.key}"}
        return self.poster.http.post(path, **sent | {"headers": key | sent.get("headers", {})})

    def _give(self, account: Account) -> None:
        units = self.chance.randint(1, 10**5)
        database = self.bank.resources.database
        ledger.grant_credits(
            database, account.owner.user_id, Decimal(units).scaleb(-4), source_id="gift"
        )
        account.balance += units
        account.granted += units

    def resolve(self) -> None:
        """An operator looks at what is in review."""
        for sold in self.sold:
            if till.state(self.bank, sold.terms) != "review":
                assert not sold.in_review
                continue
            assert sold.in_review
            resolution = self.chance.choice(list(Resolution))
            with self.bank.resources.unit_of_work() as uow:
                settlement.resolve_order(uow, sold.terms.order_id, resolution)
            if resolution is Resolution.CREDIT:
                sold.in_review, sold.paid = False, True
                sold.settle()

    def require_exact(self) -> None:
        for sold in self.sold:
            # Not those whose payment never fitted: the news of its refunds found no order.
            if sold.paid and not sold.was_in_review:
                went_back = [each["amount"] for each in sold.truth if each["status"] != "failed"]
                assert sold.refunded - sold.failed == sum(went_back)
                assert sold.disputed == sold.disputed_at_last
        for account in self.accounts:
            expected = (Decimal(account.balance).scaleb(-4), Decimal(account.debt).scaleb(-4))
            assert till.standing(self.bank, account.owner.user_id) == expected
            own = [each for each in self.sold if each.account is account and each.credited]
            # No credits from nothing: what was ever to be had was given or paid for.
            kept = sum(each.terms.credit_units - each.taken for each in own)
            had = account.balance + account.spent - account.debt
            assert had == account.granted + kept
            worth = sum(
                Fraction(each.terms.credit_units)
                * (each.terms.minor - each.gone)
                / each.terms.minor
                for each in own
            )
            assert kept <= worth


@pytest.mark.parametrize("first", range(0, _HISTORIES, _PART))
def test_random_payment_histories_leave_the_exact_balance(
    payment_stack: Stack, payment_webhooks: Poster, first: int
) -> None:
    for seed in range(first, first + _PART):
        history = History(payment_stack, payment_webhooks, random.Random(seed))
        history.begin()
        history.run()
        history.resolve()
        history.require_exact()
    # Once for all: what is wrong with an account's books stays wrong.
    till.require_clean_books(payment_stack)
