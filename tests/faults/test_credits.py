"""Tests that the balance of credits is exact after concurrent changes and random changes."""

import json
import random
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from itertools import chain, count
from secrets import token_hex

import httpx2
import pytest

from core.errors import DomainError
from core.ids import AccountId, PersonId
from devstack.harness.stack import Owner, Stack
from services.access.caller import Caller
from services.credits import ledger
from tests.support.credits.charging import CreditAccounts
from tests.support.credits.credits import consume
from tests.support.sizes import sized
from tests.support.stack.load import call_at_once


@pytest.fixture(scope="module")
def credits_stack(make_stack: Callable[[str], Stack]) -> CreditAccounts:
    stack = make_stack("bank")
    stack.start_api()
    return CreditAccounts(stack)


@pytest.mark.tier("fast")
def test_concurrent_charges_with_one_idempotency_key_create_one_entry(
    credits_stack: CreditAccounts,
) -> None:
    for _ in range(sized(1, 20)):
        owner = credits_stack.create_holder("10")
        key = token_hex(16)
        with _open_many_connections(credits_stack, owner) as client:
            replies = call_at_once(200, partial(consume, client, "0.1", key=key))
        assert {reply.status_code for reply in replies} == {200}
        assert len({reply.text.rpartition(',"ts":')[0] for reply in replies}) == 1
        assert sum("idempotent-replayed" not in reply.headers for reply in replies) == 1
        assert len(credits_stack.entries(owner)) == 2
        assert credits_stack.balance(owner) == Decimal("9.9")
    credits_stack.require_clean_books()


def _open_many_connections(credits_stack: CreditAccounts, owner: Owner) -> httpx2.Client:
    return httpx2.Client(
        base_url=credits_stack.stack.api_url,
        headers={"Authorization": f"Bearer {owner.key}"},
        limits=httpx2.Limits(max_connections=200),
        timeout=60,
    )


def test_concurrent_charges_never_overdraw_an_account(credits_stack: CreditAccounts) -> None:
    owner = credits_stack.create_holder("3.3333")
    numbers = count()

    def spend() -> list[httpx2.Response]:
        cents = random.Random(next(numbers))
        return [consume(client, f"0.{cents.randint(1, 3000):04}") for _ in range(sized(4, 200))]

    with _open_many_connections(credits_stack, owner) as client:
        replies = list(chain.from_iterable(call_at_once(50, spend)))
    assert {reply.status_code for reply in replies} <= {200, 402}
    paid = [
        json.loads(reply.text, parse_float=Decimal)["data"]
        for reply in replies
        if reply.status_code == 200
    ]
    remaining = Decimal("3.3333") - sum((each["amount_credit"] for each in paid), Decimal(0))
    assert credits_stack.balance(owner) == remaining >= 0
    entries = credits_stack.entries(owner)
    assert [seq for seq, *_ in entries] == list(range(1, len(paid) + 2))
    assert sorted((each["seq"], each["balance_after"]) for each in paid) == [
        (seq, balance_after) for seq, _, balance_after, _ in entries[1:]
    ]
    # Some charges were refused, because the sum of all charges would exceed the balance.
    assert len(paid) < len(replies)
    credits_stack.require_clean_books()


def test_random_credit_movements_leave_the_exact_balance(credits_stack: CreditAccounts) -> None:
    for seed in range(sized(3, 100)):
        chance = random.Random(seed)
        owner = credits_stack.create_holder("1")
        expected_balance = Decimal(1)
        entry_count = 1
        for _ in range(sized(60, 500)):
            amount = Decimal(chance.choice([chance.randint(1, 99), chance.randint(1, 10**7)]))
            amount = amount.scaleb(-4)
            # Choose a grant, an adjustment or a charge. A charge is twice as probable as a grant.
            kind = chance.choice("gacc")
            delta = amount if kind == "g" else -amount
            if kind == "a" and chance.random() < 0.5:
                delta = amount
            if expected_balance + delta < 0:
                with pytest.raises(DomainError, match="too low"):
                    _change_balance(credits_stack, kind, owner.user_id, delta)
            else:
                _change_balance(credits_stack, kind, owner.user_id, delta)
                expected_balance += delta
                entry_count += 1
        assert credits_stack.balance(owner) == expected_balance
        seqs = [seq for seq, *_ in credits_stack.entries(owner)]
        assert seqs == list(range(1, entry_count + 1))
    credits_stack.require_clean_books()


def _change_balance(credits_stack: CreditAccounts, kind: str, user_id: int, delta: Decimal) -> None:
    database = credits_stack.stack.resources.database
    if kind == "g":
        ledger.grant_credits(database, AccountId(user_id), delta, source_id="x")
    elif kind == "a":
        ledger.adjust_balance(database, AccountId(user_id), delta, source_id="x")
    else:
        caller = Caller(AccountId(user_id), PersonId(user_id), frozenset(), unrestricted=True)
        ledger.consume_credits(database, caller, amount=-delta, source_id="x", meta=None, key=None)
