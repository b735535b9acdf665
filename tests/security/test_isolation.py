"""Owners are apart: every operation, with every kind of credential that is not the owner's."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx
import pytest

from core.scopes import EVERYTHING_OF_A_USER, Scope
from tests.oauth import log_in, register
from tests.openapi import openapi_document
from tests.security import world as worlds
from tests.security.calls import CALLS, FOR_EVERYBODY, SHOW_THE_LIST
from tests.security.world import World, belongings, settled, tokens_of
from tests.stack import Stack
from tests.upkeep import resting_upkeep
from tests.visiting import SESSION

each_operation = pytest.mark.parametrize("operation", CALLS)


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
    key = world.stack.new_key(world.owner.user_id)
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


@pytest.fixture(scope="module")
def world(stack: Stack) -> Iterator[World]:
    """Owner A."""
    made = worlds.build(stack)
    made.values |= {"provider": "stockphoto", "as_whom": "a"}
    settled(stack)
    with resting_upkeep(stack):
        yield made
    made.client.close()


@pytest.fixture(scope="module")
def rival(stack: Stack) -> Iterator[httpx.Client]:
    """Owner B."""
    with stack.client(stack.new_owner().key) as client:
        yield client


@pytest.fixture(scope="module")
def headers(world: World) -> dict[str, dict[str, str]]:
    made = {kind: stranger.headers(world) for kind, stranger in STRANGERS.items()}
    # They are mailed of what was made in their name.
    settled(world.stack)
    return made


def test_every_operation_of_the_document_is_called_here() -> None:
    assert set(CALLS) == set(operations())


@each_operation
def test_who_has_no_good_credential_gets_and_changes_nothing(
    world: World, stranger: httpx.Client, headers: dict[str, dict[str, str]], operation: str
) -> None:
    if operation in FOR_EVERYBODY and operations()[operation]["security"] == []:
        pytest.skip("this operation is for callers without a credential too")
    before = belongings(world)
    for kind, sent in headers.items():
        if STRANGERS[kind].writes and operation.startswith("GET "):
            continue
        reply = CALLS[operation].send(
            stranger, operation, world.values | {"as_whom": "nobody"}, **sent
        )
        if not _takes_strangers(operation, kind):
            assert reply.status_code == STRANGERS[kind].status, (kind, reply.text)
            assert reply.json()["code"] == STRANGERS[kind].code, kind
        _tells_nothing(world, operation, reply)
    assert belongings(world) == before


def _takes_strangers(operation: str, kind: str) -> bool:
    security = operations()[operation]["security"]
    traced = operation != "POST /auxilia/credits/topup"
    return security == [] or ({} in security and kind == "nobody" and not traced)


def _tells_nothing(world: World, operation: str, reply: httpx.Response) -> None:
    assert reply.status_code < 500, reply.text
    if operation in SHOW_THE_LIST:
        assert "@" not in reply.text
    else:
        assert world.mark not in reply.text
        assert str(world.owner.user_id) not in reply.text


@each_operation
def test_another_owner_gets_and_changes_nothing(
    world: World, rival: httpx.Client, operation: str
) -> None:
    call, before = CALLS[operation], belongings(world)
    reply = call.send(rival, operation, world.values | {"as_whom": "b"})
    assert reply.status_code == call.others, reply.text
    if operation not in FOR_EVERYBODY:
        assert belongings(world) == before
    if call.others >= 400 or operation not in SHOW_THE_LIST:
        _tells_nothing(world, operation, reply)
    else:
        # The list, and the rival's own subscription to it.
        assert f"member0.{world.mark}" not in reply.text
        assert f"first.{world.mark}" not in reply.text


def test_somebody_who_guesses_things_they_do_not_own_learns_nothing_by_mixing_them(
    world: World, rival: httpx.Client
) -> None:
    # A list of one's own opens no member, member record or target that is another's.
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


@each_operation
def test_the_owners_own_key_with_another_scope_is_refused(world: World, operation: str) -> None:
    scopes = _all_but_what_is_needed(operation)
    if scopes is None:
        pytest.skip("this operation asks for no scope")
    key = world.stack.new_key(world.owner.user_id, *scopes)
    before = belongings(world)
    with world.stack.client(key) as client:
        reply = CALLS[operation].send(client, operation, world.values)
    assert reply.status_code in {403, 404}, reply.text
    assert world.mark not in reply.text
    assert belongings(world) == before


def _all_but_what_is_needed(operation: str) -> list[Scope] | None:
    security = [each for each in operations()[operation]["security"] if each]
    if not security:
        return None
    [needed] = security[0]["bearer"] or [_needed_by_what_is_named(operation)]
    if needed is None:
        return None
    fulls = {needed, needed.replace(".read", ".full")}
    return sorted(EVERYTHING_OF_A_USER - {Scope(each) for each in fulls if each in set(Scope)})


def _needed_by_what_is_named(operation: str) -> str | None:
    """The scope of a job, a file or another credential, which the document can only describe."""
    path = operation.split(" ")[1]
    if path.startswith(("/apikeys", "/grants")):
        # All of them, and still a restricted key.
        return "nothing that exists"
    if path.startswith(("/jobs/", "/lists/")):
        return Scope.SUBSCRIPTION_READ
    return None


@each_operation
def test_the_owner_can_do_all_of_it(world: World, operation: str) -> None:
    # So that the refusals above are of the credential, and not of a call that fails for anybody.
    call = CALLS[operation]
    reply = call.send(world.client, operation, world.values)
    assert reply.status_code == call.own, reply.text
