"""Creates and reads fields, tags, filters, segments and bulk actions through the API."""

from collections.abc import Sequence
from typing import Any

import httpx2
import orjson

from tests.support.http.replies import data
from tests.support.imports.bulk import (
    await_job,
    build_address_file,
    build_addresses,
    import_members_file,
)
from tests.support.lists.subscribers import require_member

VIP = {"field": "tag", "is": "vip"}
ALL_MEMBERS_FILTER = {"field": "email", "exists": True}


def tag_members(client: httpx2.Client, list_id: int, tag: str, *emails: str) -> None:
    for email in emails:
        set_member(client, list_id, email, add_tags=[tag])


def set_member(client: httpx2.Client, list_id: int, email: str, **changes: Any) -> dict[str, Any]:
    user_id = require_member(client, list_id, email)["user_id"]
    return dict(data(client.patch(f"/lists/{list_id}/members/{user_id}", json=changes)))


def import_some_members(
    client: httpx2.Client, list_id: int, count: int, *, vips: int = 0
) -> list[str]:
    emails = build_addresses(count)
    import_members_file(client, list_id, build_address_file(*emails))
    tag_members(client, list_id, "vip", *emails[:vips])
    return emails


def new_segment(
    client: httpx2.Client, list_id: int, written: Any = VIP, name: str = "VIPs"
) -> dict[str, Any]:
    body = {"name": name, "filter": written}
    return dict(data(client.post(f"/lists/{list_id}/segments", json=body)))


def new_field(client: httpx2.Client, key: str, kind: str = "text", **others: Any) -> dict[str, Any]:
    body = {"key": key, "label": key.title(), "type": kind, **others}
    return dict(data(client.post("/fields", json=body)))


def filter_of_bytes(size: int) -> dict[str, Any]:
    """Return a filter whose compact JSON has exactly ``size`` bytes.

    The filter contains letters of two bytes, so it has fewer characters than bytes.
    """
    values = ["é" * 100 for _ in range(size // 210)]
    filter_json = {"field": "email", "in": values}
    missing_bytes = size - len(orjson.dumps(filter_json))
    values[0] += "x" * missing_bytes
    assert len(orjson.dumps(filter_json)) == size
    return filter_json


def bulk_action(client: httpx2.Client, list_id: int, action: str, **body: Any) -> httpx2.Response:
    return client.post(f"/lists/{list_id}/members/bulk", json={"action": action, **body})


def run_bulk_action(
    client: httpx2.Client, list_id: int, action: str, **body: Any
) -> dict[str, Any]:
    reply = bulk_action(client, list_id, action, **body)
    job = await_job(client, data(reply, 202)["id"])
    assert (job["kind"], job["status"]) == ("members.bulk", "succeeded"), job
    return dict(job["result"])


def undo(client: httpx2.Client, bulk_id: int, **headers: str) -> httpx2.Response:
    return client.delete(f"/bulk/{bulk_id}", headers=headers)


def read_members(
    client: httpx2.Client, list_id: int, emails: Sequence[str]
) -> list[dict[str, Any]]:
    return [require_member(client, list_id, email) for email in emails]


def put_member(client: httpx2.Client, list_id: int, email: str, **values: object) -> dict[str, Any]:
    return dict(data(client.put(f"/lists/{list_id}/members/{email}", json=values)))


def tag_names(client: httpx2.Client, list_id: int | str) -> list[str]:
    items = data(client.get(f"/lists/{list_id}/tags"))["items"]
    return [each["name"] for each in items]
