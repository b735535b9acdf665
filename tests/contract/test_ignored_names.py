"""Tests of the header `Pressroom-Ignored`, which names ignored parameters and fields."""

import json
from typing import Any

import httpx2
import pytest

from devstack.harness.stack import Owner, Stack
from tests.support.credits import credits
from tests.support.http.replies import data, problem
from tests.support.images.pictures import encoded
from tests.support.imports.bulk import build_address_file, build_addresses
from tests.support.lists.subscribers import new_address, new_slug

IGNORED = "pressroom-ignored"


def test_response_names_ignored_parameters_and_fields(client: httpx2.Client, list_id: int) -> None:
    body = {"title": "Tea", "slug": new_slug(), "confirm_requird": False}
    reply = client.post("/lists", params={"limt": 5, "dry": 1}, json=body)
    assert data(reply)["title"] == "Tea"
    assert reply.headers[IGNORED] == "query.limt, query.dry, body.confirm_requird"
    reply = client.get("/lists", params={"limt": 5, "limit": 5})
    assert (data(reply)["pagination"]["limit"], reply.headers[IGNORED]) == (5, "query.limt")
    # An error names them too, because a misspelt name often causes the error.
    reply = client.post("/lists", json={"titel": "Tea", "slug": new_slug()})
    problem(reply, 422, "body.invalid")
    assert reply.headers[IGNORED] == "body.titel"
    condition = {"field": "name", "is": "Ada", "case": 1}
    search_body = {"filter": {"all": [{"not": condition}]}}
    reply = client.post(f"/lists/{list_id}/members/search", json=search_body)
    assert reply.headers[IGNORED] == "body.filter.all[].not.case"
    for known_reply in (
        client.get("/lists", params={"limit": 5}),
        client.post("/lists", json={"title": "Tea", "slug": new_slug()}),
    ):
        data(known_reply)
        assert IGNORED not in known_reply.headers


def test_response_names_ignored_fields_of_charges_and_reads_their_free_form_fields(
    stack: Stack, owner: Owner, client: httpx2.Client
) -> None:
    credits.grant(stack, owner.user_id, "5")
    body = {"amount_credit": 1, "source_id": "post", "meta": {"any": {"thing": 1}}}
    reply = client.post(credits.CONSUME, json={**body, "source": "post"})
    data(reply)
    assert reply.headers[IGNORED] == "body.source"
    assert IGNORED not in client.post(credits.CONSUME, json=body).headers


def test_response_names_an_ignored_field_once_for_all_items(
    client: httpx2.Client, list_id: int
) -> None:
    path = f"/auxilia/subscriptions/{list_id}/members/add"
    people = [{"email": each, "age": 7} for each in build_addresses(150)]
    people[1]["tag"] = 1
    reply = client.post(path, json={"members": people, "source": "shop"})
    assert data(reply) == 150
    assert reply.headers[IGNORED] == "body.members[].age, body.members[].tag, body.source"


def test_response_names_ignored_parts_of_forms(client: httpx2.Client, list_id: int) -> None:
    note = ("note", (None, "spring"))
    image = ("file", ("a.png", encoded("PNG")))
    reply = client.post("/attachments", files=[note, image])
    data(reply)
    assert reply.headers[IGNORED] == "body.note"
    sheet = ("file", ("mail.csv", build_address_file(new_address())))
    notes = [(f"n{number}", (None, "x")) for number in range(30)]
    reply = client.post(f"/lists/{list_id}/imports", files=[*notes, sheet])
    data(reply, 202)
    assert reply.headers[IGNORED].split(", ") == [f"body.n{number}" for number in range(20)]


@pytest.mark.parametrize(
    ("name", "shown_name"),
    [
        ("a\r\nSet-Cookie: x=1", "a%0D%0ASet-Cookie%3A%20x%3D1"),
        ("a\0b", "a%00b"),
        ("straße, größe", "stra%C3%9Fe%2C%20gr%C3%B6%C3%9Fe"),
        ("%41", "%2541"),
        ("n" * 1_000_000, "n" * 95),
        ("\N{GRINNING FACE}" * 200, "%F0%9F%98%80" * 95),
    ],
    ids=["line end", "NUL", "comma", "percent", "long", "long beyond ASCII"],
)
def test_special_characters_in_ignored_names_are_percent_encoded(
    client: httpx2.Client, name: str, shown_name: str
) -> None:
    reply = client.post("/lists", json={"title": "Tea", "slug": new_slug(), name: 1})
    data(reply)
    assert reply.headers[IGNORED] == f"body.{shown_name}"


def test_lone_surrogate_in_an_ignored_name_is_replaced(client: httpx2.Client) -> None:
    body = r'{"amount_credit": 1, "source_id": "post", "\ud800": 2}'
    headers = {"Content-Type": "application/json"}
    reply = client.post(credits.CONSUME, content=body, headers=headers)
    assert reply.headers[IGNORED] == "body.%3F"


def test_header_with_ignored_names_has_a_limited_size(client: httpx2.Client) -> None:
    query = {f"n{number}": 1 for number in range(5_000)}
    body: dict[str, Any] = {f"{number}{'ü' * 80}": 1 for number in range(1_000)}
    content = json.dumps({"title": "Tea", "slug": new_slug(), **body}).encode()
    headers = {"Content-Type": "application/json"}
    reply = client.post("/lists", params=query, content=content, headers=headers)
    data(reply)
    assert reply.headers[IGNORED].split(", ") == [f"query.n{number}" for number in range(20)]
    reply = client.post("/lists", json={**body, "title": "Tea", "slug": new_slug()})
    data(reply)
    assert 400 < len(reply.headers[IGNORED]) <= 1_500


def test_strict_and_unauthenticated_requests_name_no_ignored_names(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    strict = {"Prefer": "handling=strict"}
    reply = client.get("/lists", params={"limt": 5}, headers=strict)
    problem(reply, 400, "request.unknown")
    assert IGNORED not in reply.headers
    assert IGNORED not in stranger.get("/lists", params={"limt": 5}).headers
