"""Tests of the composer's prices: which calls cost credits, who pays, and when."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from secrets import token_hex

import httpx2
import pytest

from core.scopes import Scope
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner
from services.credits import own_charges
from services.credits import verify as ledger_verify
from tests.support.composer.composer_stack import (
    CALL_PRICE,
    MODEL_SOURCE,
    ComposerStack,
    build_unique_post,
)
from tests.support.composer.composing import METADATA, TWEETS
from tests.support.credits import credits
from tests.support.http.replies import data, problem

LARGE_BALANCE = "100"


@dataclass
class Author:
    """An owner who pays with credits for texts that the language model writes."""

    owner: Owner
    client: httpx2.Client

    def ask(
        self,
        body: dict[str, str] | None = None,
        path: str = METADATA,
        call_id: dict[str, str] | None = None,
    ) -> httpx2.Response:
        """Call the composer. ``call_id``: a header such as Idempotency-Key, and its value."""
        headers = {"Prefer": "wait=40"} | (call_id or {})
        return self.client.post(path, json=body or build_unique_post(), headers=headers)

    @property
    def charges(self) -> list[dict[str, object]]:
        """The owner's charges, except charges that have been reversed."""
        entries = credits.entries(self.client)
        reversed_ids = {
            each["meta"]["entry_id"] for each in entries if each["action"] == "consume_reversal"
        }
        return [
            each
            for each in entries
            if each["action"] == "consume" and each["id"] not in reversed_ids
        ]


@pytest.fixture
def model(priced_composer: ComposerStack) -> ComposerStack:
    """A stack where composer calls cost credits.

    The simulated language model gives correct answers unless a test changes its behaviour.
    """
    priced_composer.steer(None)
    return priced_composer


@pytest.fixture
def make_author(model: ComposerStack) -> Iterator[Callable[[str], Author]]:
    """A function that creates an owner with the given number of credits."""
    clients: list[httpx2.Client] = []

    def make(balance: str) -> Author:
        owner = model.stack.create_owner()
        if balance != "0":
            credits.grant(model.stack, owner.user_id, balance)
        clients.append(model.stack.client(owner.key))
        return Author(owner, clients[-1])

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def author(make_author: Callable[[str], Author]) -> Author:
    """An owner who has more credits than any test in this module spends."""
    return make_author(LARGE_BALANCE)


def open_charges(model: ComposerStack) -> list[tuple[object, ...]]:
    return model.stack.query("SELECT entry_id FROM open_charges")


def clear_cache(model: ComposerStack) -> None:
    """Delete all cached entries, as Redis does when its memory is full."""
    redis = model.stack.resources.redis
    for name in redis.scan_iter("pressroom:cache:*"):
        redis.delete(name)


@pytest.mark.parametrize(("path", "text_kind"), [(METADATA, "metadata"), (TWEETS, "tweets")])
def test_model_text_is_charged_with_a_ledger_entry_that_names_the_call(
    author: Author, path: str, text_kind: str
) -> None:
    request_id = token_hex(8)
    reply = author.ask(path=path, call_id={"X-Request-ID": request_id})
    data(reply)
    assert reply.headers["pressroom-source"] == MODEL_SOURCE
    [entry] = author.charges
    assert (entry["source_type"], entry["source_id"]) == ("composer", request_id)
    assert entry["meta"] == {"wrote": text_kind, "writer": MODEL_SOURCE}
    assert Decimal(str(entry["delta_credit"])) == -CALL_PRICE
    assert credits.balance(author.client) == Decimal(LARGE_BALANCE) - CALL_PRICE


def test_cached_composer_text_costs_nothing_for_any_caller(
    author: Author, make_author: Callable[[str], Author]
) -> None:
    body = build_unique_post()
    author_without_credits = make_author("0")
    first_reply = author.ask(body)
    for caller in (author, author_without_credits):
        cached_reply = caller.ask(body)
        assert data(cached_reply) == data(first_reply)
        assert cached_reply.headers["pressroom-source"] == f"{MODEL_SOURCE}; cached"
    assert (len(author.charges), len(author_without_credits.charges)) == (1, 0)


@pytest.mark.tier("processes")
def test_composer_caller_who_gets_a_model_error_is_not_charged(
    model: ComposerStack, author: Author
) -> None:
    model.work("error")
    try:
        model.steer("refuses")
        problem(author.ask(), 502, "llm.failed")
    finally:
        model.work("offline")
    assert author.charges == []


@pytest.mark.parametrize("balance", ["0", "2.4999"])
def test_composer_call_with_insufficient_credits_is_rejected_before_the_model_is_called(
    model: ComposerStack, make_author: Callable[[str], Author], balance: str
) -> None:
    author = make_author(balance)
    calls_before = model.calls()
    error = problem(author.ask(), 402, "credits.insufficient")
    assert (error["balance_credit"], error["needed"]) == (float(balance), float(CALL_PRICE))
    assert model.calls() == calls_before
    assert author.charges == []


def test_composer_call_requires_an_api_key_that_may_spend_credits(
    model: ComposerStack, author: Author
) -> None:
    insufficient_scopes = [(Scope.COMPOSER,), (Scope.COMPOSER, Scope.CREDIT_READ)]
    for scopes in insufficient_scopes:
        with model.stack.client(model.stack.create_key(author.owner.user_id, *scopes)) as client:
            error = problem(
                client.post(METADATA, json=build_unique_post()), 403, "auth.insufficient_scope"
            )
            assert "credit.full" in error["detail"]
    assert author.charges == []
    spending_key = model.stack.create_key(author.owner.user_id, Scope.COMPOSER, Scope.CREDIT_FULL)
    with model.stack.client(spending_key) as client:
        data(client.post(METADATA, json=build_unique_post()))
    assert len(author.charges) == 1


@pytest.mark.parametrize("header", ["Idempotency-Key", "X-Request-ID"])
def test_repeated_composer_call_with_the_same_key_is_charged_once(
    model: ComposerStack, make_author: Callable[[str], Author], header: str
) -> None:
    author = make_author(str(CALL_PRICE))
    body = build_unique_post()
    call_id = {header: token_hex(16)}
    data(author.ask(body, call_id=call_id))
    clear_cache(model)
    repeated_reply = author.ask(body, call_id=call_id)
    data(repeated_reply)
    assert repeated_reply.headers["pressroom-source"] == MODEL_SOURCE
    assert len(author.charges) == 1


@pytest.mark.parametrize("header", ["Idempotency-Key", "X-Request-ID"])
def test_composer_calls_with_the_same_key_but_different_posts_are_each_charged(
    author: Author, header: str
) -> None:
    call_id = {header: token_hex(16)}
    for _ in range(2):
        data(author.ask(call_id=call_id))
    data(author.ask(path=TWEETS, call_id=call_id))
    assert len(author.charges) == 3
    assert len({str(each["source_id"]) for each in author.charges}) == 1


def test_composer_rejects_a_too_short_idempotency_key(author: Author) -> None:
    problem(author.ask(call_id={"Idempotency-Key": "short"}), 400, "idempotency.key_invalid")


def test_only_one_of_several_concurrent_composer_callers_pays_for_a_shared_text(
    model: ComposerStack, make_author: Callable[[str], Author]
) -> None:
    model.steer("moment")
    body = build_unique_post()
    calls_before = model.calls()
    authors = [make_author(LARGE_BALANCE) for _ in range(3)]
    call_id = {"Idempotency-Key": token_hex(16)}
    # The first author makes the same call twice, with the same Idempotency-Key.
    callers = [*authors, authors[0]]
    with ThreadPoolExecutor() as pool:
        calls = [pool.submit(each.ask, body, call_id=call_id) for each in callers]
        replies = [each.result() for each in calls]
    assert {reply.status_code for reply in replies} == {200}
    assert model.calls() == calls_before + 1
    assert sorted(len(each.charges) for each in authors) == [0, 0, 1]
    paid_credits = [Decimal(LARGE_BALANCE) - credits.balance(each.client) for each in authors]
    assert sorted(paid_credits) == [0, 0, CALL_PRICE]


def test_composer_caller_who_disconnects_while_the_model_writes_is_charged(
    model: ComposerStack, author: Author
) -> None:
    model.steer("moment")
    body = build_unique_post()
    calls_before = model.calls()
    with pytest.raises(httpx2.ReadTimeout):
        author.client.post(METADATA, json=body, timeout=httpx2.Timeout(20, read=0.5))
    eventually(lambda: model.calls() > calls_before, what="the model call")
    eventually(lambda: not open_charges(model), what="the settlement of the charge")
    assert len(author.charges) == 1
    assert author.ask(body).headers["pressroom-source"] == f"{MODEL_SOURCE}; cached"
    assert credits.balance(author.client) == Decimal(LARGE_BALANCE) - CALL_PRICE


def test_composer_caller_who_disconnects_before_a_worker_starts_is_refunded(
    model: ComposerStack, make_author: Callable[[str], Author]
) -> None:
    author = make_author(str(CALL_PRICE))
    calls_before = model.calls()
    model.stop_workers()
    try:
        reply = author.client.post(METADATA, json=build_unique_post(), headers={"Prefer": "wait=1"})
        problem(reply, 504, "request.too_slow")
        assert (credits.balance(author.client), author.charges) == (CALL_PRICE, [])
        with pytest.raises(httpx2.ReadTimeout):
            author.client.post(
                METADATA, json=build_unique_post(), timeout=httpx2.Timeout(20, read=0.5)
            )
        eventually(lambda: credits.balance(author.client) == CALL_PRICE, what="the refund")
    finally:
        model.work("offline")
    assert (model.calls(), open_charges(model)) == (calls_before, [])


def test_concurrent_composer_calls_never_exceed_the_balance(
    model: ComposerStack, make_author: Callable[[str], Author]
) -> None:
    author = make_author(str(CALL_PRICE))
    calls_before = model.calls()
    model.steer("moment")
    bodies = [build_unique_post() for _ in range(10)]
    with ThreadPoolExecutor(10) as pool:
        replies = list(pool.map(author.ask, bodies))
    assert sorted(reply.status_code for reply in replies) == [200, *[402] * 9]
    assert model.calls() == calls_before + 1
    assert len(author.charges) == 1


def test_concurrent_composer_call_with_the_same_key_is_rejected_as_in_progress(
    model: ComposerStack, make_author: Callable[[str], Author]
) -> None:
    author = make_author(str(CALL_PRICE))
    body = build_unique_post()
    call_id = {"Idempotency-Key": token_hex(16)}
    model.steer("moment")
    with ThreadPoolExecutor() as pool:
        first_call = pool.submit(author.ask, body, call_id=call_id)
        eventually(lambda: open_charges(model), what="the charge")
        problem(author.ask(body, call_id=call_id), 409, "idempotency.in_progress")
        data(first_call.result())
    clear_cache(model)
    data(author.ask(body, call_id=call_id))
    assert len(author.charges) == 1
    assert credits.balance(author.client) == 0


@pytest.mark.parametrize("worker_name", [None, "a lost worker"])
def test_open_charge_of_a_killed_process_is_reversed_after_its_deadline(
    model: ComposerStack, make_author: Callable[[str], Author], worker_name: str | None
) -> None:
    author = make_author(str(CALL_PRICE))
    stack = model.stack
    entry = data(credits.consume(author.client, str(CALL_PRICE)))
    stack.query(
        "INSERT INTO open_charges (entry_id, call, work, taken_by, deadline)"
        " VALUES (%s, 'ab', 'request:x', %s, now() + interval '1 minute')",
        entry["id"],
        worker_name,
    )
    own_charges.reverse_overdue_charges(stack.resources)
    assert credits.balance(author.client) == 0
    stack.query("UPDATE open_charges SET deadline = now() WHERE entry_id = %s", entry["id"])
    for _ in range(2):
        own_charges.reverse_overdue_charges(stack.resources)
    own_charges.settle_charge(stack.resources.database, entry["id"], worker_name or "a late worker")
    assert (credits.balance(author.client), author.charges) == (CALL_PRICE, [])
    assert ledger_verify.verify_ledger(stack.resources, full=True).faults == []


def test_offline_fallback_text_costs_nothing_and_emits_no_low_balance_event(
    model: ComposerStack, make_author: Callable[[str], Author]
) -> None:
    author = make_author("101")
    model.steer("refuses")
    for _ in range(2):
        assert author.ask().headers["pressroom-source"] == "offline; fallback"
    assert author.charges == []
    model.steer(None)
    data(author.ask())
    query = "SELECT count(*) FROM feed_events WHERE user_id = %s AND type = 'credits.low'"
    assert model.stack.query(query, author.owner.user_id) == [(1,)]


def test_price_list_contains_the_composer_price(author: Author) -> None:
    reply = author.client.get("/auxilia/credits/prices")
    data(reply)
    assert credits.parse_exactly(reply.text)["data"]["composer_call"] == CALL_PRICE
