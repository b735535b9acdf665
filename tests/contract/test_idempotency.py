"""Tests that a request with an `Idempotency-Key` takes effect once on each route with keys."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

import httpx2
import psycopg2
import pytest

from devstack.harness.stack import Owner, Stack
from tests.support.credits import credits, topups
from tests.support.credits.credits import CONSUME, consume, grant
from tests.support.http.replies import data, problem, send
from tests.support.images.pictures import encoded, photo
from tests.support.imports import bulk
from tests.support.imports.bulk import await_job, build_addresses
from tests.support.lists.subscribers import new_list

JSON_HEADERS = {"Content-Type": "application/json"}
Request = dict[str, Any]


@dataclass(frozen=True)
class KeyedRoute:
    """A route that accepts idempotency keys, with sample requests to the route."""

    path: str
    request: Request
    # Valid requests, each of which differs from the sample in `request`.
    different_requests: list[Request]
    invalid_request: Request
    # The HTTP status and the error code in the response to `invalid_request`.
    error: tuple[int, str]
    # A function that counts the items that requests to the route have created.
    count_items: Callable[[], int]

    def send(
        self, client: httpx2.Client, idempotency_key: str | None = None, **changes: Any
    ) -> httpx2.Response:
        request = {"path": self.path, "headers": {}, **self.request, **changes}
        key_header = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        headers = httpx2.Headers(request.pop("headers") | key_header, encoding="latin-1")
        return client.post(request.pop("path"), headers=headers, **request)


def build_upload_route(_: Stack, client: httpx2.Client) -> KeyedRoute:
    def image_request(filename: str = "picture.png", image_format: str = "PNG") -> Request:
        return {"files": {"file": (filename, encoded(image_format))}}

    return KeyedRoute(
        "/attachments",
        image_request(),
        [
            image_request("renamed.png"),
            image_request(image_format="GIF"),
            {"data": {"caption": "Sea"}},
            {"params": {"encrypted": "true"}},
        ],
        {"files": {"file": ("picture.png", b"junk")}},
        (415, "attachment.unsupported_type"),
        lambda: len(data(client.get("/attachments"))["items"]),
    )


def build_charge_route(stack: Stack, client: httpx2.Client) -> KeyedRoute:
    def charge_request(amount: str = "1.50", source_id: str = "ü", extra_json: str = "") -> Request:
        meta = '{"z": 1e-7, "a": [1.10, "é"]}'
        text = (
            f'{{"amount_credit": {amount}, "source_id": "{source_id}", "meta": {meta}{extra_json}}}'
        )
        return {"content": text, "headers": JSON_HEADERS}

    grant(stack, data(client.get("/users/me"))["id"], "10")
    return KeyedRoute(
        CONSUME,
        charge_request(),
        [
            charge_request("2"),
            charge_request(source_id="y"),
            charge_request(extra_json=', "x": 1'),
            {"params": {"a": "1"}},
        ],
        charge_request("11"),
        (402, "credits.insufficient"),
        lambda: len(credits.entries(client)) - 1,
    )


def build_add_route(_: Stack, client: httpx2.Client) -> KeyedRoute:
    def add_request(*emails: str) -> Request:
        return {"json": {"members": [{"email": email} for email in emails]}}

    list_id = new_list(client)["id"]
    emails = build_addresses(2)
    return KeyedRoute(
        f"/auxilia/subscriptions/{list_id}/members/add",
        add_request(*emails),
        [add_request(emails[0]), {"params": {"a": "1"}}],
        add_request("nobody"),
        (422, "members.all_invalid"),
        # Rejected requests are also recorded as imports, so count only successful imports.
        lambda: sum(each["added"] > 0 for each in data(client.get("/imports"))["items"]),
    )


def build_topup_route(_: Stack, client: httpx2.Client) -> KeyedRoute:
    def topup_request(amount: str = "5", extra_json: str = "") -> Request:
        text = f'{{"amount": {amount}, "redirect_url": "{topups.SHOP}"{extra_json}}}'
        return {"content": text, "headers": JSON_HEADERS}

    return KeyedRoute(
        topups.TOPUP,
        topup_request(),
        [
            topup_request("6"),
            topup_request(extra_json=', "currency": "EUR"'),
            {"params": {"a": "1"}},
        ],
        topup_request("0.49"),
        (422, "topup.amount_too_small"),
        lambda: len(data(client.get(topups.ORDERS))["items"]),
    )


KEYED_ROUTES = {
    "upload": build_upload_route,
    "charge": build_charge_route,
    "add": build_add_route,
    "order": build_topup_route,
}
every_keyed_route = pytest.mark.parametrize("keyed_route", KEYED_ROUTES, indirect=True)


@pytest.fixture
def make_keyed_route(
    request: pytest.FixtureRequest, stack: Stack
) -> Callable[[httpx2.Client], KeyedRoute]:
    """A function that creates sample requests to a route for the owner of an API client."""
    return lambda client: KEYED_ROUTES[request.node.callspec.params["keyed_route"]](stack, client)


@pytest.fixture
def keyed_route(
    make_keyed_route: Callable[[httpx2.Client], KeyedRoute], client: httpx2.Client
) -> KeyedRoute:
    """Sample requests to a route that accepts idempotency keys."""
    return make_keyed_route(client)


@pytest.fixture
def idempotency_key() -> str:
    """A new random idempotency key."""
    return token_hex(16)


def is_replayed(reply: httpx2.Response) -> bool:
    return "true" in reply.headers.get_list("idempotent-replayed")


def json_text(reply: httpx2.Response) -> str:
    """Return the JSON text of a response up to the timestamp, to compare it byte by byte."""
    data(reply)
    return reply.text.rpartition(',"ts":')[0]


@every_keyed_route
def test_repeated_request_with_the_same_idempotency_key_returns_the_first_response(
    keyed_route: KeyedRoute, client: httpx2.Client, idempotency_key: str
) -> None:
    replies = [keyed_route.send(client, idempotency_key) for _ in range(3)]
    assert len(set(map(json_text, replies))) == 1
    assert list(map(is_replayed, replies)) == [False, True, True]
    assert keyed_route.count_items() == 1


@every_keyed_route
def test_idempotency_ignores_trailing_slash_and_parameter_order(
    keyed_route: KeyedRoute, client: httpx2.Client, idempotency_key: str
) -> None:
    first_reply = keyed_route.send(client, idempotency_key, params={"note": "x", "encrypted": "0"})
    path = f"{keyed_route.path}/?encrypted=0&note=x"
    assert json_text(keyed_route.send(client, idempotency_key, path=path)) == json_text(first_reply)
    assert keyed_route.count_items() == 1


@every_keyed_route
def test_requests_without_idempotency_key_are_never_replayed(
    keyed_route: KeyedRoute, client: httpx2.Client
) -> None:
    assert not any(is_replayed(keyed_route.send(client)) for _ in range(2))


@every_keyed_route
def test_idempotency_key_of_a_different_request_is_rejected(
    keyed_route: KeyedRoute, client: httpx2.Client, idempotency_key: str
) -> None:
    data(keyed_route.send(client, idempotency_key))
    for different_request in keyed_route.different_requests:
        reply = keyed_route.send(client, idempotency_key, **different_request)
        problem(reply, 422, "idempotency.key_reused")
    assert keyed_route.count_items() == 1


@every_keyed_route
def test_idempotency_key_belongs_to_the_user_and_not_to_the_credential(
    *,
    stack: Stack,
    keyed_route: KeyedRoute,
    make_keyed_route: Callable[[httpx2.Client], KeyedRoute],
    client: httpx2.Client,
    other_owner: httpx2.Client,
    owner: Owner,
    idempotency_key: str,
) -> None:
    first_reply = keyed_route.send(client, idempotency_key)
    other_reply = make_keyed_route(other_owner).send(other_owner, idempotency_key)
    assert not is_replayed(other_reply)
    assert data(other_reply) != data(first_reply) or keyed_route.path.endswith("/add")
    with stack.client(stack.create_key(owner.user_id)) as second_client:
        assert json_text(keyed_route.send(second_client, idempotency_key)) == json_text(first_reply)


@every_keyed_route
def test_concurrent_requests_with_the_same_idempotency_key_take_effect_once(
    stack: Stack, keyed_route: KeyedRoute, owner: Owner, idempotency_key: str
) -> None:
    def call(_: int) -> httpx2.Response:
        with stack.client(owner.key) as own_client:
            return keyed_route.send(own_client, idempotency_key)

    with ThreadPoolExecutor(6) as pool:
        replies = list(pool.map(call, range(6)))
    assert len(set(map(json_text, replies))) == 1
    assert sorted(map(is_replayed, replies)) == [False] + [True] * 5
    assert keyed_route.count_items() == 1
    # A repeated call leaves no file in the object storage, even if it came too late.
    names = [name.rpartition("/")[2] for name in stack.stored("originals/")]
    attachment_rows = stack.query("SELECT hash_id FROM attachments")
    assert set(names) <= {str(hash_id) for (hash_id,) in attachment_rows}


@every_keyed_route
def test_failed_request_releases_its_idempotency_key(
    keyed_route: KeyedRoute, client: httpx2.Client, idempotency_key: str
) -> None:
    reply = keyed_route.send(client, idempotency_key, **keyed_route.invalid_request)
    problem(reply, *keyed_route.error)
    reply = keyed_route.send(client, idempotency_key)
    data(reply)
    assert not is_replayed(reply)


@every_keyed_route
def test_expired_idempotency_key_can_be_reused_and_is_kept_for_24_hours_again(
    stack: Stack, keyed_route: KeyedRoute, client: httpx2.Client, idempotency_key: str
) -> None:
    data(keyed_route.send(client, idempotency_key))
    stack.query("UPDATE idempotency_records SET expires_at = now() WHERE key = %s", idempotency_key)
    [different_request, *_] = keyed_route.different_requests
    later_reply = keyed_route.send(client, idempotency_key, **different_request)
    assert not is_replayed(later_reply)
    repeated_reply = keyed_route.send(client, idempotency_key, **different_request)
    assert json_text(repeated_reply) == json_text(later_reply)
    [(hours,)] = stack.query(
        "SELECT round(extract(epoch FROM expires_at - now()) / 3600)::int"
        " FROM idempotency_records WHERE key = %s",
        idempotency_key,
    )
    assert hours == 24


@every_keyed_route
def test_idempotency_key_must_have_16_to_255_printable_characters(
    keyed_route: KeyedRoute, client: httpx2.Client
) -> None:
    for invalid_key in ("", "short", "x" * 15, "x" * 256, "caf\xe9" * 8):
        problem(keyed_route.send(client, invalid_key), 400, "idempotency.key_invalid")
    assert keyed_route.count_items() == 0
    for valid_key in (
        token_hex(8),
        token_hex(200)[:255],
        f'"quoted, with ~ ! spaces" {token_hex(8)}',
    ):
        data(keyed_route.send(client, valid_key))


def test_routes_without_idempotency_ignore_the_key(client: httpx2.Client) -> None:
    for _ in range(2):
        headers = {"Idempotency-Key": "the same for both of them"}
        data(client.post("/apikeys", json={"name": "n"}, headers=headers))
    assert len([each for each in data(client.get("/apikeys")) if each["name"] == "n"]) == 2
    data(client.get("/users/me", headers={"Idempotency-Key": "bad"}))


def test_idempotent_replay_of_an_asynchronous_upload_returns_the_current_state(
    client: httpx2.Client, idempotency_key: str
) -> None:
    first_record = data(
        send(client, photo(), "a.jpg", key=idempotency_key, prefer="respond-async"),
        200,
        202,
    )
    repeated_reply = send(client, photo(), "a.jpg", key=idempotency_key)
    assert is_replayed(repeated_reply)
    assert (data(repeated_reply)["id"], data(repeated_reply)["status"]) == (first_record["id"], 2)


def test_idempotent_replay_of_an_unfinished_upload_returns_202_again(
    client_without_workers: httpx2.Client, idempotency_key: str
) -> None:
    first_reply = send(client_without_workers, key=idempotency_key, prefer="respond-async")
    repeated_reply = send(client_without_workers, key=idempotency_key, prefer="respond-async")
    assert data(first_reply, 202) == data(repeated_reply, 202)
    assert is_replayed(repeated_reply)
    assert repeated_reply.headers["location"] == first_reply.headers["location"]


def test_failed_conversion_releases_the_idempotency_key(
    client: httpx2.Client, idempotency_key: str
) -> None:
    truncated_image = encoded("PNG")[:-40]
    for _ in range(2):
        assert send(client, truncated_image, key=idempotency_key).status_code == 422
    reply = send(client, key=idempotency_key)
    data(reply)
    assert not is_replayed(reply)


def test_cancelled_upload_releases_the_idempotency_key(
    client_without_workers: httpx2.Client, idempotency_key: str
) -> None:
    first_record = data(
        send(client_without_workers, key=idempotency_key, prefer="respond-async"), 202
    )
    assert data(client_without_workers.delete(f"/attachments/{first_record['hash_id']}")) == 1
    repeated_reply = send(client_without_workers, key=idempotency_key, prefer="respond-async")
    assert not is_replayed(repeated_reply)
    assert data(repeated_reply, 202)["id"] != first_record["id"]


def test_idempotent_replay_of_a_deleted_attachment_creates_no_new_attachment(
    client: httpx2.Client, idempotency_key: str
) -> None:
    record = data(send(client, key=idempotency_key))
    data(client.delete(f"/attachments/{record['hash_id']}"))
    problem(send(client, key=idempotency_key), 404, "attachment.not_found")
    assert data(client.get("/attachments"))["items"] == []


def test_idempotent_replay_returns_the_first_charge_despite_later_balance_changes(
    stack: Stack, client: httpx2.Client, owner: Owner, idempotency_key: str
) -> None:
    grant(stack, owner.user_id, "10")
    first_reply = consume(client, "10.00", key=idempotency_key)
    assert '"amount_credit": 10.0000' in first_reply.text
    problem(consume(client), 402, "credits.insufficient")
    grant(stack, owner.user_id, "1")
    assert json_text(consume(client, "10.00", key=idempotency_key)) == json_text(first_reply)
    assert credits.balance(client) == 1


def test_same_idempotency_key_on_another_route_is_independent(
    stack: Stack, client: httpx2.Client, owner: Owner, idempotency_key: str
) -> None:
    grant(stack, owner.user_id, "10")
    stack.query(
        "INSERT INTO idempotency_records (caller_id, route, key, fingerprint, answer)"
        " VALUES (%s, 'POST /attachments', %s, sha256('x'), '{}')",
        owner.user_id,
        idempotency_key,
    )
    assert not is_replayed(consume(client, key=idempotency_key))


@pytest.mark.tier("timing")
def test_credit_charge_blocked_by_another_returns_409_and_releases_its_idempotency_key(
    stack: Stack, client: httpx2.Client, owner: Owner, idempotency_key: str
) -> None:
    grant(stack, owner.user_id, "10")
    with closing(psycopg2.connect(stack.environment["PRESSROOM_DATABASE_URL"])) as connection:
        with connection.cursor() as cursor:
            lock_account = "SELECT 1 FROM credit_accounts WHERE user_id = %s FOR UPDATE"
            cursor.execute(lock_account, (owner.user_id,))
            with ThreadPoolExecutor(2) as pool:
                charge_with_key = pool.submit(consume, client, key=idempotency_key)
                charge_without_key = pool.submit(consume, client)
                problem(charge_with_key.result(), 409, "idempotency.in_progress")
                problem(charge_without_key.result(), 503, "service.unavailable")
        connection.rollback()
    assert not is_replayed(consume(client, key=idempotency_key))
    assert credits.balance(client) == 9


def test_idempotent_replay_of_an_asynchronous_bulk_add_returns_the_current_job_state(
    client: httpx2.Client, list_id: int, idempotency_key: str
) -> None:
    emails = build_addresses(2)
    job_id = data(
        bulk.add(client, list_id, *emails, key=idempotency_key, prefer="respond-async"), 202
    )
    await_job(client, job_id)
    repeated_reply = bulk.add(client, list_id, *emails, key=idempotency_key, prefer="respond-async")
    assert data(repeated_reply) == 2
    assert is_replayed(repeated_reply)
