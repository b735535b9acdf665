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
from tests.support.imports.bulk import add, addresses, objects, of_addresses
from tests.support.lists.subscribers import members, new_address, new_list, new_slug
from tests.support.security import world as worlds
from tests.support.security.calls import CALLS
from tests.support.security.world import World

STRICT = {"Prefer": "handling=strict"}


def unknown(reply: httpx2.Response) -> list[str]:
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
    address = path.format(list_id)
    query = {"sort": "email", "limit": "5", "name": "x"}
    assert unknown(client.get(address, params=query, headers=STRICT)) == [
        "query.sort",
        "query.name",
    ]
    assert data(client.get(address, params=query))["items"] is not None
    known = client.get(address, params={"limit": 5}, headers=STRICT)
    assert data(known)["pagination"]["limit"] == 5
    assert known.headers["preference-applied"] == "handling=strict"
    assert "preference-applied" not in client.get(address).headers


def test_strict_request_rejects_unknown_body_fields_and_creates_nothing(
    client: httpx2.Client,
) -> None:
    body = {"title": "Tea", "slug": new_slug(), "flavour": "green"}
    assert unknown(client.post("/lists", json=body, headers=STRICT)) == ["body.flavour"]
    assert data(client.get("/lists"))["items"] == []
    made = data(client.post("/lists", json=body))
    changed = client.patch(f"/lists/{made['id']}", json={"titel": "T"}, headers=STRICT)
    assert unknown(changed) == ["body.titel"]


def test_strict_request_rejects_unknown_fields_in_nested_filters(
    client: httpx2.Client, list_id: int
) -> None:
    path = f"/lists/{list_id}/members/search"
    right = {"all": [{"not": {"field": "name", "is": "Ada"}}]}
    known = client.post(path, json={"filter": right}, headers=STRICT)
    assert data(known)["items"] == []
    assert known.headers["preference-applied"] == "handling=strict"
    condition = {"field": "name", "is": "Ada", "case": 1}
    body = {"filter": {"all": [{"not": condition}]}, "sort": "name"}
    places = ["body.filter.all[0].not.case", "body.sort"]
    assert unknown(client.post(path, json=body, headers=STRICT)) == places
    deep = '{"not":' * 900 + '{"field": "name", "is": "Ada"}' + "}" * 900
    sent = {"content": f'{{"filter": {deep}}}', "headers": {"Content-Type": "application/json"}}
    problem(client.post(path, **sent), 400, "filter.invalid")  # type: ignore[arg-type]
    sent["headers"] = {"Content-Type": "application/json", **STRICT}
    problem(client.post(path, **sent), 400, "filter.invalid")  # type: ignore[arg-type]


def test_strict_bulk_add_names_unknown_fields_of_each_item_and_adds_nobody(
    client: httpx2.Client, list_id: int
) -> None:
    people: list[dict[str, Any]] = [
        {"email": new_address(), "name": "Ada"},
        {"email": new_address(), "tags": ["vip"], "age": 7},
    ]
    path = f"/auxilia/subscriptions/{list_id}/members/add"
    body = {"members": people, "source": "shop"}
    reply = client.post(path, json=body, headers=STRICT)
    assert unknown(reply) == ["body.members[1].tags", "body.members[1].age", "body.source"]
    # An error lists at most 20 unknown fields.
    many = {"members": people[1:] * 5000}
    assert len(unknown(client.post(path, json=many, headers=STRICT))) == 20
    assert members(client, list_id) == []
    assert data(client.post(path, json={"members": people[:1]}, headers=STRICT)) == 1
    assert data(add(client, list_id, *people)) == 1


def test_strict_charge_with_an_unknown_field_is_not_made(
    stack: Stack, owner: Owner, client: httpx2.Client
) -> None:
    credits.grant(stack, owner.user_id, "5")
    body = {"amount_credit": 1, "source_id": "post", "meta": {"any": {"thing": 1}}}
    wrong = client.post(credits.CONSUME, json={**body, "amount": 2}, headers=STRICT)
    assert unknown(wrong) == ["body.amount"]
    assert credits.balance(client) == 5
    # Objects with free-form content accept any field.
    data(client.post(credits.CONSUME, json=body, headers=STRICT))
    assert credits.balance(client) == 4


def test_strict_error_escapes_a_lone_surrogate_in_a_field_name(client: httpx2.Client) -> None:
    body = r'{"amount_credit": 1, "source_id": "post", "\ud800": 2}'
    headers = {**STRICT, "Content-Type": "application/json"}
    wrong = client.post(credits.CONSUME, content=body, headers=headers)
    assert unknown(wrong) == [r"body.\ud800"]


def test_first_handling_preference_of_a_request_wins(client: httpx2.Client) -> None:
    for prefer, is_strict in [
        ("handling=strict", True),
        ('Handling = "Strict"', True),
        ("wait=5, handling=strict;x=y", True),
        ("handling=strict, handling=lenient", True),
        ("handling=lenient, handling=strict", False),
        ("handling=lenient", False),
        ("handling", False),
        ("respond-async", False),
        ("handling=stricter", False),
    ]:
        reply = client.get("/lists", params={"sort": "x"}, headers={"Prefer": prefer})
        assert reply.status_code == (400 if is_strict else 200)


def test_strict_error_lists_at_most_20_names_and_truncates_long_ones(client: httpx2.Client) -> None:
    many = client.get("/lists", params={f"n{number}": 1 for number in range(8_000)}, headers=STRICT)
    assert unknown(many) == [f"query.n{number}" for number in range(20)]
    long = [client.get("/lists", params={"n" * 60_000: 1}, headers=STRICT)]
    long.append(client.post("/fields", json={"n" * 1_000_000: 1}, headers=STRICT))
    for reply in long:
        [place] = unknown(reply)
        assert place.endswith("nnn…")
        assert len(reply.content) < 2_000


def test_strict_request_without_credentials_gets_no_error_about_its_query(
    stranger: httpx2.Client,
) -> None:
    reply = stranger.get("/lists", params={"sort": "x"}, headers=STRICT)
    problem(reply, 401, "auth.credentials_missing")


def test_strict_request_without_credentials_gets_no_error_about_its_body(
    stranger: httpx2.Client,
) -> None:
    reply = stranger.post("/lists", json={"colour": "green"}, headers=STRICT)
    problem(reply, 401, "auth.credentials_missing")


@pytest.fixture(scope="module")
def filled_account(stack: Stack) -> Iterator[World]:
    """An owner's account with an item of every kind that a path parameter can name."""
    made = worlds.build(stack)
    made.values |= {"provider": "stockphoto", "as_whom": "strict"}
    yield made
    made.client.close()


def undocumented(schema: Any, value: Any, place: str) -> list[str]:
    """Return the fields of a response that the response's schema doesn't contain."""
    if "$ref" in schema:
        schema = openapi_document()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        return min((undocumented(each, value, place) for each in schema["anyOf"]), key=len)
    if isinstance(value, list) and "items" in schema:
        return [each for item in value for each in undocumented(schema["items"], item, place)]
    if not isinstance(value, dict) or schema.get("additionalProperties"):
        return []
    known = schema.get("properties", {})
    return [f"{place}.{name}" for name in value.keys() - known.keys()] + [
        each
        for name in value.keys() & known.keys()
        for each in undocumented(known[name], value[name], f"{place}.{name}")
    ]


def test_every_operation_accepts_strict_requests_and_returns_only_documented_fields(
    filled_account: World,
) -> None:
    paths = openapi_document()["paths"]
    for operation, call in CALLS.items():
        reply = call.send(filled_account.client, operation, filled_account.values, **STRICT)
        assert b"request.unknown" not in reply.content, operation
        method, path = operation.lower().split(" ")
        answers = paths.get(path, {}).get(method, {}).get("responses", {})
        content = answers.get(str(reply.status_code), {}).get("content", {})
        if reply.is_success and "application/json" in content and reply.content:
            schema = content["application/json"]["schema"]
            assert undocumented(schema, reply.json(), operation) == []


Part = tuple[str, tuple[str | None, str | bytes]]


def _part(name: str, value: str) -> Part:
    return (name, (None, value))


def _is_error(reply: httpx2.Response, name: str) -> None:
    told = problem(reply, 400, "request.option_in_body")
    assert [each["field"] for each in told["errors"]] == [f"body.{name}"]
    assert f"The body can't contain {name}" in told["message"]
    assert "query parameter" in told["message"]


def _import(
    client: httpx2.Client, list_id: int, *parts: Part, headers: dict[str, str] | None = None
) -> httpx2.Response:
    return client.post(f"/lists/{list_id}/imports", files=[*parts], headers=headers)


OPTIONS = {
    "dry_run": "1",
    "on_existing": "update",
    "mapping": "{}",
    "kind": "bounces",
    "create_fields": "1",
    "filename": "a.csv",
}


@pytest.mark.parametrize("headers", [{}, STRICT], ids=["lenient", "strict"])
@pytest.mark.parametrize("name", OPTIONS)
def test_import_with_an_option_in_the_body_is_rejected_and_imports_nothing(
    stack_without_workers: Stack,
    client_without_workers: httpx2.Client,
    headers: dict[str, str],
    name: str,
) -> None:
    before = objects(stack_without_workers)
    list_id = new_list(client_without_workers)["id"]
    file: Part = ("file", ("mail.csv", of_addresses(*addresses(2))))
    option = _part(name, OPTIONS[name])
    for parts in ([option, file], [file, option]):
        _is_error(_import(client_without_workers, list_id, *parts, headers=headers), name)
    assert data(client_without_workers.get("/imports"))["items"] == []
    assert objects(stack_without_workers) <= before


@pytest.mark.parametrize("headers", [{}, STRICT], ids=["lenient", "strict"])
@pytest.mark.parametrize("name", ["encrypted", "renditions"])
def test_image_upload_with_an_option_in_the_body_is_rejected_and_stores_nothing(
    stack_without_workers: Stack,
    client_without_workers: httpx2.Client,
    headers: dict[str, str],
    name: str,
) -> None:
    before = set(stack_without_workers.stored())
    parts: list[Part] = [_part(name, "true"), ("file", ("a.png", encoded("PNG")))]
    headers = {"Prefer": ", ".join(["respond-async", *headers.values()])}
    _is_error(client_without_workers.post("/attachments", files=parts, headers=headers), name)
    assert data(client_without_workers.get("/attachments"))["items"] == []
    assert set(stack_without_workers.stored()) <= before


def test_unknown_multipart_parts_are_rejected_only_in_strict_requests(
    client: httpx2.Client, list_id: int
) -> None:
    image: Part = ("file", ("a.png", encoded("PNG")))
    emails = addresses(2)
    sheet: Part = ("file", ("mail.csv", of_addresses(*emails)))
    note = _part("note", "spring")
    strict = client.post("/attachments", files=[note, image], headers=STRICT)
    assert problem(strict, 400, "request.unknown")["errors"][0]["field"] == "body.note"
    strict = _import(client, list_id, sheet, note, headers=STRICT)
    assert problem(strict, 400, "request.unknown")["errors"][0]["field"] == "body.note"
    assert members(client, list_id) == []
    data(client.post("/attachments", files=[image], headers=STRICT))
    data(client.post("/attachments", files=[note, image]))
    wait = {"Prefer": "wait=30"}
    assert data(_import(client, list_id, sheet, note, headers=wait))["result"]["added"] == 2


@pytest.mark.parametrize("headers", [{}, STRICT], ids=["lenient", "strict"])
def test_bulk_action_with_dry_run_in_the_body_is_rejected_and_not_performed(
    client_without_workers: httpx2.Client, headers: dict[str, str]
) -> None:
    list_id = new_list(client_without_workers)["id"]
    wanted = {"action": "tag", "value": "new", "filter": {"field": "email", "exists": True}}
    body = {**wanted, "dry_run": 1}
    path = f"/lists/{list_id}/members/bulk"
    _is_error(client_without_workers.post(path, json=body, headers=headers), "dry_run")
    assert data(client_without_workers.get("/jobs"))["items"] == []
    data(client_without_workers.post(path, json=wanted, headers=headers), 202)
