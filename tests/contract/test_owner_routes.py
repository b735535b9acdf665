"""How the routes of a list's owner take the names of lists and members.

tests/security/test_isolation.py calls each of them as everybody else.
"""

from typing import Any, NamedTuple

import httpx2
import pytest

from tests.contract.replies import data, problem
from tests.contract.subscribers import Reader, new_list

UINT64_MAX = 2**64 - 1
_MEMBER = "/subscriptions/{list_id}/members/{user_id}"
# With what is sent; {other} is a second list of the same owner. What ends things comes last.
ROUTES: dict[str, Any] = {
    "GET /lists/{list_id}/stats": None,
    "GET /lists/{list_id}/embed": None,
    "GET /lists/{list_id}/previews/thanks": None,
    "GET /lists/{list_id}/subscriptions": None,
    "GET /lists/{list_id}/members/{user_id}": None,
    "GET /lists/{list_id}/members/{user_id}/history": None,
    "GET /lists/{list_id}/members/{user_id}/consent": None,
    f"GET {_MEMBER}/subs": None,
    "POST /subscriptions/{list_id}": {"email": "reader@example.com"},
    "POST /subscriptions/{list_id}/no-challenge": None,
    "POST /lists/{list_id}/imports?dry_run=1": {"email": "reader@example.com"},
    "POST /lists/{list_id}/exports": {"kind": "members"},
    "PATCH /lists/{list_id}": {"title": "Changed"},
    "PATCH /lists/{list_id}/members/{user_id}": {"name": "B"},
    "PUT /lists/{list_id}/members/{user_id}": {"name": "C"},
    f"PUT {_MEMBER}/email": {"enabled": False},
    f"POST {_MEMBER}/transfer?dst_list_id={{other}}": None,
    f"DELETE {_MEMBER}": None,
    "DELETE /lists/{list_id}/traces": None,
    "DELETE /lists/{list_id}": None,
}
OF_MEMBERS = [route for route in ROUTES if "{user_id}" in route]


class Place(NamedTuple):
    list_id: int
    other: int
    user_id: int


@pytest.fixture
def place(client: httpx2.Client, reader: Reader) -> Place:
    list_id, other = new_list(client)["id"], new_list(client)["id"]
    reader.joins(list_id)
    return Place(list_id, other, reader.user_id)


def call(caller: httpx2.Client, route: str, place: Place, **instead: object) -> httpx2.Response:
    method, path = route.format(**{**place._asdict(), **instead}).split(" ", 1)
    return caller.request(method, path, json=ROUTES[route])


def test_a_number_of_64_bits_names_a_list_and_so_does_its_slug(
    client: httpx2.Client, place: Place
) -> None:
    slug = data(client.get(f"/lists/{place.list_id}"))["slug"]
    for route in ROUTES:
        # The last one could be a slug, and names no list.
        for unknown in (0, 1, 2**53, UINT64_MAX, "no-such-list"):
            problem(call(client, route, place, list_id=unknown), 404, "list.not_found")
        for bad in (UINT64_MAX + 1, "-1", "1.0", "No_Slug"):
            body = problem(call(client, route, place, list_id=bad), 400, "request.invalid")
            assert [each["field"] for each in body["errors"]] == ["path.list_id"]
        data(call(client, route, place, list_id=slug), 200, 202)


def test_a_number_of_64_bits_names_a_member_and_below_lists_their_address_does(
    client: httpx2.Client, reader: Reader, place: Place
) -> None:
    for route in OF_MEMBERS:
        for unknown in (0, 1, 2**53, UINT64_MAX):
            problem(call(client, route, place, user_id=unknown), 404, "member.not_found")
        takes_address = route.endswith(" /lists/{list_id}/members/{user_id}")
        others = (
            ("1.5", "@", "a@b@c", "a b@example.com", "%20") if takes_address else (reader.email,)
        )
        for bad in (UINT64_MAX + 1, "-1", "me", *others):
            body = problem(call(client, route, place, user_id=bad), 400, "request.invalid")
            assert [each["field"] for each in body["errors"]] == ["path.user_id"]
        if takes_address:
            data(call(client, route, place, user_id=reader.email))
            data(call(client, route, place, user_id=place.user_id))


def test_who_is_a_user_but_no_member_is_404(
    client: httpx2.Client, neighbour: httpx2.Client, place: Place
) -> None:
    user_id = data(neighbour.get("/users/me"))["id"]
    assert data(neighbour.post(f"/subscriptions/{place.other}/no-challenge")) == 1
    for route in OF_MEMBERS:
        problem(call(client, route, place, user_id=user_id), 404, "member.not_found")


def test_a_member_is_no_more_of_an_owner_than_anybody_else(reader: Reader, place: Place) -> None:
    for route in ROUTES:
        if not route.startswith("POST /subscriptions/{list_id}") or "transfer" in route:
            problem(call(reader.client, route, place), 403, "list.not_owner")
