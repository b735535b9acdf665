"""Owners are apart: every operation with every kind of credential that is not the owner's, and
every page and form of the console in another owner's browser and in none."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx2
import pytest

from api.app import create_app
from api.auth.csrf import CSRF_HEADER
from api.openapi import list_api_routes
from core.scopes import USER_SCOPES, Scope
from core.settings import Settings
from devstack.harness.stack import Owner, Stack
from services.access import sessions
from tests.support.http.openapi import openapi_document
from tests.support.people.oauth import log_in, register
from tests.support.people.visiting import SESSION
from tests.support.security import world as worlds
from tests.support.security.calls import (
    CALLS,
    FOR_EVERYBODY,
    FOR_STRANGERS,
    SHOW_THE_LIST,
    WITHOUT_A_SCOPE,
    Call,
)
from tests.support.security.console_calls import CONSOLE_CALLS
from tests.support.security.world import World, belongings, settled, tokens_of
from tests.support.stack.maintenance import resting_maintenance

# Everybody sees what pages are made of.
PAGES = {name: call for name, call in CONSOLE_CALLS.items() if name != "GET /console/assets/{name}"}
# Tables whose rows belong to no owner, but to the installation, an address or a reader.
OF_NO_OWNER = {
    *("alembic_version", "departures", "feed_offsets", "login_attempts", "mail_counts"),
    *("maintenance", "object_removals", "payment_order_checkpoints", "payment_order_transitions"),
    *("mailed_links", "opt_outs", "consent_entries", "erasures", "former_addresses"),
    "spent_proofs",
}
# Tables in which the owner of ``World`` has no rows. Tests of these tables create other owners.
WITHOUT_ROWS = OF_NO_OWNER | {
    # The API or maintenance writes these rows with a delay.
    *("api_requests", "subscriber_counts", "member_days", "origin_day_deltas"),
    # Maintenance adds these rows to others, and deletes them.
    *("subscriber_deltas", "member_day_deltas"),
    # These rows are about a person, or about a job in progress.
    *("idempotency_records", "named_members", "waiting_chunks", "open_charges"),
    *("passkeys", "recovery_codes", "totp_secrets", "credit_checkpoints", "composer_uses"),
    *("bulk_changes", "import_changes", "consent_claims", "consent_wordings", "deleted_tags"),
    *("denied_entries", "erased_denials", "list_reports"),
}
EVERY_CALL: dict[str, Call] = {**CALLS, **PAGES}


def each(operations: Iterable[object]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("operation", list(operations))


@cache
def operations() -> dict[str, dict[str, Any]]:
    """Return those of the document, and the aliases that it leaves out."""
    found = {
        f"{method.upper()} {path}": operation
        for path, methods in openapi_document()["paths"].items()
        for method, operation in methods.items()
    }
    aliases = {
        name.replace(" ", " /auxilia"): found[name] for name in found if " /composer/" in name
    }
    return found | aliases


@dataclass(frozen=True)
class Stranger:
    """A credential that opens nothing: the headers it makes, and what is answered to them.

    ``writes``: it is a good one for reading.
    """

    headers: Callable[[World], dict[str, str]]
    status: int = 401
    code: str = "auth.invalid_credentials"
    writes: bool = False


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _revoked(world: World) -> dict[str, str]:
    key = world.stack.create_key(world.owner.user_id)
    world.stack.query(
        "UPDATE api_keys SET revoked_at = now() WHERE id = "
        "(SELECT max(id) FROM api_keys WHERE user_id = %s)",
        world.owner.user_id,
    )
    return _bearer(key)


def _expired(world: World) -> dict[str, str]:
    return _ended_token(world, "expires_at = now() - interval '1 second'")


def _revoked_token(world: World) -> dict[str, str]:
    return _ended_token(world, "revoked_at = now()")


def _ended_token(world: World, how: str) -> dict[str, str]:
    given = tokens_of(world, register(world.stack, name=f"{world.mark} ended"))
    world.stack.query(
        f"UPDATE oauth_tokens SET {how} WHERE grant_id = "
        "(SELECT max(id) FROM oauth_grants WHERE user_id = %s)",
        world.owner.user_id,
    )
    return _bearer(given["access_token"])


def _session(world: World) -> dict[str, str]:
    person = log_in(world.stack, world.owner)
    with person.browser:
        return {"Cookie": f"{SESSION}={person.browser.cookies[SESSION]}"}


# A new kind of credential is one line here.
STRANGERS: dict[str, Stranger] = {
    "nobody": Stranger(lambda _: {}, code="auth.credentials_missing"),
    "a revoked key of the owner's": Stranger(_revoked),
    "a key that never was": Stranger(lambda _: _bearer("prk_" + "0" * 49)),
    "two keys that differ": Stranger(
        lambda world: _bearer(world.owner.key) | {"X-API-Key": "prk_" + "1" * 49},
        code="auth.credentials_disagree",
    ),
    "an expired OAuth token": Stranger(_expired),
    "a revoked OAuth token": Stranger(_revoked_token),
    "a session without CSRF": Stranger(_session, status=403, code="auth.csrf", writes=True),
}


@dataclass
class Side:
    """The API or the console: owner A's things, A's client, and owner B's.

    Each side has its own things, since its last test uses them up.
    """

    world: World
    own: httpx2.Client
    rival: httpx2.Client

    def send(self, client: httpx2.Client, operation: str, as_whom: str, **headers: str) -> Any:
        values = self.world.values | {"as_whom": as_whom}
        return EVERY_CALL[operation].send(client, operation, values, **headers)


@pytest.fixture(scope="module")
def api_side(stack: Stack) -> Iterator[Side]:
    """An owner's data in the API, and the HTTP clients of the owner and of a second owner."""
    world = worlds.build(stack)
    world.values["provider"] = "stockphoto"
    with closing(world.client), stack.client(stack.create_owner().key) as rival:
        yield Side(world, world.client, rival)


@pytest.fixture(scope="module")
def console_side(stack: Stack) -> Iterator[Side]:
    """An owner's data in the console, and the browsers of the owner and of a second owner."""
    world = worlds.build(stack)
    own, rival = browser_of(stack, world.owner), browser_of(stack, stack.create_owner())
    with closing(world.client), own, rival:
        yield Side(world, own, rival)


def browser_of(stack: Stack, owner: Owner) -> httpx2.Client:
    """A browser in which the owner is logged in, and whose requests come from pages of ours."""
    browser = log_in(stack, owner).browser
    cookie = browser.cookies[SESSION]
    browser.headers[CSRF_HEADER] = sessions.create_csrf_token(stack.resources.keyring, cookie)
    return browser


@pytest.fixture(scope="module")
def stranger_headers(api_side: Side) -> dict[str, dict[str, str]]:
    """The request headers of each kind of unauthorized caller, such as one with a revoked key."""
    return {kind: stranger.headers(api_side.world) for kind, stranger in STRANGERS.items()}


@pytest.fixture(scope="module", autouse=True)
def _pause_maintenance(
    stack: Stack, api_side: Side, console_side: Side, stranger_headers: object
) -> Iterator[None]:
    """Wait until Pressroom has sent all mails, and pause maintenance jobs during the tests."""
    settled(stack)
    with resting_maintenance(stack):
        yield


@pytest.fixture
def side(api_side: Side, console_side: Side, operation: str) -> Side:
    return console_side if operation in PAGES else api_side


def test_isolation_tests_cover_every_operation() -> None:
    assert set(CALLS) == set(operations())


def test_isolation_tests_look_at_rows_of_every_table_of_an_owner(api_side: Side) -> None:
    # If this test fails for a new table, add a row in tests/support/security/world.py.
    rows = belongings(api_side.world)
    assert {table for table in rows if rows[table] == (0, None)} <= WITHOUT_ROWS


def test_isolation_tests_cover_every_console_page_and_form() -> None:
    app = create_app(Settings.model_construct())
    there = {
        f"{method} {route.path_format}"
        for route in list_api_routes(app)
        for method in route.methods or ()
        if (route.path_format or "").startswith("/console")
    }
    assert set(CONSOLE_CALLS) == there


def test_operations_without_credential_or_scope_are_exactly_the_known_ones() -> None:
    free = {name for name in FOR_EVERYBODY if operations()[name]["security"] == []}
    assert free == FOR_STRANGERS
    assert {name for name in CALLS if _all_but_what_is_needed(name) is None} == WITHOUT_A_SCOPE


@pytest.mark.parametrize("kind", STRANGERS)
def test_call_with_invalid_credential_reads_and_changes_nothing(
    api_side: Side, stranger: httpx2.Client, stranger_headers: dict[str, dict[str, str]], kind: str
) -> None:
    before = belongings(api_side.world)
    for operation in CALLS:
        if operation in FOR_STRANGERS or (STRANGERS[kind].writes and operation.startswith("GET ")):
            continue
        reply = api_side.send(stranger, operation, "nobody", **stranger_headers[kind])
        if not _takes_strangers(operation, kind):
            assert reply.status_code == STRANGERS[kind].status, (operation, reply.text)
            assert reply.json()["code"] == STRANGERS[kind].code, operation
        _tells_nothing(api_side.world, operation, reply)
    assert belongings(api_side.world) == before


def _takes_strangers(operation: str, kind: str) -> bool:
    security = operations()[operation]["security"]
    traced = operation != "POST /auxilia/credits/topup"
    return security == [] or ({} in security and kind == "nobody" and not traced)


def _tells_nothing(world: World, operation: str, reply: httpx2.Response) -> None:
    assert reply.status_code < 500, reply.text
    if operation in SHOW_THE_LIST:
        assert "@" not in reply.text
    else:
        assert world.mark not in reply.text
        assert str(world.owner.user_id) not in reply.text


@each(PAGES)
def test_console_redirects_to_login_without_session(
    console_side: Side, stranger: httpx2.Client, operation: str
) -> None:
    before = belongings(console_side.world)
    reply = console_side.send(stranger, operation, "nobody")
    assert reply.status_code == 303
    assert "/login?next=%2Fconsole" in reply.headers["location"]
    assert belongings(console_side.world) == before


@each(EVERY_CALL)
def test_other_owner_reads_and_changes_nothing(side: Side, operation: str) -> None:
    world, call, before = side.world, EVERY_CALL[operation], belongings(side.world)
    reply = side.send(side.rival, operation, "b")
    assert reply.status_code == call.others, reply.text
    if operation in PAGES:
        # What a page shows is the rival's own, unless its address names something.
        is_hidden = "{" in operation or is_of_operators(operation)
        assert (reply.status_code == 404) == is_hidden
    if operation not in FOR_EVERYBODY:
        assert belongings(world) == before
    if call.others >= 400 or operation not in SHOW_THE_LIST:
        _tells_nothing(world, operation, reply)
    else:
        # The list, and the rival's own subscription to it.
        assert f"member0.{world.mark}" not in reply.text
        assert f"first.{world.mark}" not in reply.text


def is_of_operators(operation: str) -> bool:
    """Whether it is a page that is none to an owner."""
    return "/console/operators" in operation


@each(
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
    path, named = operation

    def shown(client: httpx2.Client) -> set[Any]:
        found = client.get(path).raise_for_status().json()["data"]
        items = found if isinstance(found, list) else found["items"]
        return {item[named if named in item else "id"] for item in items}

    assert api_side.world.values[named] in shown(api_side.own)
    assert not shown(api_side.own) & shown(api_side.rival)


def test_combining_own_list_with_ids_of_another_owner_reveals_nothing(
    api_side: Side,
) -> None:
    # A list of one's own opens no member, member record or target that is another's.
    world, rival = api_side.world, api_side.rival
    made = rival.post("/lists", json={"title": "Mine", "slug": f"mine-{world.mark}"}).json()
    mine, user_id = made["data"]["id"], world.values["user_id"]
    before = belongings(world)
    member = f"/subscriptions/{mine}/members/{user_id}"
    target = {"dst_list_id": str(mine)}
    for reply, status in (
        (rival.get(f"{member}/subs"), 404),
        (rival.get(f"/lists/{mine}/members/{user_id}/history"), 404),
        (rival.get(f"/lists/{mine}/members/{user_id}/consent"), 404),
        (rival.patch(f"/lists/{mine}/members/{user_id}", json={"name": "x"}), 404),
        (rival.delete(member), 404),
        (
            rival.post(
                f"/subscriptions/{world.values['list_id']}/members/{user_id}/transfer",
                params=target,
            ),
            403,
        ),
    ):
        assert reply.status_code == status, reply.text
        assert f"@{world.mark}" not in reply.text
    assert belongings(world) == before


def _all_but_what_is_needed(operation: str) -> list[Scope] | None:
    security = [each for each in operations()[operation]["security"] if each]
    if not security:
        return None
    [needed] = security[0]["bearer"] or [_needed_by_what_is_named(operation)]
    if needed is None:
        return None
    fulls = {needed, needed.replace(".read", ".full")}
    return sorted(USER_SCOPES - {Scope(each) for each in fulls if each in set(Scope)})


def _needed_by_what_is_named(operation: str) -> str | None:
    """The scope of a job, a file or another credential, which the document can only describe."""
    path = operation.split(" ")[1]
    if path.startswith(("/apikeys", "/grants")):
        # All of them, and still a restricted key.
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


@each(name for name in CALLS if name not in WITHOUT_A_SCOPE)
def test_key_without_the_required_scope_is_rejected(
    api_side: Side,
    stranger: httpx2.Client,
    key_with_scopes: Callable[[tuple[Scope, ...]], str],
    operation: str,
) -> None:
    world = api_side.world
    bearer = _bearer(key_with_scopes(tuple(_all_but_what_is_needed(operation) or ())))
    before = belongings(world)
    reply = api_side.send(stranger, operation, "a", **bearer)
    assert reply.status_code in {403, 404}, reply.text
    assert world.mark not in reply.text
    assert belongings(world) == before


def test_oauth_token_without_the_required_scope_is_rejected(
    api_side: Side, stranger: httpx2.Client
) -> None:
    world = api_side.world
    bearer = _bearer(world.values["access_token"])
    assert stranger.get("/auxilia/credits/balance", headers=bearer).status_code == 200
    before = belongings(world)
    for operation in CALLS:
        others = _all_but_what_is_needed(operation)
        if others is None or "credit.read" not in others:
            continue
        reply = api_side.send(stranger, operation, "a", **bearer)
        assert reply.status_code in {403, 404}, (operation, reply.text)
        assert world.mark not in reply.text
    assert belongings(world) == before


@each(name for name in PAGES if not name.startswith("GET "))
def test_console_form_with_forged_csrf_token_changes_nothing(
    console_side: Side, operation: str
) -> None:
    before = belongings(console_side.world)
    reply = console_side.send(console_side.own, operation, "forged", **{CSRF_HEADER: "x"})
    assert reply.status_code == (404 if is_of_operators(operation) else 403), reply.text
    assert belongings(console_side.world) == before


@each(EVERY_CALL)
def test_owner_can_call_every_operation(side: Side, operation: str) -> None:
    # The errors above are then of the person, and not of a call that fails for anybody.
    reply = side.send(side.own, operation, "a")
    assert reply.status_code == EVERY_CALL[operation].own, reply.text
