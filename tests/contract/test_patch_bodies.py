"""Tests that a PATCH request changes only the fields that its body contains."""

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from tests.support.http.openapi import Document, openapi_document
from tests.support.http.replies import data, send
from tests.support.imports.bulk import build_address_file, import_members_file
from tests.support.lists.subscribers import new_address, new_list

Json = dict[str, Any]
PATCH_BODIES = {
    path: methods["patch"]["requestBody"]["content"]["application/json"]["schema"]
    for path, methods in openapi_document()["paths"].items()
    if "patch" in methods
}


@pytest.mark.parametrize("path", PATCH_BODIES)
def test_patch_body_has_no_default_values(path: str) -> None:
    schemas = _all_schemas(openapi_document(), PATCH_BODIES[path])
    assert any("properties" in schema for schema in schemas)
    assert [schema for schema in schemas if "default" in schema] == []


def _all_schemas(document: Document, schema: Json) -> list[Json]:
    """Return the schema and all schemas inside it, and follow each reference once."""
    schemas: list[Json] = []
    references = set()
    remaining = [schema]
    while remaining:
        node = remaining.pop()
        schemas.append(node)
        reference = node.get("$ref")
        if reference and reference not in references:
            references.add(reference)
            remaining.append(_resolve(document, node))
        inner = [*node.get("properties", {}).values(), *node.get("anyOf", [])]
        inner += [node[key] for key in ("items", "additionalProperties") if key in node]
        remaining += [each for each in inner if isinstance(each, dict)]
    return schemas


def _resolve(document: Document, schema: Json) -> Json:
    resolved: Json = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return resolved


def _create_list(client: httpx2.Client) -> str:
    values = {"email_channel_enabled": False, "confirm_required": False, "tagline": "Daily"}
    return f"/lists/{new_list(client, **values)['id']}"


def _create_member(client: httpx2.Client) -> str:
    list_id = new_list(client)["id"]
    address = new_address()
    import_members_file(client, list_id, build_address_file(address))
    path = f"/lists/{list_id}/members/{address}"
    data(client.patch(path, json={"type": "gold", "name": "Ada", "tags": ["VIP"]}))
    return path


def _create_field(client: httpx2.Client) -> str:
    field = {"key": "city", "label": "City", "type": "choice", "choices": ["Rome"], "public": True}
    return f"/fields/{data(client.post('/fields', json=field))['id']}"


def _create_segment(client: httpx2.Client) -> str:
    segment = {"name": "Readers", "filter": {"field": "email", "exists": True}}
    path = f"/lists/{new_list(client)['id']}/segments"
    return f"{path}/{data(client.post(path, json=segment))['id']}"


def _create_endpoint(client: httpx2.Client) -> str:
    endpoint = {"url": "http://127.0.0.1:9/events", "types": ["order.disputed"]}
    path = f"/webhook-endpoints/{data(client.post('/webhook-endpoints', json=endpoint))['id']}"
    data(client.patch(path, json={"state": "paused"}))
    return path


def _create_sender(client: httpx2.Client) -> str:
    sender = {"name": "Ours", "provider": "generic", "list_ids": [new_list(client)["id"]]}
    path = f"/senders/{data(client.post('/senders', json=sender))['id']}"
    data(client.patch(path, json={"state": "paused"}))
    return path


def _create_attachment(client: httpx2.Client) -> str:
    path = f"/attachments/{data(send(client))['hash_id']}"
    data(client.patch(path, json={"title": "Boats", "alt_text": "Boats", "tags": ["harbour"]}))
    return path


def _change_user(client: httpx2.Client) -> str:
    data(client.patch("/users/me", json={"import_mails": False}))
    return "/users/me"


def _create_deny_list(client: httpx2.Client) -> str:
    data(client.patch("/deny-list", json={"add_addresses": ["spam@example.net"]}))
    return "/deny-list"


# Each function creates a record whose values differ from the defaults, and returns the URL's path.
RECORDS: dict[str, Callable[[httpx2.Client], str]] = {
    "/attachments/{hash_id}": _create_attachment,
    "/deny-list": _create_deny_list,
    "/fields/{field_id}": _create_field,
    "/lists/{list_id}": _create_list,
    "/lists/{list_id}/members/{user_id}": _create_member,
    "/lists/{list_id}/segments/{segment_id}": _create_segment,
    "/senders/{sender_id}": _create_sender,
    "/users/me": _change_user,
    "/webhook-endpoints/{endpoint_id}": _create_endpoint,
}


def test_every_patch_body_without_required_fields_has_a_record() -> None:
    document = openapi_document()
    with_required_fields = {
        path for path, body in PATCH_BODIES.items() if "required" in _resolve(document, body)
    }
    assert PATCH_BODIES.keys() - with_required_fields == RECORDS.keys()


@pytest.mark.parametrize("path", RECORDS)
def test_field_that_a_patch_body_omits_keeps_its_value(path: str, client: httpx2.Client) -> None:
    record_path = RECORDS[path](client)
    # The API has no operation that reads one field.
    read_path = "/fields" if path == "/fields/{field_id}" else record_path
    record_before = data(client.get(read_path))
    assert client.patch(record_path, json={}).status_code == 200
    assert data(client.get(read_path)) == record_before
