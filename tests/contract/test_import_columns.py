"""What the columns of a file become, what its owner is shown of them, and the mail at the end."""

import json
from typing import Any

import httpx
import pytest

from tests.contract.bulk import (
    addresses,
    errors,
    everybody,
    finished,
    imported,
    of_addresses,
    sheet,
    upload,
)
from tests.contract.replies import data, problem
from tests.contract.subscribers import new_address
from tests.stack import Owner, Stack, eventually

HEADER = ["Email", "Name", "Company", "Tags", "created_at", "Notes"]
JOINED = "2019-05-06T07:08:09.000000Z"


@pytest.fixture
def company(client: httpx.Client) -> dict[str, Any]:
    body = {"key": "company", "label": "Company", "type": "text"}
    made: dict[str, Any] = data(client.post("/fields", json=body))
    return made


@pytest.mark.usefixtures("company")
def test_columns_become_fields_tags_and_the_day_of_joining_or_are_named(
    client: httpx.Client, list_id: int
) -> None:
    ada, ben = addresses(2)
    rows = (
        [ada, "Ada", "Acme", "vip,news", "2019-05-06 07:08:09", "hi"],
        [ben, "", "", "", "", ""],
    )
    result = imported(client, list_id, sheet(HEADER, *rows))
    assert result["columns"] == [
        {"name": "Email", "becomes": "email", "examples": [ada, ben]},
        {"name": "Name", "becomes": "name", "examples": ["Ada"]},
        {"name": "Company", "becomes": "fields.company", "examples": ["Acme"]},
        {"name": "Tags", "becomes": "tags", "examples": ["vip,news"]},
        {"name": "created_at", "becomes": "joined_at", "examples": ["2019-05-06 07:08:09"]},
        {"name": "Notes", "becomes": "ignored", "examples": ["hi"]},
    ]
    assert result["ignored_columns"] == ["Notes"]
    assert "preview" not in result
    found = everybody(client, list_id)
    assert found[ada]["fields"] == {"company": "Acme"}
    assert found[ada]["tags"] == ["news", "vip"]
    assert found[ada]["joined_at"] == JOINED
    assert (found[ben]["fields"], found[ben]["tags"]) == ({}, [])
    record = data(client.get(f"/imports/{result['import_id']}"))
    assert record["ignored_columns"] == ["Notes"]
    assert record["columns"][2]["becomes"] == "fields.company"


def test_a_dry_run_shows_the_first_rows_as_they_would_be(
    client: httpx.Client, list_id: int
) -> None:
    people = addresses(6)
    rows = [[each, "Ada", "Acme", "vip", "2019-05-06 07:08:09", "7"] for each in people]
    result = imported(client, list_id, sheet(HEADER, *rows), dry_run="1", create_fields="1")
    assert [each["email"] for each in result["preview"]] == people[:5]
    assert result["preview"][0] == {
        "line": 2,
        "email": people[0],
        "name": "Ada",
        "type": "free",
        "paid_expiry": None,
        "status": "active",
        "joined_at": JOINED,
        "tags": ["vip"],
        "consent": {},
        "fields": {"company": "Acme", "notes": 7},
        "left_out": [],
    }
    assert result["columns"][5] == {
        "name": "Notes",
        "becomes": "fields.notes",
        "creates": "number",
        "examples": ["7"],
    }
    assert result["ignored_columns"] == []
    assert data(client.get("/fields")) == []
    assert everybody(client, list_id) == {}


def test_unknown_columns_become_fields_on_request(client: httpx.Client, list_id: int) -> None:
    ada = new_address()
    file = sheet(["Email", "Shoe size", "Paid"], [ada, "42", ""])
    imported(client, list_id, file, create_fields="true", mapping='{"Paid": "fields.paid_once"}')
    made = {each["key"]: each["type"] for each in data(client.get("/fields"))}
    assert made == {"shoe_size": "number", "paid_once": "text"}
    assert everybody(client, list_id)[ada]["fields"] == {"shoe_size": 42}


@pytest.mark.usefixtures("company")
def test_a_mapping_assigns_any_column(client: httpx.Client, list_id: int) -> None:
    ada = new_address()
    mapping = {"A": "fields.company", "B": "tags", "C": "consent.at", "D": "joined_at"}
    file = sheet(["Email", *mapping], [ada, "Acme", "vip", "2020-01-02", "2019-05-06 07:08:09"])
    imported(client, list_id, file, mapping=json.dumps(mapping))
    found = everybody(client, list_id)[ada]
    assert (found["fields"], found["tags"]) == ({"company": "Acme"}, ["vip"])
    assert found["joined_at"] == JOINED
    shown = data(client.get(f"/lists/{list_id}/members/{found['user_id']}/consent"))["items"]
    [claim] = [each for each in shown if each["claimed_by"] == "file"]
    assert claim["at"] == "2020-01-02T00:00:00.000000Z"


@pytest.mark.parametrize("role", ["fields.unknown", "fields.Not a key", "fields."])
def test_a_mapping_to_a_field_that_is_not_there_fails_the_import(
    client: httpx.Client, list_id: int, role: str
) -> None:
    file = of_addresses(new_address())
    reply = upload(client, list_id, file, mapping=json.dumps({"Email": role}))
    problem(reply, 422, "import.mapping_field")


@pytest.mark.usefixtures("company")
def test_a_value_that_does_not_fit_is_explained_and_the_row_added(
    client: httpx.Client, list_id: int
) -> None:
    body = {"key": "age", "label": "Age", "type": "number"}
    data(client.post("/fields", json=body))
    ada = new_address()
    result = imported(client, list_id, sheet(["Email", "Age"], [ada, "old"]))
    assert (result["added"], result["left_out"]) == (1, 1)
    [line] = errors(result["errors_url"])
    assert (line["Email"], line["code"]) == (ada, "row.left_out")
    assert "Age: must be a number" in line["reason"]


def test_the_owner_is_mailed_the_counts_unless_they_want_no_mails(
    client: httpx.Client, list_id: int, stack: Stack, owner: Owner
) -> None:
    assert data(client.get("/users/me"))["import_mails"] is True
    people = addresses(3)
    data(client.patch("/deny-list", json={"add_addresses": people[:1]}))
    imported(client, list_id, of_addresses(*people), name="people.csv")
    imported(client, list_id, of_addresses(new_address()), dry_run="1")
    eventually(lambda: stack.mails(owner.email), what="the mail")
    [mail] = stack.mails(owner.email)
    assert mail["subject"] == "Your import has ended"
    text = " ".join(mail["text"].split())
    assert "Of 3 rows 2 were added" in text
    assert "1 are kept out by a deny list." in text
    assert data(client.patch("/users/me", json={"import_mails": False}))["import_mails"] is False
    job = data(upload(client, list_id, of_addresses(new_address()), prefer=None), 202)
    assert finished(client, job["id"])["status"] == "succeeded"
    asked = stack.query(
        "SELECT count(*) FROM account_mails WHERE kind = 'import_ended' AND user_id = %s",
        owner.user_id,
    )
    assert asked == [(1,)]
