"""What every route of a list's owner refuses, and that a refusal changes nothing."""

from typing import Any, NamedTuple

import httpx
import pytest

from core.scopes import Scope
from tests.contract.replies import data, problem
from tests.contract.subscribers import Reader, new_list
from tests.stack import Stack

UINT64_MAX = 2**64 - 1


class Route(NamedTuple):
    method: str
    path: str
    sent: dict[str, Any]
    writes: bool


# {other} is a second list of the same owner.
ROUTES = [
    Route("GET", "/lists/{list_id}/stats", {}, writes=False),
    Route("GET", "/lists/{list_id}/embed", {}, writes=False),
    Route("GET", "/lists/{list_id}/previews/thanks", {}, writes=False),
    Route("GET", "/lists/{list_id}/subscriptions", {}, writes=False),
    Route("GET", "/lists/{list_id}/members/{user_id}", {}, writes=False),
    Route("GET", "/lists/{list_id}/members/{user_id}/history", {}, writes=False),
    Route("GET", "/lists/{list_id}/members/{user_id}/consent", {}, writes=False),
    Route("GET", "/subscriptions/{list_id}/members/{user_id}/subs", {}, writes=False),
    Route("PATCH", "/lists/{list_id}", {"json": {"title": "Changed"}}, writes=True),
    Route("PATCH", "/lists/{list_id}/members/{user_id}", {"json": {"name": "B"}}, writes=True),
    Route(
        "PUT",
        "/subscriptions/{list_id}/members/{user_id}/email",
        {"json": {"enabled": False}},
        writes=True,
    ),
    Route(
        "POST",
        "/subscriptions/{list_id}/members/{user_id}/transfer?dst_list_id={other}",
        {},
        writes=True,
    ),
    Route("DELETE", "/subscriptions/{list_id}/members/{user_id}", {}, writes=True),
    Route("DELETE", "/lists/{list_id}", {}, writes=True),
]
OF_MEMBERS = [route for route in ROUTES if "{user_id}" in route.path]


def names(routes: list[Route]) -> list[str]:
    return [f"{route.method} {route.path.partition('?')[0]}" for route in routes]


every_route = pytest.mark.parametrize("route", ROUTES, ids=names(ROUTES))
every_member_route = pytest.mark.parametrize("route", OF_MEMBERS, ids=names(OF_MEMBERS))


class Place(NamedTuple):
    list_id: int
    other: int
    user_id: int


@pytest.fixture
def place(client: httpx.Client, reader: Reader) -> Place:
    list_id, other = new_list(client)["id"], new_list(client)["id"]
    reader.joins(list_id)
    return Place(list_id, other, reader.user_id)


def call(caller: httpx.Client, route: Route, place: Place, **instead: object) -> httpx.Response:
    path = route.path.format(**{**place._asdict(), **instead})
    return caller.request(route.method, path, **route.sent)


def everything(client: httpx.Client, reader: Reader, place: Place) -> list[object]:
    shown = [data(client.get(f"/lists/{each}")) for each in (place.list_id, place.other)]
    history = f"/lists/{place.list_id}/members/{place.user_id}/history"
    return [*shown, reader.standing(place.list_id), data(client.get(history))]


@every_route
def test_owners_own_route_works(client: httpx.Client, place: Place, route: Route) -> None:
    found = data(call(client, route, place))
    if route.writes and route.method != "PATCH":
        assert found == 1


@every_route
def test_others_are_refused_and_change_nothing(
    stack: Stack, client: httpx.Client, reader: Reader, place: Place, route: Route
) -> None:
    before = everything(client, reader, place)
    with stack.client() as stranger:
        problem(call(stranger, route, place), 401, "auth.credentials_missing")
    with stack.client("prk_nonsense") as mistaken:
        problem(call(mistaken, route, place), 401, "auth.invalid_credentials")
    with stack.client(stack.new_owner().key) as neighbour:
        problem(call(neighbour, route, place), 403, "list.not_owner")
    # The member is no more of an owner than anybody else.
    problem(call(reader.client, route, place), 403, "list.not_owner")
    assert everything(client, reader, place) == before


@every_route
def test_a_key_needs_the_scope(
    stack: Stack, client: httpx.Client, reader: Reader, place: Place, route: Route
) -> None:
    user_id = data(client.get("/users/me"))["id"]
    before = everything(client, reader, place)
    with stack.client(stack.new_key(user_id, Scope.CREDIT_FULL, Scope.COMPOSER)) as unrelated:
        problem(call(unrelated, route, place), 403, "auth.insufficient_scope")
    with stack.client(stack.new_key(user_id, Scope.SUBSCRIPTION_READ)) as reading:
        reply = call(reading, route, place)
        if route.writes:
            problem(reply, 403, "auth.insufficient_scope")
        else:
            data(reply)
    assert everything(client, reader, place) == before
    with stack.client(stack.new_key(user_id, Scope.SUBSCRIPTION_FULL)) as full:
        data(call(full, route, place))


@every_route
def test_a_number_of_64_bits_names_a_list_and_below_lists_its_slug_does(
    client: httpx.Client, place: Place, route: Route
) -> None:
    slug = data(client.get(f"/lists/{place.list_id}"))["slug"]
    takes_slug = route.path.startswith("/lists/")
    for unknown in (0, 1, 2**53, UINT64_MAX):
        problem(call(client, route, place, list_id=unknown), 404, "list.not_found")
    for bad in (UINT64_MAX + 1, "-1", "1.0", "No_Slug", *(() if takes_slug else (slug, "0x1"))):
        body = problem(call(client, route, place, list_id=bad), 400, "request.invalid")
        assert [each["field"] for each in body["errors"]] == ["path.list_id"]
    if takes_slug:
        # What could be a slug and names no list.
        refused = call(client, route, place, list_id="no-such-list")
        assert refused.status_code == (400 if route.path.endswith("/subscriptions") else 404)
        data(call(client, route, place, list_id=slug))


@every_member_route
def test_a_number_of_64_bits_names_a_member_and_below_lists_their_address_does(
    client: httpx.Client, reader: Reader, place: Place, route: Route
) -> None:
    for unknown in (0, 1, 2**53, UINT64_MAX):
        problem(call(client, route, place, user_id=unknown), 404, "member.not_found")
    takes_address = route.path == "/lists/{list_id}/members/{user_id}"
    for bad in (UINT64_MAX + 1, "-1", "me", *(() if takes_address else (reader.email,))):
        body = problem(call(client, route, place, user_id=bad), 400, "request.invalid")
        assert [each["field"] for each in body["errors"]] == ["path.user_id"]
    if takes_address:
        data(call(client, route, place, user_id=reader.email))
        data(call(client, route, place, user_id=place.user_id))


@every_member_route
def test_who_is_a_user_but_no_member_is_404(
    stack: Stack, client: httpx.Client, neighbour: httpx.Client, place: Place, route: Route
) -> None:
    user_id = data(neighbour.get("/users/me"))["id"]
    assert data(neighbour.post(f"/subscriptions/{place.other}/no-challenge")) == 1
    problem(call(client, route, place, user_id=user_id), 404, "member.not_found")


@every_member_route
def test_a_refusal_does_not_tell_who_is_a_member(
    neighbour: httpx.Client, place: Place, route: Route
) -> None:
    known, unknown = call(neighbour, route, place), call(neighbour, route, place, user_id=1)
    problem(known, 403, "list.not_owner")
    problem(unknown, 403, "list.not_owner")
