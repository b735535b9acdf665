"""Helpers for API tests, which upload images and check responses."""

import re
import time
from typing import Any

import httpx2

from devstack.harness.stack import Stack
from tests.support.images.pictures import encoded

TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def data(reply: httpx2.Response, *statuses: int) -> Any:
    """Check the envelope of a successful response, and return its ``data``."""
    assert reply.status_code in (statuses or (200,)), reply.text
    body = reply.json()
    assert set(body) == {"data", "ts"}
    assert type(body["ts"]) is int
    assert abs(body["ts"] - time.time()) < 120
    return body["data"]


def problem(reply: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    """Check the format of an error response, and return its body."""
    assert (reply.status_code, reply.json().get("code")) == (status, code), reply.text
    assert reply.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = reply.json()
    assert body["status"] == status
    assert body["type"]
    assert body["title"]
    assert body["detail"] == body["message"] != ""
    assert type(body["ts"]) is int
    assert body["request_id"] == reply.headers["x-request-id"]
    challenged = status == 401 or code == "auth.insufficient_scope"
    assert ("www-authenticate" in reply.headers) == challenged
    return body


def fields_at_fault(body: dict[str, Any]) -> list[str]:
    return [error["field"] for error in body["errors"]]


def walk_pages(client: httpx2.Client, path: str, limit: int) -> list[Any]:
    items: list[Any] = []
    query: dict[str, Any] = {"limit": limit}
    while True:
        page = data(client.get(path, params=query))
        items += page["items"]
        cursor = page["pagination"]["next_cursor"]
        if cursor is None:
            return items
        assert len(page["items"]) == limit
        # A route that returns the same cursor twice would make this loop endless.
        assert cursor != query.get("cursor")
        query["cursor"] = cursor


def send(
    client: httpx2.Client,
    content: bytes | None = None,
    name: str = "picture.png",
    *,
    prefer: str | None = None,
    key: str | None = None,
    **params: str,
) -> httpx2.Response:
    """Upload a file, by default a small PNG image."""
    headers = {"Prefer": prefer, "Idempotency-Key": key}
    return client.post(
        "/attachments",
        files={"file": (name, encoded("PNG") if content is None else content)},
        params=params,
        headers={name: value for name, value in headers.items() if value is not None},
    )


def objects_of(stack: Stack, record: dict[str, Any]) -> list[str]:
    """Return the keys of the stored objects that belong to an attachment."""
    return [key for key in stack.stored() if record["hash_id"] in key]
