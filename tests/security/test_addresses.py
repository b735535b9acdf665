"""Tests that only the list's owner and the member see a member's address."""

import json
import re
import secrets
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from typing import Any

import httpx2
import pytest

from core.scopes import Scope
from devstack.harness.stack import Owner, Stack
from models import Plan
from tests.support.http.openapi import openapi_document


@dataclass
class ListWithOnlookers:
    """A list with a member, and API callers who must not see the member's address and name."""

    list_id: int
    slug: str
    owner: Owner
    member: Owner
    # The member's address, and a name that only this member has.
    secrets: tuple[str, ...]
    # Maps each kind of caller to its API key, or to None for a stranger.
    onlookers: dict[str, str | None]
    other_list_id: int


@pytest.fixture(scope="module")
def list_with_onlookers(stack: Stack) -> ListWithOnlookers:
    """A mailing list with a member, and API callers who must not see the member's address."""
    owner = stack.create_owner()
    other_owner = stack.create_owner()
    member = stack.create_owner(plan=Plan.FREE)
    other_member = stack.create_owner(plan=Plan.FREE)
    list_id, slug = _new_list(stack, owner)
    other_list_id, _ = _new_list(stack, other_owner)
    name = f"Name {secrets.token_hex(8)}"
    stack.query("UPDATE users SET name = %s WHERE id = %s", name, member.user_id)
    subscriptions = (
        (member, list_id),
        (other_member, list_id),
        (other_member, other_list_id),
    )
    for person, subscribed_list_id in subscriptions:
        with stack.client(person.key) as client:
            path = f"/subscriptions/{subscribed_list_id}/no-challenge"
            client.post(path).raise_for_status()
    restricted = stack.create_key(owner.user_id, Scope.ATTACHMENT)
    onlookers = {
        "a stranger": None,
        "another owner": other_owner.key,
        "another member": other_member.key,
        "a key without the scope": restricted,
    }
    return ListWithOnlookers(
        list_id, slug, owner, member, (member.email, name), onlookers, other_list_id
    )


def _new_list(stack: Stack, owner: Owner) -> tuple[int, str]:
    slug = f"list-{secrets.token_hex(6)}"
    with stack.client(owner.key) as client:
        reply = client.post("/lists", json={"title": "List", "slug": slug}).raise_for_status()
    return reply.json()["data"]["id"], slug


def operations() -> list[tuple[str, str]]:
    """Return the method and path of each documented operation, with all DELETE operations last."""
    methods_and_paths = [
        (method.upper(), path)
        for path, methods in openapi_document()["paths"].items()
        for method in methods
    ]
    return sorted(methods_and_paths, key=lambda each: _ORDER.index(each[0]))


_ORDER = ("GET", "POST", "PUT", "PATCH", "DELETE")


def paths(list_with_onlookers: ListWithOnlookers, template: str) -> set[str]:
    """Insert each list's id or slug into a path template, and return the paths.

    Path parameters other than the list's id or slug are replaced by the member's id.
    """
    names = re.findall(r"{(\w+)}", template)
    values = dict.fromkeys(names, str(list_with_onlookers.member.user_id))
    return {
        template.format(**(values | {"list_id": list_id}))
        for list_id in (
            str(list_with_onlookers.list_id),
            list_with_onlookers.slug,
            str(list_with_onlookers.other_list_id),
        )
    }


def queries(list_with_onlookers: ListWithOnlookers) -> list[dict[str, str]]:
    """Return sets of query parameters that refer to the lists or to the member."""
    email = list_with_onlookers.member.email
    list_id = str(list_with_onlookers.list_id)
    return [
        {
            "list_id": list_id,
            "dst_list_id": str(list_with_onlookers.other_list_id),
            "user_id": str(list_with_onlookers.member.user_id),
            "email": email[:5] + "*",
            "trace_id": "",
        },
        {"email": email, "list_id": list_id, "trace_id": f"1{'A' * 30}.1.{'A' * 22}"},
    ]


# Maps HTTP methods to request bodies. No request body removes the member from the list, because
# later requests need the member.
_BODIES: dict[str, dict[str, Any] | None] = {"PUT": {"enabled": True}, "PATCH": {"name": "X"}}


def test_no_route_shows_a_members_address_or_name_to_anyone_else(
    stack: Stack, list_with_onlookers: ListWithOnlookers
) -> None:
    called_operations: set[str] = set()
    with ExitStack() as opened:
        callers = {
            who: opened.enter_context(stack.client(key))
            for who, key in list_with_onlookers.onlookers.items()
        }
        for method, template in operations():
            if template.endswith("/events"):
                continue  # An endless stream. GET /jobs/{job_id} returns the same data.
            for path, query, who in product(
                paths(list_with_onlookers, template), queries(list_with_onlookers), callers
            ):
                reply = callers[who].request(method, path, params=query, json=_BODIES.get(method))
                called_operations.add(f"{method} {template}")
                leaks = [
                    each for each in list_with_onlookers.secrets if each in response_text(reply)
                ]
                assert leaks == [], (who, method, path, query, reply.text)
                assert reply.status_code < 500, (who, method, path, reply.text)
    assert {"GET /subscriptions/opponent", "GET /lists/{list_id}/subscriptions"} < called_operations


def response_text(reply: httpx2.Response) -> str:
    """Return the body and the headers of a response, without backslash escapes in a JSON body."""
    try:
        body = json.dumps(reply.json(), ensure_ascii=False)
    except ValueError:
        body = reply.text
    return f"{body}\n{reply.headers}"


def test_owner_and_member_see_the_members_address(
    stack: Stack, list_with_onlookers: ListWithOnlookers
) -> None:
    list_id = list_with_onlookers.list_id
    user_id = list_with_onlookers.member.user_id
    with (
        stack.client(list_with_onlookers.owner.key) as owner,
        stack.client(list_with_onlookers.member.key) as member,
    ):
        for reply in (
            owner.get(f"/lists/{list_id}/subscriptions"),
            owner.get(f"/subscriptions/{list_id}/members/{user_id}/subs"),
            member.get(f"/subscriptions/{list_id}/rel"),
            member.get("/subscriptions"),
            member.get("/subscriptions/opponent", params={"list_id": list_id}),
        ):
            assert list_with_onlookers.member.email in response_text(reply)
