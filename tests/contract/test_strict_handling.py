"""Tests that `Prefer: handling=strict` refuses undocumented fields and parameters."""

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from devstack.harness.stack import Owner, Stack
from tests.support.credits import credits
from tests.support.http.openapi import openapi_document
from tests.support.http.replies import data, problem
from tests.support.images.pictures import encoded
from tests.support.imports.bulk import add, build_address_file, build_addresses, list_stored_keys
from tests.support.lists.subscribers import fetch_members, new_address, new_list, new_slug
from tests.support.security import world as worlds
from tests.support.security.calls import CALLS
from tests.support.security.world import World

STRICT_HEADERS = {"Prefer": "handling=strict"}


def read_unknown_fields(reply: httpx2.Response) -> list[str]:
    """Return the places of the unknown fields that an error response lists."""
    error = problem(reply, 400, "request.unknown")
    assert "preference-applied" not in reply.headers or "body." in error["message"]
    places = [each["field"] for each in error["errors"]]
    assert all(place in error["message"] for place in places)
    return places


@pytest.mark.parametrize("path", ["/lists", "/lists/{}/subscriptions", "/auxilia/credits/ledger"])
def test_strict_request_rejects_unknown_query_parameters(
    client: httpx2.Client, list_id: int, path: str
) -> None:
    url = path.format(list_id)
    query = {"sort": "email", "limit": "5", "name": "x"}
    assert read_unknown_fields(client.get(url, params=query, headers=STRICT_HEADERS)) == [
        "query.sort",
        "query.name",
    ]
    assert data(client.get(url, params=query))["items"] is not None
    reply = client.get(url, params={"limit": 5}, headers=STRICT_HEADERS)
    assert data(reply)["pagination"]["limit"] == 5
    assert reply.headers["preference-applied"] == "handling=strict"
    assert "preference-applied" not in client.get(url).headers


def test_strict_request_rejects_unknown_body_fields_and_creates_nothing(
    client: httpx2.Client,
) -> None:
    body = {"title": "Tea", "slug": new_slug(), "flavour": "green"}
    assert read_unknown_fields(client.post("/lists", json=body, headers=STRICT_HEADERS)) == [
        "body.flavour"
    ]
    assert data(client.get("/lists"))["items"] == []
    created_list = data(client.post("/lists", json=body))
    reply = client.patch(
        f"/lists/{created_list['id']}", json={"titel": "T"}, headers=STRICT_HEADERS
    )
    assert read_unknown_fields(reply) == ["body.titel"]


def test_strict_request_rejects_unknown_fields_in_nested_filters(
    client: httpx2.Client, list_id: int
) -> None:
    path = f"/lists/{list_id}/members/search"
    valid_filter = {"all": [{"not": {"field": "name", "is": "Ada"}}]}
    reply = client.post(path, json={"filter": valid_filter}, headers=STRICT_HEADERS)
    assert data(reply)["items"] == []
    assert reply.headers["preference-applied"] == "handling=strict"
    condition = {"field": "name", "is": "Ada", "case": 1}
    body = {"filter": {"all": [{"not": condition}]}, "sort": "name"}
    places = ["body.filter.all[0].not.case", "body.sort"]
    assert read_unknown_fields(client.post(path, json=body, headers=STRICT_HEADERS)) == places
    deep_filter = '{"not":' * 900 + '{"field": "name", "is": "Ada"}' + "}" * 900
    request = {
        "content": f'{{"filter": {deep_filter}}}',
        "headers": {"Content-Type": "application/json"},
    }
    problem(client.post(path, **request), 400, "filter.invalid")  # type: ignore[arg-type]
    request["headers"] = {"Content-Type": "application/json", **STRICT_HEADERS}
    problem(client.post(path, **request), 400, "filter.invalid")  # type: ignore[arg-type]


def test_strict_bulk_add_names_unknown_fields_of_each_item_and_adds_nobody(
    client: httpx2.Client, list_id: int
) -> None:
    people: list[dict[str, Any]] = [
        {"email": new_address(), "name": "Ada"},
        {"email": new_address(), "tags": ["vip"], "age": 7, "born": 1990},
    ]
    path = f"/auxilia/subscriptions/{list_id}/members/add"
    body = {"members": people, "source": "shop"}
    reply = client.post(path, json=body, headers=STRICT_HEADERS)
    assert read_unknown_fields(reply) == [
        "body.members[1].age",
        "body.members[1].born",
        "body.source",
    ]
    # An error lists at most 20 unknown fields.
    large_body = {"members": people[1:] * 5000}
    assert (
        len(read_unknown_fields(client.post(path, json=large_body, headers=STRICT_HEADERS))) == 20
    )
    assert fetch_members(client, list_id) == []
    assert data(client.post(path, json={"members": people[:1]}, headers=STRICT_HEADERS)) == 1
    assert data(add(client, list_id, *people)) == 1


def test_strict_charge_with_an_unknown_field_is_not_made(
    stack: Stack, owner: Owner, client: httpx2.Client
) -> None:
    credits.grant(stack, owner.user_id, "5")
    body = {"amount_credit": 1, "source_id": "post", "meta": {"any": {"thing": 1}}}
    reply = client.post(credits.CONSUME, json={**body, "amount": 2}, headers=STRICT_HEADERS)
    assert read_unknown_fields(reply) == ["body.amount"]
    assert credits.balance(client) == 5
    # Objects with free-form content accept any field.
    data(client.post(credits.CONSUME, json=body, headers=STRICT_HEADERS))
    assert credits.balance(client) == 4


def test_strict_error_escapes_a_lone_surrogate_in_a_field_name(client: httpx2.Client) -> None:
    body = r'{"amount_credit": 1, "source_id": "post", "\ud800": 2}'
    headers = {**STRICT_HEADERS, "Content-Type": "application/json"}
    reply = client.post(credits.CONSUME, content=body, headers=headers)
    assert read_unknown_fields(reply) == [r"body.\ud800"]


@pytest.mark.parametrize(
    ("prefer", "is_strict"),
    [
        ("handling=strict", True),
        ('Handling = "Strict"', True),
        ("wait=5, handling=strict;x=y", True),
        ("handling=strict, handling=lenient", True),
        ("handling=lenient, handling=strict", False),
        ("handling=lenient", False),
        ("handling", False),
        ("respond-async", False),
        ("handling=stricter", False),
    ],
)
def test_first_handling_preference_of_a_request_wins(
    client: httpx2.Client, prefer: str, is_strict: bool
) -> None:
    reply = client.get("/lists", params={"sort": "x"}, headers={"Prefer": prefer})
    assert reply.status_code == (400 if is_strict else 200)


def test_strict_error_lists_at_most_20_names_and_truncates_long_ones(client: httpx2.Client) -> None:
    reply_to_many_names = client.get(
        "/lists", params={f"n{number}": 1 for number in range(8_000)}, headers=STRICT_HEADERS
    )
    assert read_unknown_fields(reply_to_many_names) == [f"query.n{number}" for number in range(20)]
    replies_to_long_names = [client.get("/lists", params={"n" * 60_000: 1}, headers=STRICT_HEADERS)]
    replies_to_long_names.append(
        client.post("/fields", json={"n" * 1_000_000: 1}, headers=STRICT_HEADERS)
    )
    for reply in replies_to_long_names:
        [place] = read_unknown_fields(reply)
        assert place.endswith("nnn…")
        assert len(reply.content) < 2_000


def test_strict_request_without_credentials_gets_no_error_about_its_query(
    stranger: httpx2.Client,
) -> None:
    reply = stranger.get("/lists", params={"sort": "x"}, headers=STRICT_HEADERS)
    problem(reply, 401, "auth.credentials_missing")


def test_strict_request_without_credentials_gets_no_error_about_its_body(
    stranger: httpx2.Client,
) -> None:
    reply = stranger.post("/lists", json={"colour": "green"}, headers=STRICT_HEADERS)
    problem(reply, 401, "auth.credentials_missing")


@pytest.fixture(scope="module")
def filled_account(stack: Stack) -> Iterator[World]:
    """An owner's account with an item of every kind that a path parameter can name."""
    world = worlds.build(stack)
    world.values |= {"provider": "stockphoto", "as_whom": "strict"}
    yield world
    world.client.close()


def find_undocumented_fields(schema: Any, value: Any, place: str) -> list[str]:
    """Return the fields of a response that the response's schema doesn't contain."""
    if "$ref" in schema:
        schema = openapi_document()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        return min(
            (find_undocumented_fields(each, value, place) for each in schema["anyOf"]), key=len
        )
    if isinstance(value, list) and "items" in schema:
        return [
            each
            for item in value
            for each in find_undocumented_fields(schema["items"], item, place)
        ]
    if not isinstance(value, dict) or schema.get("additionalProperties"):
        return []
    properties = schema.get("properties", {})
    return [f"{place}.{name}" for name in value.keys() - properties.keys()] + [
        each
        for name in value.keys() & properties.keys()
        for each in find_undocumented_fields(properties[name], value[name], f"{place}.{name}")
    ]


def test_every_operation_accepts_strict_requests_and_returns_only_documented_fields(
    filled_account: World,
) -> None:
    paths = openapi_document()["paths"]
    for operation, call in CALLS.items():
        reply = call.send(filled_account.client, operation, filled_account.values, **STRICT_HEADERS)
        assert b"request.unknown" not in reply.content, operation
        method, path = operation.lower().split(" ")
        responses = paths.get(path, {}).get(method, {}).get("responses", {})
        content = responses.get(str(reply.status_code), {}).get("content", {})
        if reply.is_success and "application/json" in content and reply.content:
            schema = content["application/json"]["schema"]
            assert find_undocumented_fields(schema, reply.json(), operation) == []


Part = tuple[str, tuple[str | None, str | bytes]]


def _build_part(name: str, value: str) -> Part:
    return (name, (None, value))


def _require_option_error(reply: httpx2.Response, name: str) -> None:
    error = problem(reply, 400, "request.option_in_body")
    assert [each["field"] for each in error["errors"]] == [f"body.{name}"]
    assert f"The body can't contain {name}" in error["message"]
    assert "query parameter" in error["message"]


def _import(
    client: httpx2.Client, list_id: int, *parts: Part, headers: dict[str, str] | None = None
) -> httpx2.Response:
    return client.post(f"/lists/{list_id}/imports", files=[*parts], headers=headers)


IMPORT_OPTIONS = {
    "dry_run": "1",
    "on_existing": "update",
    "mapping": "{}",
    "kind": "bounces",
    "create_fields": "1",
    "filename": "a.csv",
}


@pytest.mark.parametrize("headers", [{}, STRICT_HEADERS], ids=["lenient", "strict"])
@pytest.mark.parametrize("name", IMPORT_OPTIONS)
def test_import_with_an_option_in_the_body_is_rejected_and_imports_nothing(
    stack_without_workers: Stack,
    client_without_workers: httpx2.Client,
    headers: dict[str, str],
    name: str,
) -> None:
    objects_before = list_stored_keys(stack_without_workers)
    list_id = new_list(client_without_workers)["id"]
    file: Part = ("file", ("mail.csv", build_address_file(*build_addresses(2))))
    option = _build_part(name, IMPORT_OPTIONS[name])
    for parts in ([option, file], [file, option]):
        _require_option_error(
            _import(client_without_workers, list_id, *parts, headers=headers), name
        )
    assert data(client_without_workers.get("/imports"))["items"] == []
    assert list_stored_keys(stack_without_workers) <= objects_before


@pytest.mark.parametrize("headers", [{}, STRICT_HEADERS], ids=["lenient", "strict"])
@pytest.mark.parametrize("name", ["encrypted", "renditions"])
def test_image_upload_with_an_option_in_the_body_is_rejected_and_stores_nothing(
    stack_without_workers: Stack,
    client_without_workers: httpx2.Client,
    headers: dict[str, str],
    name: str,
) -> None:
    objects_before = set(stack_without_workers.stored())
    parts: list[Part] = [_build_part(name, "true"), ("file", ("a.png", encoded("PNG")))]
    headers = {"Prefer": ", ".join(["respond-async", *headers.values()])}
    _require_option_error(
        client_without_workers.post("/attachments", files=parts, headers=headers), name
    )
    assert data(client_without_workers.get("/attachments"))["items"] == []
    assert set(stack_without_workers.stored()) <= objects_before


def test_unknown_multipart_parts_are_rejected_only_in_strict_requests(
    client: httpx2.Client, list_id: int
) -> None:
    image_part: Part = ("file", ("a.png", encoded("PNG")))
    emails = build_addresses(2)
    sheet_part: Part = ("file", ("mail.csv", build_address_file(*emails)))
    note_part = _build_part("note", "spring")
    reply = client.post("/attachments", files=[note_part, image_part], headers=STRICT_HEADERS)
    assert problem(reply, 400, "request.unknown")["errors"][0]["field"] == "body.note"
    reply = _import(client, list_id, sheet_part, note_part, headers=STRICT_HEADERS)
    assert problem(reply, 400, "request.unknown")["errors"][0]["field"] == "body.note"
    assert fetch_members(client, list_id) == []
    data(client.post("/attachments", files=[image_part], headers=STRICT_HEADERS))
    data(client.post("/attachments", files=[note_part, image_part]))
    wait = {"Prefer": "wait=30"}
    assert (
        data(_import(client, list_id, sheet_part, note_part, headers=wait))["result"]["added"] == 2
    )


@pytest.mark.parametrize("headers", [{}, STRICT_HEADERS], ids=["lenient", "strict"])
def test_bulk_action_with_dry_run_in_the_body_is_rejected_and_not_performed(
    client_without_workers: httpx2.Client, headers: dict[str, str]
) -> None:
    list_id = new_list(client_without_workers)["id"]
    bulk_action = {"action": "tag", "value": "new", "filter": {"field": "email", "exists": True}}
    body = {**bulk_action, "dry_run": 1}
    path = f"/lists/{list_id}/members/bulk"
    _require_option_error(client_without_workers.post(path, json=body, headers=headers), "dry_run")
    assert data(client_without_workers.get("/jobs"))["items"] == []
    data(client_without_workers.post(path, json=bulk_action, headers=headers), 202)
