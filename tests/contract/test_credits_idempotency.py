"""A charge under an `Idempotency-Key` happens once."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from decimal import Decimal
from secrets import token_hex

import httpx
import psycopg2
import pytest

from tests.contract import credits
from tests.contract.credits import CONSUME, balance, consume, grant
from tests.contract.replies import data, problem
from tests.stack import Owner, Stack


@pytest.fixture
def key() -> str:
    return token_hex(16)


@pytest.fixture(autouse=True)
def _ten_credits(stack: Stack, owner: Owner) -> None:
    grant(stack, owner.user_id, "10")


def replayed(reply: httpx.Response) -> bool:
    return "true" in reply.headers.get_list("idempotent-replayed")


def content(reply: httpx.Response) -> str:
    """`data` to the byte."""
    return reply.text.rpartition(',"ts":')[0]


def test_same_request_again_is_the_same_answer_to_the_byte(client: httpx.Client, key: str) -> None:
    body = '{"amount_credit": 1.50, "source_id": "ü", "meta": {"z": 1e-7, "a": [1.10, "é"]}}'
    replies = [credits.send(client, body, key) for _ in range(3)]
    assert [reply.status_code for reply in replies] == [200] * 3
    assert list(map(replayed, replies)) == [False, True, True]
    assert len(set(map(content, replies))) == 1
    assert '"amount_credit": 1.5000' in replies[0].text
    assert balance(client) == Decimal("8.5")
    assert len(credits.entries(client)) == 2


def test_answer_stays_the_first_one_whatever_happens_after(
    stack: Stack, client: httpx.Client, owner: Owner, key: str
) -> None:
    first = consume(client, "10", key=key)
    problem(consume(client), 402, "credits.insufficient")
    grant(stack, owner.user_id, "1")
    assert content(consume(client, "10", key=key)) == content(first)
    assert balance(client) == 1


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CONSUME, '{"amount_credit": 2, "source_id": "x"}'),
        (CONSUME, '{"amount_credit": 1, "source_id": "y"}'),
        (CONSUME, '{"amount_credit": 1, "source_id": "x", "meta": {}}'),
        (CONSUME + "?a=1", '{"amount_credit": 1, "source_id": "x"}'),
    ],
)
def test_key_of_another_request_is_422(
    client: httpx.Client, key: str, path: str, body: str
) -> None:
    data(credits.send(client, '{"amount_credit": 1, "source_id": "x"}', key))
    headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
    problem(client.post(path, content=body, headers=headers), 422, "idempotency.key_reused")
    assert balance(client) == 9


def test_trailing_slash_makes_no_other_request(client: httpx.Client, key: str) -> None:
    body = b'{"amount_credit": 1, "source_id": "x"}'
    headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
    first, again = (client.post(CONSUME + end, content=body, headers=headers) for end in ("", "/"))
    assert content(first) == content(again)
    assert balance(client) == 9


def test_refusal_frees_the_key(stack: Stack, client: httpx.Client, owner: Owner, key: str) -> None:
    problem(consume(client, "11", key=key), 402, "credits.insufficient")
    problem(consume(client, "0", key=key), 422, "credits.amount")
    grant(stack, owner.user_id, "1")
    reply = consume(client, "11", key=key)
    assert data(reply)["balance_after"] == 0
    assert not replayed(reply)


def test_key_is_its_callers_and_not_its_credentials(
    stack: Stack, client: httpx.Client, owner: Owner, key: str
) -> None:
    other = stack.new_owner()
    grant(stack, other.user_id, "10")
    first = consume(client, key=key)
    with stack.client(other.key) as neighbour:
        theirs = consume(neighbour, key=key)
        assert not replayed(theirs)
        assert data(theirs)["user_id"] == other.user_id
    with stack.client(stack.new_key(owner.user_id)) as again:
        assert content(consume(again, key=key)) == content(first)


def test_key_of_another_route_is_another_key(
    stack: Stack, client: httpx.Client, owner: Owner, key: str
) -> None:
    stack.query(
        "INSERT INTO idempotency_records (caller_id, route, key, fingerprint, answer)"
        " VALUES (%s, 'POST /attachments', %s, sha256('x'), '{}')",
        owner.user_id,
        key,
    )
    assert not replayed(consume(client, key=key))


def test_expired_key_is_free_and_is_kept_for_another_24_hours(
    stack: Stack, client: httpx.Client, key: str
) -> None:
    data(consume(client, key=key))
    stack.query("UPDATE idempotency_records SET expires_at = now() WHERE key = %s", key)
    later = consume(client, "2", key=key)
    assert not replayed(later)
    assert content(consume(client, "2", key=key)) == content(later)
    [(hours,)] = stack.query(
        "SELECT round(extract(epoch FROM expires_at - now()) / 3600)::int"
        " FROM idempotency_records WHERE key = %s",
        key,
    )
    assert hours == 24
    assert balance(client) == 7


@pytest.mark.parametrize("bad", ["short", "x" * 15, "x" * 256, "caf\xe9" * 8])
def test_key_has_16_to_255_printable_characters(client: httpx.Client, bad: str) -> None:
    headers = httpx.Headers({"Idempotency-Key": bad}, encoding="latin-1")
    body = {"amount_credit": 1, "source_id": "x"}
    problem(client.post(CONSUME, json=body, headers=headers), 400, "idempotency.key_invalid")
    assert balance(client) == 10


def test_shortest_and_longest_keys_are_accepted(client: httpx.Client) -> None:
    for size in (16, 255):
        key = token_hex(128)[:size]
        data(consume(client, key=key))
        assert replayed(consume(client, key=key))


def test_equal_requests_at_once_are_one_charge(
    stack: Stack, client: httpx.Client, owner: Owner, key: str
) -> None:
    def call(_: int) -> httpx.Response:
        with stack.client(owner.key) as own:
            return consume(own, "7", key=key)

    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(call, range(8)))
    assert {reply.status_code for reply in replies} == {200}
    assert len(set(map(content, replies))) == 1
    assert sorted(map(replayed, replies)) == [False] + [True] * 7
    assert balance(client) == 3


def test_charge_that_waits_too_long_for_another_is_409_and_frees_the_key(
    stack: Stack, client: httpx.Client, owner: Owner, key: str
) -> None:
    with closing(psycopg2.connect(stack.environment["PRESSROOM_DATABASE_URL"])) as connection:
        with connection.cursor() as cursor:
            hold = "SELECT 1 FROM credit_accounts WHERE user_id = %s FOR UPDATE"
            cursor.execute(hold, (owner.user_id,))
            with ThreadPoolExecutor(2) as pool:
                keyed = pool.submit(consume, client, key=key)
                plain = pool.submit(consume, client)
                problem(keyed.result(), 409, "idempotency.in_progress")
                problem(plain.result(), 503, "service.unavailable")
        connection.rollback()
    assert not replayed(consume(client, key=key))
    assert balance(client) == 9
