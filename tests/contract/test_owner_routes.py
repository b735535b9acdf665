"""Tests how the routes for list owners accept the ids of lists and members.

tests/security/test_isolation.py calls the same routes as people who don't own the list.
"""

import re
from typing import Any

import httpx2
import pytest

from tests.support.http.replies import data, problem
from tests.support.lists.subscribers import Reader, new_list
from tests.support.security.calls import CALLS

UINT64_MAX = 2**64 - 1
# The tests of segments, tags and mailings are in test_segments.py and test_mailings.py.
OF_LISTS = [
    route
    for route, called in CALLS.items()
    if called.others == 403
    and "{list_id}" in route
    and not re.search("(segment|tag|mailing)_id", route)
]
OF_MEMBERS = [route for route in OF_LISTS if "{user_id}" in route]
OF_EVERYBODY = ["POST /subscriptions/{list_id}", "POST /subscriptions/{list_id}/no-challenge"]

PathValues = dict[str, Any]


@pytest.fixture
def path_values(client: httpx2.Client, reader: Reader) -> PathValues:
    """Values for the path parameters of owner routes: a list, a member and a second list."""
    list_id = new_list(client)["id"]
    other = new_list(client)["id"]
    reader.joins(list_id)
    others = {"dst_list_id": other, "part": "thanks", "as_whom": "reader"}
    return others | named("list_id", list_id) | named("user_id", reader.user_id)


def named(name: str, value: object) -> PathValues:
    """Return a value under each variant of a name, for example under ``closing_list_id``."""
    return {f"{purpose}{name}": value for purpose in ("", "closing_", "leaving_", "moving_")}


def call(
    caller: httpx2.Client, route: str, path_values: PathValues, **instead: object
) -> httpx2.Response:
    for name, value in instead.items():
        path_values = path_values | named(name, value)
    return CALLS[route].send(caller, route, path_values)


def test_list_routes_accept_64_bit_list_ids_and_slugs(
    client: httpx2.Client, path_values: PathValues
) -> None:
    slug = data(client.get(f"/lists/{path_values['list_id']}"))["slug"]
    for route in (*OF_EVERYBODY, *OF_LISTS):
        # The last one could be a slug, and names no list.
        for unknown in (0, 1, 2**53, UINT64_MAX, "no-such-list"):
            problem(call(client, route, path_values, list_id=unknown), 404, "list.not_found")
        for bad in (UINT64_MAX + 1, "-1", "1.0", "No_Slug"):
            body = problem(call(client, route, path_values, list_id=bad), 400, "request.invalid")
            assert [each["field"] for each in body["errors"]] == ["path.list_id"]
        data(call(client, route, path_values, list_id=slug), 200, 202)


def test_member_routes_accept_64_bit_ids_and_member_record_routes_also_addresses(
    client: httpx2.Client, reader: Reader, path_values: PathValues
) -> None:
    for route in OF_MEMBERS:
        for unknown in (0, 1, 2**53, UINT64_MAX):
            problem(call(client, route, path_values, user_id=unknown), 404, "member.not_found")
        takes_address = route.endswith(" /lists/{list_id}/members/{user_id}")
        others = (
            ("1.5", "@", "a@b@c", "a b@example.com", "%20") if takes_address else (reader.email,)
        )
        for bad in (UINT64_MAX + 1, "-1", "me", *others):
            body = problem(call(client, route, path_values, user_id=bad), 400, "request.invalid")
            assert [each["field"] for each in body["errors"]] == ["path.user_id"]
        if takes_address:
            data(call(client, route, path_values, user_id=reader.email))
            data(call(client, route, path_values, user_id=path_values["user_id"]))


def test_member_routes_return_404_for_a_user_who_is_not_a_member(
    client: httpx2.Client, other_owner: httpx2.Client, path_values: PathValues
) -> None:
    user_id = data(other_owner.get("/users/me"))["id"]
    assert data(other_owner.post(f"/subscriptions/{path_values['dst_list_id']}/no-challenge")) == 1
    for route in OF_MEMBERS:
        problem(call(client, route, path_values, user_id=user_id), 404, "member.not_found")


def test_member_of_a_list_cannot_use_routes_of_its_owner(
    reader: Reader, path_values: PathValues
) -> None:
    for route in OF_LISTS:
        problem(call(reader.client, route, path_values), 403, "list.not_owner")
