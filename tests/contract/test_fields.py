"""Tests of an owner's custom fields: their values, and changes of their keys, types and choices."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from devstack.harness.stack import Stack
from services.subscriptions.fields import MAX_FIELDS
from tests.support.http.replies import data, problem
from tests.support.imports.bulk import active_members, build_csv, import_members_file
from tests.support.lists.segments import new_field, new_segment, put_member
from tests.support.lists.subscribers import fetch_members, new_address

# Maps each field type to valid and to invalid values.
VALUES_BY_TYPE: dict[str, tuple[list[Any], list[Any]]] = {
    "text": (["Paris", "a\nb", "x" * 1000], [1, True, "x" * 1001, "a\0b"]),
    "number": ([3, 2.5, -40, 0], ["3", True, 2**53 + 2]),
    "date": (["1990-02-28"], ["1990-02-30", "28.2.1990", "19900228", 5]),
    "boolean": ([True, False], ["true", 1]),
    "choice": (["Red", "Blue"], ["red", "Green", 1]),
}


@pytest.mark.parametrize("type_", VALUES_BY_TYPE)
def test_custom_field_accepts_only_values_of_its_type(
    client: httpx2.Client, list_id: int, type_: str
) -> None:
    choices = {"choices": ["Red", "Blue"]} if type_ == "choice" else {}
    new_field(client, "thing", type_, **choices)
    valid_values, invalid_values = VALUES_BY_TYPE[type_]
    email = new_address()
    for value in valid_values:
        member = put_member(client, list_id, email, fields={"thing": value})
        assert member["fields"] == {"thing": value}
        assert type(member["fields"]["thing"]) is type(value)
        assert fetch_members(client, list_id, email=email)[0]["fields"] == {"thing": value}
    for value in invalid_values:
        reply = client.put(f"/lists/{list_id}/members/{email}", json={"fields": {"thing": value}})
        error = problem(reply, 422, "field.value")
        assert [each["field"] for each in error["errors"]] == ["body.fields.thing"]
    assert fetch_members(client, list_id, email=email)[0]["fields"] == {"thing": valid_values[-1]}


def test_null_or_blank_text_removes_a_field_value_and_keeps_the_others(
    client: httpx2.Client, list_id: int
) -> None:
    for key in ("one", "two", "three"):
        new_field(client, key)
    email = new_address()
    put_member(client, list_id, email, fields={"one": "1", "two": "2", "three": "3"})
    assert put_member(client, list_id, email, fields={"one": None, "two": ""})["fields"] == {
        "three": "3"
    }
    assert put_member(client, list_id, email)["fields"] == {"three": "3"}
    # White space at the start and at the end of a field's value is removed.
    member = put_member(client, list_id, email, fields={"one": " a b\n", "three": " "})
    assert member["fields"] == {"one": "a b"}


def test_each_invalid_field_value_is_named_and_the_member_stays_unchanged(
    client: httpx2.Client, list_id: int
) -> None:
    new_field(client, "visits", "number")
    email = new_address()
    member_before = put_member(client, list_id, email, fields={"visits": 1})
    body = {"name": "New", "fields": {"visits": "many", "unknown": 1}}
    error = problem(
        client.patch(f"/lists/{list_id}/members/{email}", json=body), 422, "field.value"
    )
    assert [each["field"] for each in error["errors"]] == [
        "body.fields.visits",
        "body.fields.unknown",
    ]
    assert put_member(client, list_id, email) == member_before


def test_custom_field_is_returned_as_created(client: httpx2.Client) -> None:
    body = {
        "key": "colour",
        "label": "Colour",
        "description": "Of the bicycle",
        "type": "choice",
        "choices": ["Red", "Blue"],
        "public": True,
    }
    field = data(client.post("/fields", json=body))
    assert {name: field[name] for name in body} == body
    assert data(client.get("/fields")) == [field]
    default_field = new_field(client, "a")
    default_values = {name: default_field[name] for name in ("description", "choices", "public")}
    assert default_values == {"description": None, "choices": [], "public": False}
    assert [each["key"] for each in data(client.get("/fields"))] == ["colour", "a"]


def test_custom_field_that_breaks_a_rule_is_rejected(client: httpx2.Client) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        *(({"key": key}, "field.key") for key in ("", "City", "1st", "_x", "a-b", "x" * 41, "a\n")),
        *(({"label": label}, "field.label") for label in ("", " ", "x" * 101, "a\nb")),
        ({"choices": ["a"]}, "field.choices"),
        ({"type": "choice"}, "field.choices"),
        ({"type": "choice", "choices": ["a", "a"]}, "field.choices"),
        ({"type": "choice", "choices": ["a", ""]}, "field.choices"),
        ({"type": "choice", "choices": [str(n) for n in range(101)]}, "field.choices"),
        ({"type": "colour"}, "body.invalid"),
    ]
    for invalid_values, code in cases:
        body = {"key": "thing", "label": "Thing", "type": "text", **invalid_values}
        problem(client.post("/fields", json=body), 422, code)
        assert data(client.get("/fields")) == []


def test_custom_field_key_change_takes_effect_without_rewriting_members(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    field_id = new_field(client, "city")["id"]
    email = new_address()
    put_member(client, list_id, email, fields={"city": "Paris"})
    select_rows = "SELECT xmin, ctid, * FROM subscriptions WHERE list_id = %s"
    rows_before = stack.query(select_rows, list_id)
    field = data(client.patch(f"/fields/{field_id}", json={"key": "town", "label": "Town"}))
    assert (field["key"], field["label"], field["type"]) == ("town", "Town", "text")
    assert fetch_members(client, list_id, email=email)[0]["fields"] == {"town": "Paris"}
    assert stack.query(select_rows, list_id) == rows_before
    body_with_old_key = {"fields": {"city": "Rome"}}
    reply = client.patch(f"/lists/{list_id}/members/{email}", json=body_with_old_key)
    problem(reply, 422, "field.value")


def test_retired_custom_field_is_hidden_and_its_key_can_be_reused(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    field_id = new_field(client, "city")["id"]
    email = new_address()
    put_member(client, list_id, email, fields={"city": "Paris"})
    assert data(client.delete(f"/fields/{field_id}")) == 1
    assert data(client.get("/fields")) == []
    assert fetch_members(client, list_id, email=email)[0]["fields"] == {}
    problem(client.delete(f"/fields/{field_id}"), 404, "field.not_found")
    problem(client.patch(f"/fields/{field_id}", json={"label": "x"}), 404, "field.not_found")
    new_field(client, "city", "number")
    assert fetch_members(client, list_id, email=email)[0]["fields"] == {}
    assert put_member(client, list_id, email, fields={"city": 75})["fields"] == {"city": 75}
    # The values of the retired field stay stored until the person is erased.
    [(stored_fields,)] = stack.query("SELECT fields FROM subscriptions WHERE list_id = %s", list_id)
    assert isinstance(stored_fields, dict)
    assert stored_fields[str(field_id)] == "Paris"


def test_members_keep_a_custom_field_choice_that_was_removed_later(
    client: httpx2.Client, list_id: int
) -> None:
    field_id = new_field(client, "colour", "choice", choices=["Red", "Blue"])["id"]
    new_field(client, "size")
    email = new_address()
    put_member(client, list_id, email, fields={"colour": "Red"})
    data(client.patch(f"/fields/{field_id}", json={"choices": ["Blue"]}))
    member = put_member(client, list_id, email, fields={"size": "XL"})
    assert member["fields"] == {"colour": "Red", "size": "XL"}
    reply = client.put(f"/lists/{list_id}/members/{email}", json={"fields": {"colour": "Red"}})
    problem(reply, 422, "field.value")


def test_custom_field_key_is_unique_per_owner(client: httpx2.Client) -> None:
    city_id, town_id = (new_field(client, key)["id"] for key in ("city", "town"))
    body = {"key": "city", "label": "x", "type": "date"}
    problem(client.post("/fields", json=body), 409, "field.key_taken")
    problem(client.patch(f"/fields/{town_id}", json={"key": "city"}), 409, "field.key_taken")
    assert data(client.patch(f"/fields/{city_id}", json={"key": "city"}))["key"] == "city"


def test_concurrent_requests_never_exceed_the_limit_of_custom_fields(
    client: httpx2.Client,
) -> None:
    for number in range(MAX_FIELDS - 1):
        new_field(client, f"field{number}")

    def create_field(number: int) -> int:
        body = {"key": f"last{number}", "label": "x", "type": "text"}
        return client.post("/fields", json=body).status_code

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(create_field, range(4))) == [200, 409, 409, 409]
    fields = data(client.get("/fields"))
    assert len(fields) == MAX_FIELDS
    data(client.delete(f"/fields/{fields[0]['id']}"))
    new_field(client, "another")


def create_text_field(client: httpx2.Client, list_id: int, values: list[Any]) -> str:
    """Create a text field, and one member for each value. Return the URL path of the field."""
    field = new_field(client, "worth", "text")
    for value in values:
        put_member(client, list_id, new_address(), fields={"worth": value})
    return f"/fields/{field['id']}"


def read_values(client: httpx2.Client, list_id: int) -> set[Any]:
    return {each["fields"]["worth"] for each in fetch_members(client, list_id)}


@pytest.mark.parametrize(
    ("values", "type_", "expected_values"),
    [
        (["594,08", "1.000,5"], "number", {594.08, 1000.5}),
        (["20.08.2025", "31/12/2024"], "date", {"2025-08-20", "2024-12-31"}),
        (["ja", "no"], "boolean", {True, False}),
    ],
)
def test_field_type_change_converts_every_stored_value(
    client: httpx2.Client, list_id: int, values: list[str], type_: str, expected_values: set[Any]
) -> None:
    path = create_text_field(client, list_id, values)
    assert data(client.patch(path, json={"type": type_}))["type"] == type_
    assert read_values(client, list_id) == expected_values
    data(client.patch(path, json={"type": "text"}))
    assert all(isinstance(each, str) for each in read_values(client, list_id))


@pytest.mark.parametrize(
    ("values", "type_"), [(["12", "twelve"], "number"), (["03/04/2025"], "date")]
)
def test_field_type_change_that_a_value_does_not_fit_is_rejected(
    client: httpx2.Client, list_id: int, values: list[str], type_: str
) -> None:
    path = create_text_field(client, list_id, values)
    reply = client.patch(path, json={"type": type_, "label": "Other"})
    assert repr(values[-1]) in problem(reply, 409, "field.values_unfit")["detail"]
    assert read_values(client, list_id) == set(values)
    assert [each["label"] for each in data(client.get("/fields"))] == ["Worth"]


def test_field_type_cannot_change_while_a_segment_uses_the_field(
    client: httpx2.Client, list_id: int
) -> None:
    path = create_text_field(client, list_id, ["12"])
    segment_filter = {"not": {"field": "fields.worth", "is": "12"}}
    segment = new_segment(client, list_id, segment_filter, "Twelve")
    error = problem(client.patch(path, json={"type": "number"}), 409, "field.in_use")
    assert error["used_by"] == [{"kind": "segment", "id": segment["id"], "name": "Twelve"}]
    data(client.delete(f"/lists/{list_id}/segments/{segment['id']}"))
    assert data(client.patch(path, json={"type": "number"}))["type"] == "number"


def test_import_undo_converts_old_values_to_the_current_field_type(
    client: httpx2.Client, list_id: int
) -> None:
    path = create_text_field(client, list_id, ["12"])
    [email] = active_members(client, list_id)
    file = build_csv(["Email", "Worth"], [email, "13"])
    result = import_members_file(client, list_id, file, on_existing="update")
    data(client.patch(path, json={"type": "number"}))
    assert read_values(client, list_id) == {13}
    data(client.delete(f"/imports/{result['import_id']}/members", headers={"Prefer": "wait=30"}))
    assert read_values(client, list_id) == {12}
