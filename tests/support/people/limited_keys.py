"""Creates limited API keys, which export the rosters of certain lists."""

from typing import Any

import httpx2

from core.scopes import Scope
from devstack.harness.stack import Owner, Stack
from tests.support.http.replies import data
from tests.support.people.visiting import new_visitor


def request_key(stack: Stack, owner: Owner, **fields: object) -> httpx2.Response:
    """Request an API key in a new session of the owner."""
    with new_visitor(stack) as visitor:
        visitor.enter(owner.email)
        body = {"name": "Newsletter sender", **fields}
        headers = {"Origin": stack.settings().public_base}
        return visitor.client.post("/apikeys", json=body, headers=headers)


def create_limited_key(
    stack: Stack, owner: Owner, *list_ids: int, more_scopes: tuple[Scope, ...] = ()
) -> dict[str, Any]:
    scopes = [Scope.DELIVERY, *more_scopes]
    return dict(data(request_key(stack, owner, scopes=scopes, list_ids=list_ids)))
