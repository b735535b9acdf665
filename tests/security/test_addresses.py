"""A member's address is told to the list's owner and to the member, and to nobody else."""

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
    """A list with a member, and people who have no business with that member."""

    list_id: int
    slug: str
    owner: Owner
    member: Owner
    # Beside the member's own address, the one and only name that is theirs.
    secrets: tuple[str, ...]
    onlookers: dict[str, str | None]
    others_list_id: int


@pytest.fixture(scope="module")
def list_with_onlookers(stack: Stack) -> ListWithOnlookers:
    """A mailing list with a member, and API callers who must not see the member's address."""
    owner, rival = stack.create_owner(), stack.create_owner()
    member, fellow = stack.create_owner(plan=Plan.FREE), stack.create_owner(plan=Plan.FREE)
    list_id, slug = _new_list(stack, owner)
    others_list_id, _ = _new_list(stack, rival)
    name = f"Name {secrets.token_hex(8)}"
    stack.query("UPDATE users SET name = %s WHERE id = %s", name, member.user_id)
    for person, joined in ((member, list_id), (fellow, list_id), (fellow, others_list_id)):
        with stack.client(person.key) as client:
            client.post(f"/subscriptions/{joined}/no-challenge").raise_for_status()
    restricted = stack.create_key(owner.user_id, Scope.ATTACHMENT)
    onlookers = {
        "a stranger": None,
        "another owner": rival.key,
        "another member": fellow.key,
        "a key without the scope": restricted,
    }
    return ListWithOnlookers(
        list_id, slug, owner, member, (member.email, name), onlookers, others_list_id
    )


def _new_list(stack: Stack, owner: Owner) -> tuple[int, str]:
    slug = f"list-{secrets.token_hex(6)}"
    with stack.client(owner.key) as client:
        made = client.post("/lists", json={"title": "List", "slug": slug}).raise_for_status()
    return made.json()["data"]["id"], slug


def operations() -> list[tuple[str, str]]:
    """Method and path of all that the document names; what takes things away comes last."""
    found = [
        (method.upper(), path) for path, of in openapi_document()["paths"].items() for method in of
    ]
    return sorted(found, key=lambda each: _ORDER.index(each[0]))


_ORDER = ("GET", "POST", "PUT", "PATCH", "DELETE")


def paths(list_with_onlookers: ListWithOnlookers, template: str) -> set[str]:
    """The path with everything in it that may lead to the member."""
    names = re.findall(r"{(\w+)}", template)
    values = dict.fromkeys(names, str(list_with_onlookers.member.user_id))
    return {
        template.format(**(values | {"list_id": place}))
        for place in (
            str(list_with_onlookers.list_id),
            list_with_onlookers.slug,
            str(list_with_onlookers.others_list_id),
        )
    }


def queries(list_with_onlookers: ListWithOnlookers) -> list[dict[str, str]]:
    """Each parameter that names a list or a person or looks for one."""
    email, list_id = list_with_onlookers.member.email, str(list_with_onlookers.list_id)
    return [
        {
            "list_id": list_id,
            "dst_list_id": str(list_with_onlookers.others_list_id),
            "user_id": str(list_with_onlookers.member.user_id),
            "email": email[:5] + "*",
            "trace_id": "",
        },
        {"email": email, "list_id": list_id, "trace_id": f"1{'A' * 30}.1.{'A' * 22}"},
    ]


# What changes nothing, so that the calls before leave the member where they are.
_BODIES: dict[str, dict[str, Any] | None] = {"PUT": {"enabled": True}, "PATCH": {"name": "X"}}


def test_no_route_shows_a_members_address_or_name_to_anyone_else(
    stack: Stack, list_with_onlookers: ListWithOnlookers
) -> None:
    asked: set[str] = set()
    with ExitStack() as opened:
        callers = {
            who: opened.enter_context(stack.client(key))
            for who, key in list_with_onlookers.onlookers.items()
        }
        for method, template in operations():
            if template.endswith("/events"):
                continue  # a stream, whose states GET /jobs/{job_id} answers
            for path, query, who in product(
                paths(list_with_onlookers, template), queries(list_with_onlookers), callers
            ):
                reply = callers[who].request(method, path, params=query, json=_BODIES.get(method))
                asked.add(f"{method} {template}")
                told = [
                    each for each in list_with_onlookers.secrets if each in everything_of(reply)
                ]
                assert told == [], (who, method, path, query, reply.text)
                assert reply.status_code < 500, (who, method, path, reply.text)
    assert {"GET /subscriptions/opponent", "GET /lists/{list_id}/subscriptions"} < asked


def everything_of(reply: httpx2.Response) -> str:
    # As text, however it was escaped.
    try:
        body = json.dumps(reply.json(), ensure_ascii=False)
    except ValueError:
        body = reply.text
    return f"{body}\n{reply.headers}"


def test_owner_and_member_see_the_members_address(
    stack: Stack, list_with_onlookers: ListWithOnlookers
) -> None:
    list_id, user_id = list_with_onlookers.list_id, list_with_onlookers.member.user_id
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
            assert list_with_onlookers.member.email in everything_of(reply)
