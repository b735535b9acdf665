"""Fields and tags, as tests make and look at them."""

from typing import Any

import httpx

from tests.contract.replies import data


def new_field(client: httpx.Client, key: str, type_: str = "text", **more: object) -> int:
    body = {"key": key, "label": key.title(), "type": type_, **more}
    made: int = data(client.post("/fields", json=body))["id"]
    return made


def put(client: httpx.Client, list_id: int, email: str, **values: object) -> dict[str, Any]:
    """The member of this address, made or changed."""
    made: dict[str, Any] = data(client.put(f"/lists/{list_id}/members/{email}", json=values))
    return made


def tag_names(client: httpx.Client, list_id: int | str) -> list[str]:
    """Of the list, the newest first."""
    items = data(client.get(f"/lists/{list_id}/tags"))["items"]
    return [each["name"] for each in items]


def tag_id(client: httpx.Client, list_id: int, name: str) -> int:
    items = data(client.get(f"/lists/{list_id}/tags"))["items"]
    [found] = [each["id"] for each in items if each["name"] == name]
    return int(found)
