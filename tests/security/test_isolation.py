"""Tests that no caller can read or change another owner's data.

The tests call every API operation with each kind of invalid credential. The tests also open every
page and send every form of the console in two browsers: in one browser, nobody is logged in, and in
the other browser, another owner is logged in.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx2
import pytest

from api.app import create_app
from api.auth.csrf import CSRF_HEADER
from api.openapi.document import list_api_routes
from core.scopes import USER_SCOPES, Scope
from core.settings import Settings
from devstack.harness.stack import Stack
from tests.support.http.openapi import openapi_document
from tests.support.people.oauth import log_in, open_browser, register
from tests.support.people.visiting import SESSION_COOKIE
from tests.support.security import world as worlds
from tests.support.security.calls import (
    CALLS,
    CALLS_FOR_EVERYBODY,
    CALLS_FOR_STRANGERS,
    CALLS_WITH_PUBLIC_LIST,
    CALLS_WITHOUT_SCOPE,
    Call,
)
from tests.support.security.console_calls import CONSOLE_CALLS
from tests.support.security.world import World, await_jobs, digest_owned_rows, obtain_tokens
from tests.support.stack.maintenance import resting_maintenance

# Maps each page and form of the console to the request with which the tests call it. The console's
# stylesheets and scripts are left out, because everybody may read them.
PAGES = {name: call for name, call in CONSOLE_CALLS.items() if name != "GET /console/assets/{name}"}
# Tables whose rows belong to no owner, but to the whole installation, to an e-mail address or to a
# reader.
TABLES_WITHOUT_OWNER = {
    *("alembic_version", "departures", "feed_offsets", "login_attempts", "mail_counts"),
    *("maintenance", "object_removals", "payment_order_checkpoints", "payment_order_transitions"),
    *("mailed_links", "opt_outs", "consent_entries", "erasures", "former_addresses"),
    "spent_proofs",
}
# The tests of this module create an owner with data in most tables. ``TABLES_WITHOUT_ROWS`` names
# the other tables, for which the tests can't check who reads or changes the owner's data.
TABLES_WITHOUT_ROWS = TABLES_WITHOUT_OWNER | {
    # Pressroom adds rows to ``api_requests`` and the next three tables some time after an API call.
    *("api_requests", "subscriber_counts", "member_days", "origin_day_deltas"),
    "landing_day_deltas",
    # Maintenance tasks add up the numbers in ``subscriber_deltas`` and ``member_day_deltas``, store
    # the sums in other tables, and delete the rows.
    *("subscriber_deltas", "member_day_deltas"),
    # The test data of the owner has no rows in ``idempotency_records`` and the tables named below,
    # or a job has deleted the rows.
    *("idempotency_records", "named_members", "waiting_chunks", "open_charges"),
    *("passkeys", "recovery_codes", "totp_secrets", "credit_checkpoints", "composer_uses"),
    *("bulk_changes", "import_changes", "consent_claims", "consent_wordings", "deleted_tags"),
    *("denied_entries", "erased_denials", "list_reports", "address_opt_outs", "teammates"),
}
EVERY_CALL: dict[str, Call] = {**CALLS, **PAGES}


def parametrize_operation(operations: Iterable[object]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("operation", list(operations))


@cache
def operations() -> dict[str, dict[str, Any]]:
    """Return the operations in the OpenAPI document, and the undocumented aliases of operations."""
    documented = {
        f"{method.upper()} {path}": operation
        for path, methods in openapi_document()["paths"].items()
        for method, operation in methods.items()
    }
    aliases = {
        name.replace(" ", " /auxilia"): operation
        for name, operation in documented.items()
        if " /composer/" in name
    }
    return documented | aliases


@dataclass(frozen=True)
class InvalidCredential:
    """An invalid credential.

    Attributes:
        headers: a function that returns the request headers with the credential.
        status: the expected status of the response.
        code: the expected error code of the response.
        can_read: whether the credential is valid for reading, and only writing is rejected.
    """

    headers: Callable[[World], dict[str, str]]
    status: int = 401
    code: str = "auth.invalid_credentials"
    can_read: bool = False


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _revoked_key(world: World) -> dict[str, str]:
    key = world.stack.create_key(world.owner.user_id)
    world.stack.query(
        "UPDATE api_keys SET revoked_at = now() WHERE id = "
        "(SELECT max(id) FROM api_keys WHERE user_id = %s)",
        world.owner.user_id,
    )
    return _bearer(key)


def _expired_token(world: World) -> dict[str, str]:
    return _ended_token(world, "expires_at = now() - interval '1 second'")


def _revoked_token(world: World) -> dict[str, str]:
    return _ended_token(world, "revoked_at = now()")


def _ended_token(world: World, change: str) -> dict[str, str]:
    """Return request headers with an OAuth token that is no longer valid.

    ``change``: the SQL assignment that invalidates the token in the table ``oauth_tokens``.
    """
    tokens = obtain_tokens(world, register(world.stack, name=f"{world.mark} ended"))
    world.stack.query(
        f"UPDATE oauth_tokens SET {change} WHERE grant_id = "
        "(SELECT max(id) FROM oauth_grants WHERE user_id = %s)",
        world.owner.user_id,
    )
    return _bearer(tokens["access_token"])


def _session(world: World) -> dict[str, str]:
    person = log_in(world.stack, world.owner)
    with person.browser:
        return {"Cookie": f"{SESSION_COOKIE}={person.browser.cookies[SESSION_COOKIE]}"}


# To test a new kind of invalid credential, add a line to this dictionary.
INVALID_CREDENTIALS: dict[str, InvalidCredential] = {
    "nobody": InvalidCredential(lambda _: {}, code="auth.credentials_missing"),
    "a revoked key of the owner's": InvalidCredential(_revoked_key),
    "a key that never was": InvalidCredential(lambda _: _bearer("prk_" + "0" * 49)),
    "two keys that differ": InvalidCredential(
        lambda world: _bearer(world.owner.key) | {"X-API-Key": "prk_" + "1" * 49},
        code="auth.credentials_disagree",
    ),
    "an expired OAuth token": InvalidCredential(_expired_token),
    "a revoked OAuth token": InvalidCredential(_revoked_token),
    "a session without CSRF": InvalidCredential(
        _session, status=403, code="auth.csrf", can_read=True
    ),
}


@dataclass
class Side:
    """One owner's data, and HTTP clients of this owner and of another owner.

    The tests of the API share one ``Side``, and the tests of the console share another. Each
    ``Side`` has an owner of its own, because the last test that uses a ``Side`` deletes its data.
    """

    world: World
    own_client: httpx2.Client
    other_client: httpx2.Client

    def send(self, client: httpx2.Client, operation: str, as_whom: str, **headers: str) -> Any:
        values = self.world.values | {"as_whom": as_whom}
        return EVERY_CALL[operation].send(client, operation, values, **headers)


@pytest.fixture(scope="module")
def api_side(stack: Stack) -> Iterator[Side]:
    """An owner's data in the API, and the HTTP clients of the owner and of a second owner."""
    world = worlds.build(stack)
    world.values["provider"] = "stockphoto"
    with closing(world.client), stack.client(stack.create_owner().key) as other_client:
        yield Side(world, world.client, other_client)


@pytest.fixture(scope="module")
def console_side(stack: Stack) -> Iterator[Side]:
    """An owner's data in the console, and the browsers of the owner and of a second owner."""
    world = worlds.build(stack)
    own_browser = open_browser(stack, world.owner)
    other_browser = open_browser(stack, stack.create_owner())
    with closing(world.client), own_browser, other_browser:
        yield Side(world, own_browser, other_browser)


@pytest.fixture(scope="module")
def stranger_headers(api_side: Side) -> dict[str, dict[str, str]]:
    """The request headers of each kind of unauthorized caller, such as one with a revoked key."""
    return {
        kind: stranger.headers(api_side.world) for kind, stranger in INVALID_CREDENTIALS.items()
    }


@pytest.fixture(scope="module", autouse=True)
def _pause_maintenance(
    stack: Stack, api_side: Side, console_side: Side, stranger_headers: object
) -> Iterator[None]:
    """Wait until Pressroom has sent all mails, and pause maintenance jobs during the tests."""
    await_jobs(stack)
    with resting_maintenance(stack):
        yield


@pytest.fixture
def side(api_side: Side, console_side: Side, operation: str) -> Side:
    return console_side if operation in PAGES else api_side


def test_isolation_tests_cover_every_operation() -> None:
    assert set(CALLS) == set(operations())


def test_isolation_tests_look_at_rows_of_every_table_of_an_owner(api_side: Side) -> None:
    # If this test fails because of a new table, extend support/security/world.py, so that it
    # inserts a row into the new table.
    rows = digest_owned_rows(api_side.world)
    assert {table for table in rows if rows[table] == (0, None)} <= TABLES_WITHOUT_ROWS


def test_isolation_tests_cover_every_console_page_and_form() -> None:
    app = create_app(Settings.model_construct())
    console_routes = {
        f"{method} {route.path_format}"
        for route in list_api_routes(app)
        for method in route.methods or ()
        if (route.path_format or "").startswith("/console")
    }
    assert set(CONSOLE_CALLS) == console_routes


def test_operations_without_credential_or_scope_are_exactly_the_known_ones() -> None:
    without_credential = {
        name for name in CALLS_FOR_EVERYBODY if operations()[name]["security"] == []
    }
    assert without_credential == CALLS_FOR_STRANGERS
    assert {name for name in CALLS if _insufficient_scopes(name) is None} == CALLS_WITHOUT_SCOPE


@pytest.mark.parametrize("kind", INVALID_CREDENTIALS)
def test_call_with_invalid_credential_reads_and_changes_nothing(
    api_side: Side, stranger: httpx2.Client, stranger_headers: dict[str, dict[str, str]], kind: str
) -> None:
    before = digest_owned_rows(api_side.world)
    for operation in CALLS:
        if operation in CALLS_FOR_STRANGERS or (
            INVALID_CREDENTIALS[kind].can_read and operation.startswith("GET ")
        ):
            continue
        reply = api_side.send(stranger, operation, "nobody", **stranger_headers[kind])
        if not _accepts_strangers(operation, kind):
            assert reply.status_code == INVALID_CREDENTIALS[kind].status, (operation, reply.text)
            assert reply.json()["code"] == INVALID_CREDENTIALS[kind].code, operation
        _require_no_leak(api_side.world, operation, reply)
    assert digest_owned_rows(api_side.world) == before


def _accepts_strangers(operation: str, kind: str) -> bool:
    security = operations()[operation]["security"]
    accepts_trace_id = operation != "POST /auxilia/credits/topup"
    return security == [] or ({} in security and kind == "nobody" and not accepts_trace_id)


def _require_no_leak(world: World, operation: str, reply: httpx2.Response) -> None:
    assert reply.status_code < 500, reply.text
    if operation in CALLS_WITH_PUBLIC_LIST:
        assert "@" not in reply.text
    else:
        assert world.mark not in reply.text
        assert str(world.owner.user_id) not in reply.text


@parametrize_operation(PAGES)
def test_console_redirects_to_login_without_session(
    console_side: Side, stranger: httpx2.Client, operation: str
) -> None:
    before = digest_owned_rows(console_side.world)
    reply = console_side.send(stranger, operation, "nobody")
    assert reply.status_code == 303
    assert "/login?next=%2Fconsole" in reply.headers["location"]
    assert digest_owned_rows(console_side.world) == before


@parametrize_operation(EVERY_CALL)
def test_other_owner_reads_and_changes_nothing(side: Side, operation: str) -> None:
    world = side.world
    call = EVERY_CALL[operation]
    before = digest_owned_rows(side.world)
    reply = side.send(side.other_client, operation, "b")
    assert reply.status_code == call.others, reply.text
    if operation in PAGES:
        # The second owner gets a 404 for each page whose path contains an id of the first owner's
        # data, and for the pages for operators. Each of the other pages shows only data of the
        # owner who opens the page.
        is_hidden = "{" in operation or is_for_operators(operation)
        assert (reply.status_code == 404) == is_hidden
    if operation not in CALLS_FOR_EVERYBODY:
        assert digest_owned_rows(world) == before
    if call.others >= 400 or operation not in CALLS_WITH_PUBLIC_LIST:
        _require_no_leak(world, operation, reply)
    else:
        # The response may contain the public list and the caller's own subscription to the list,
        # but no other member of the list.
        assert f"member0.{world.mark}" not in reply.text
        assert f"first.{world.mark}" not in reply.text


def is_for_operators(operation: str) -> bool:
    """Return whether an operation belongs to the pages for operators, which owners can't open."""
    return "/console/operators" in operation


@parametrize_operation(
    {
        "/jobs": "job_id",
        "/imports": "import_id",
        "/attachments": "hash_id",
        "/lists": "list_id",
        "/fields": "field_id",
        "/webhook-endpoints": "endpoint_id",
        "/senders": "sender_id",
        "/auxilia/credits/orders": "order_id",
        "/grants": "grant_id",
        "/apikeys": "key_id",
    }.items()
)
def test_collections_contain_only_the_callers_own_items(
    api_side: Side, operation: tuple[str, str]
) -> None:
    path, id_name = operation

    def list_ids(client: httpx2.Client) -> set[Any]:
        body = client.get(path).raise_for_status().json()["data"]
        items = body if isinstance(body, list) else body["items"]
        return {item[id_name if id_name in item else "id"] for item in items}

    assert api_side.world.values[id_name] in list_ids(api_side.own_client)
    assert not list_ids(api_side.own_client) & list_ids(api_side.other_client)


def test_combining_own_list_with_ids_of_another_owner_reveals_nothing(
    api_side: Side,
) -> None:
    # Each call contains two ids: the id of the caller's own list, and the id of another owner's
    # member or list.
    world = api_side.world
    caller = api_side.other_client
    list_body = {"title": "Mine", "slug": f"mine-{world.mark}"}
    own_list_id = caller.post("/lists", json=list_body).json()["data"]["id"]
    user_id = world.values["user_id"]
    before = digest_owned_rows(world)
    member_path = f"/subscriptions/{own_list_id}/members/{user_id}"
    record_path = f"/lists/{own_list_id}/members/{user_id}"
    target = {"dst_list_id": str(own_list_id)}
    for reply, status in (
        (caller.get(f"{member_path}/subs"), 404),
        (caller.get(f"{record_path}/history"), 404),
        (caller.get(f"{record_path}/consent"), 404),
        (caller.patch(record_path, json={"name": "x"}), 404),
        (caller.delete(member_path), 404),
        (
            caller.post(
                f"/subscriptions/{world.values['list_id']}/members/{user_id}/transfer",
                params=target,
            ),
            403,
        ),
    ):
        assert reply.status_code == status, reply.text
        assert f"@{world.mark}" not in reply.text
    assert digest_owned_rows(world) == before


def _insufficient_scopes(operation: str) -> list[Scope] | None:
    """Return all scopes that don't permit an operation, or None for an operation without scope."""
    security = [each for each in operations()[operation]["security"] if each]
    if not security:
        return None
    [required] = security[0]["bearer"] or [_find_undocumented_scope(operation)]
    if required is None:
        return None
    sufficient = {required, required.replace(".read", ".full")}
    return sorted(USER_SCOPES - {Scope(each) for each in sufficient if each in set(Scope)})


def _find_undocumented_scope(operation: str) -> str | None:
    """Return the required scope of an operation for which the OpenAPI document names no scope.

    The required scope depends on the kind of the job, file or credential in the path.
    """
    path = operation.split(" ")[1]
    if path.startswith(("/apikeys", "/grants")):
        # Not even a restricted API key with all scopes may call the operations for keys and grants.
        return "nothing that exists"
    if path.startswith(("/jobs/", "/lists/")):
        return Scope.SUBSCRIPTION_READ
    return None


@pytest.fixture(scope="module")
def key_with_scopes(api_side: Side) -> Callable[[tuple[Scope, ...]], str]:
    """A function that returns an API key of the owner with the given scopes.

    The function creates only one API key for each combination of scopes.
    """
    return cache(
        lambda scopes: api_side.world.stack.create_key(api_side.world.owner.user_id, *scopes)
    )


@parametrize_operation(name for name in CALLS if name not in CALLS_WITHOUT_SCOPE)
def test_key_without_the_required_scope_is_rejected(
    api_side: Side,
    stranger: httpx2.Client,
    key_with_scopes: Callable[[tuple[Scope, ...]], str],
    operation: str,
) -> None:
    world = api_side.world
    bearer = _bearer(key_with_scopes(tuple(_insufficient_scopes(operation) or ())))
    before = digest_owned_rows(world)
    reply = api_side.send(stranger, operation, "a", **bearer)
    assert reply.status_code in {403, 404}, reply.text
    assert world.mark not in reply.text
    assert digest_owned_rows(world) == before


def test_oauth_token_without_the_required_scope_is_rejected(
    api_side: Side, stranger: httpx2.Client
) -> None:
    world = api_side.world
    bearer = _bearer(world.values["access_token"])
    assert stranger.get("/auxilia/credits/balance", headers=bearer).status_code == 200
    before = digest_owned_rows(world)
    for operation in CALLS:
        insufficient_scopes = _insufficient_scopes(operation)
        if insufficient_scopes is None or "credit.read" not in insufficient_scopes:
            continue
        reply = api_side.send(stranger, operation, "a", **bearer)
        assert reply.status_code in {403, 404}, (operation, reply.text)
        assert world.mark not in reply.text
    assert digest_owned_rows(world) == before


@parametrize_operation(name for name in PAGES if not name.startswith("GET "))
def test_console_form_with_forged_csrf_token_changes_nothing(
    console_side: Side, operation: str
) -> None:
    before = digest_owned_rows(console_side.world)
    reply = console_side.send(console_side.own_client, operation, "forged", **{CSRF_HEADER: "x"})
    assert reply.status_code == (404 if is_for_operators(operation) else 403), reply.text
    assert digest_owned_rows(console_side.world) == before


@parametrize_operation(EVERY_CALL)
def test_owner_can_call_every_operation(side: Side, operation: str) -> None:
    # Each call must succeed for the owner of the data. If a call failed even for the owner, the
    # tests with unauthorized callers would pass without checking anything.
    reply = side.send(side.own_client, operation, "a")
    assert reply.status_code == EVERY_CALL[operation].own, reply.text
