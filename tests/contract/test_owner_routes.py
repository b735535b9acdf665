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
LIST_ROUTES = [
    route
    for route, called in CALLS.items()
    if called.others == 403
    and called.own != 403
    and "{list_id}" in route
    and not re.search("(segment|tag|mailing)_id", route)
]
MEMBER_ROUTES = [route for route in LIST_ROUTES if "{user_id}" in route]
PUBLIC_ROUTES = ["POST /subscriptions/{list_id}", "POST /subscriptions/{list_id}/no-challenge"]

PathValues = dict[str, Any]


@pytest.fixture
def path_values(client: httpx2.Client, reader: Reader) -> PathValues:
    """Values for the path parameters of owner routes: a list, a member and a second list."""
    list_id = new_list(client)["id"]
    other_list_id = new_list(client)["id"]
    reader.joins(list_id)
    other_values = {"dst_list_id": other_list_id, "part": "thanks", "as_whom": "reader"}
    return (
        other_values | name_variants("list_id", list_id) | name_variants("user_id", reader.user_id)
    )


def name_variants(name: str, value: object) -> PathValues:
    """Map a path parameter and its variants, such as ``closing_list_id``, to the same value."""
    return {f"{purpose}{name}": value for purpose in ("", "closing_", "leaving_", "moving_")}


def call(
    caller: httpx2.Client, route: str, path_values: PathValues, **replaced_values: object
) -> httpx2.Response:
    for name, value in replaced_values.items():
        path_values = path_values | name_variants(name, value)
    return CALLS[route].send(caller, route, path_values)


def test_list_routes_accept_64_bit_list_ids_and_slugs(
    client: httpx2.Client, path_values: PathValues
) -> None:
    slug = data(client.get(f"/lists/{path_values['list_id']}"))["slug"]
    for route in (*PUBLIC_ROUTES, *LIST_ROUTES):
        # ``no-such-list`` is a valid slug, but no list has this slug.
        for unknown_id in (0, 1, 2**53, UINT64_MAX, "no-such-list"):
            problem(call(client, route, path_values, list_id=unknown_id), 404, "list.not_found")
        for malformed_id in (UINT64_MAX + 1, "-1", "1.0", "No_Slug"):
            body = problem(
                call(client, route, path_values, list_id=malformed_id), 400, "request.invalid"
            )
            assert [each["field"] for each in body["errors"]] == ["path.list_id"]
        data(call(client, route, path_values, list_id=slug), 200, 202)


def test_member_routes_accept_64_bit_ids_and_member_record_routes_also_addresses(
    client: httpx2.Client, reader: Reader, path_values: PathValues
) -> None:
    for route in MEMBER_ROUTES:
        for unknown_id in (0, 1, 2**53, UINT64_MAX):
            problem(call(client, route, path_values, user_id=unknown_id), 404, "member.not_found")
        takes_address = route.endswith(" /lists/{list_id}/members/{user_id}")
        more_malformed_ids = (
            ("1.5", "@", "a@b@c", "a b@example.com", "%20") if takes_address else (reader.email,)
        )
        for malformed_id in (UINT64_MAX + 1, "-1", "me", *more_malformed_ids):
            body = problem(
                call(client, route, path_values, user_id=malformed_id), 400, "request.invalid"
            )
            assert [each["field"] for each in body["errors"]] == ["path.user_id"]
        if takes_address:
            data(call(client, route, path_values, user_id=reader.email))
            data(call(client, route, path_values, user_id=path_values["user_id"]))


def test_member_routes_return_404_for_a_user_who_is_not_a_member(
    client: httpx2.Client, other_owner: httpx2.Client, path_values: PathValues
) -> None:
    user_id = data(other_owner.get("/users/me"))["id"]
    assert data(other_owner.post(f"/subscriptions/{path_values['dst_list_id']}/no-challenge")) == 1
    for route in MEMBER_ROUTES:
        problem(call(client, route, path_values, user_id=user_id), 404, "member.not_found")


def test_member_of_a_list_cannot_use_routes_of_its_owner(
    reader: Reader, path_values: PathValues
) -> None:
    for route in LIST_ROUTES:
        problem(call(reader.client, route, path_values), 403, "list.not_owner")
