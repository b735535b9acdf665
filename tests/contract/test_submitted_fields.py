"""Tests of the names and custom fields that people submit when they subscribe."""

import re
from typing import Any

import httpx2
import pytest

from devstack.harness.stack import Stack
from services.accounts import mailed_tokens
from services.accounts.mailed_tokens import Purpose
from tests.support.http.replies import data, problem
from tests.support.lists.segments import new_field, put_member
from tests.support.lists.subscribers import (
    Reader,
    await_mails,
    confirm,
    fetch_members,
    find_member,
    new_address,
    new_list,
    require_member,
)


@pytest.fixture(autouse=True)
def _add_fields(client: httpx2.Client) -> None:
    """Create two public custom fields and a private custom field."""
    new_field(client, "city", public=True)
    new_field(client, "visits", "number", public=True)
    new_field(client, "note")


def subscribe(client: httpx2.Client, list_id: int, email: str, **values: Any) -> None:
    reply = client.post(f"/subscriptions/{list_id}", json={"email": email, **values})
    assert data(reply) == 1


def test_new_member_gets_the_submitted_name_and_fields(
    client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    email = new_address()
    subscribe(stranger, list_id, email, name="Ada", fields={"city": "Paris", "visits": 3})
    subscriber = require_member(client, list_id, email)
    assert (subscriber["name"], subscriber["fields"]) == ("Ada", {"city": "Paris", "visits": 3})


@pytest.mark.parametrize("fields", [{"note": "x"}, {"unknown": "x"}, {"visits": "many"}])
def test_sign_up_rejects_private_or_unknown_fields_and_invalid_values(
    client: httpx2.Client, stranger: httpx2.Client, list_id: int, fields: dict[str, Any]
) -> None:
    email = new_address()
    reply = stranger.post(f"/subscriptions/{list_id}", json={"email": email, "fields": fields})
    error = problem(reply, 422, "field.value")
    [place] = error["errors"]
    assert place["field"] == f"body.fields.{next(iter(fields))}"
    if "visits" not in fields:
        assert place["message"] == "is not a field of this list's owner"
    assert find_member(client, list_id, email) is None


def test_sign_up_by_a_stranger_changes_nothing_of_an_existing_member(
    client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    email = new_address()
    member_before = put_member(client, list_id, email, name="Ada", fields={"city": "Paris"})
    subscribe(stranger, list_id, email, name="Eve", fields={"city": "Rome", "visits": 1})
    assert require_member(client, list_id, email) == member_before


def test_sign_up_values_of_a_known_member_apply_only_after_mailed_confirmation(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    email = new_address()
    former_member = put_member(
        client, list_id, email, name="Ada", fields={"city": "Paris", "note": "kept"}
    )
    data(client.delete(f"/subscriptions/{list_id}/members/{former_member['user_id']}"))
    subscribe(stranger, list_id, email, name="Adele", fields={"city": "Rome", "visits": 2})
    pending_member = require_member(client, list_id, email)
    assert (pending_member["status"], pending_member["name"]) == ("pending", "Ada")
    assert pending_member["fields"] == {"city": "Paris", "note": "kept"}
    confirm(stranger, *await_mails(stack, email))
    confirmed_member = require_member(client, list_id, email)
    assert (confirmed_member["status"], confirmed_member["name"]) == ("active", "Adele")
    assert confirmed_member["fields"] == {"city": "Rome", "visits": 2, "note": "kept"}
    path = f"/lists/{list_id}/members/{former_member['user_id']}/history"
    newest_entry = data(client.get(path))["items"][0]
    assert newest_entry["action"] == "confirmed"
    assert newest_entry["changed"] == ["name", "fields.city", "fields.visits"]
    assert stack.query(
        "SELECT submitted FROM subscriptions WHERE list_id = %s AND user_id = %s",
        list_id,
        former_member["user_id"],
    ) == [(None,)]


def test_confirmation_applies_the_sign_up_values_submitted_before_its_mail(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    """Values that a stranger submits after the confirmation mail was sent have no effect."""
    list_id = new_list(client, confirm_required=True)["id"]
    email = new_address()
    subscribe(stranger, list_id, email, fields={"city": "Paris"})
    # No second confirmation mail is sent within ten minutes, so the person can confirm only the
    # values of the first sign-up.
    subscribe(stranger, list_id, email, fields={"city": "Rome"})
    confirm(stranger, *await_mails(stack, email))
    assert require_member(client, list_id, email)["fields"] == {"city": "Paris"}


def test_sign_up_values_are_merged_across_several_confirmation_mails(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    list_id = new_list(client, confirm_required=True)["id"]
    email = new_address()
    subscribe(stranger, list_id, email, name="Ada", fields={"city": "Paris"})
    await_mails(stack, email)
    stack.query(
        "UPDATE subscriptions SET confirmation_asked_at = now() - interval '1 hour'"
        " WHERE list_id = %s",
        list_id,
    )
    subscribe(stranger, list_id, email, fields={"city": "Oslo"})
    await_mails(stack, email, 2)
    stack.query(
        "UPDATE subscriptions SET submitted = jsonb_set(submitted, '{name}', '\"Eve\"')"
        " WHERE list_id = %s",
        list_id,
    )
    confirm(stranger, await_mails(stack, email, 2)[0])
    subscriber = require_member(client, list_id, email)
    assert (subscriber["name"], subscriber["fields"]) == ("Ada", {"city": "Oslo"})


def test_confirmation_does_not_set_a_field_that_is_no_longer_public(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    email = new_address()
    created_member = put_member(client, list_id, email, fields={"city": "Paris"})
    stack.query(
        "UPDATE subscriptions SET status = 'pending' WHERE list_id = %s AND user_id = %s",
        list_id,
        created_member["user_id"],
    )
    field_ids = {each["key"]: each["id"] for each in data(client.get("/fields"))}
    with stack.resources.unit_of_work() as uow:
        token = mailed_tokens.create_token(
            uow,
            Purpose.CONFIRM_SUBSCRIPTION,
            person_id=created_member["user_id"],
            list_id=list_id,
            submitted={
                "name": None,
                "fields": {str(field_ids["city"]): "Rome", str(field_ids["visits"]): 7},
                "language": None,
            },
        )
    data(client.patch(f"/fields/{field_ids['city']}", json={"public": False}))
    assert stranger.post("/confirm", params={"token": token}).status_code == 303
    confirmed_member = require_member(client, list_id, email)
    assert (confirmed_member["status"], confirmed_member["fields"]) == (
        "active",
        {"city": "Paris", "visits": 7},
    )


def test_logged_in_person_sets_and_changes_their_own_public_fields(
    client: httpx2.Client, reader: Reader, list_id: int
) -> None:
    path = f"/subscriptions/{list_id}/no-challenge"
    assert data(reader.client.post(path, json={"fields": {"city": "Paris"}})) == 1
    subscriber = require_member(client, list_id, reader.email)
    assert (subscriber["name"], subscriber["fields"]) == (reader.name, {"city": "Paris"})
    assert data(reader.client.post(path, json={"fields": {"city": "Rome", "visits": 1}})) == 1
    assert data(reader.client.post(path, json={"fields": {"city": "Rome"}})) == 0
    assert data(reader.client.post(path)) == 0
    subscriber = require_member(client, list_id, reader.email)
    assert subscriber["fields"] == {"city": "Rome", "visits": 1}
    problem(reader.client.post(path, json={"fields": {"note": "x"}}), 422, "field.value")


def test_sign_up_values_follow_a_pending_member_to_another_list(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    email = new_address()
    target_id = new_list(client)["id"]
    created_member = put_member(client, list_id, email, fields={"city": "Paris"})
    member_path = f"/subscriptions/{list_id}/members/{created_member['user_id']}"
    data(client.delete(member_path))
    subscribe(stranger, list_id, email, fields={"city": "Rome"})
    await_mails(stack, email)
    data(client.post(f"{member_path}/transfer", params={"dst_list_id": target_id}))
    confirm(stranger, *await_mails(stack, email))
    assert require_member(client, target_id, email)["fields"] == {"city": "Rome"}


def read_field_inputs(stranger: httpx2.Client, slug: str) -> set[str]:
    page = stranger.get(f"/s/{slug}")
    assert page.status_code == 200
    return set(re.findall(r'name="fields\.([^"]+)"', page.text))


def test_sign_up_page_of_each_list_asks_only_for_the_chosen_public_fields(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    new_field(client, "company", public=True)
    first_list = new_list(client)
    second_list = new_list(client)
    assert (first_list["asked_fields"], first_list["required_fields"]) == (None, [])
    assert read_field_inputs(stranger, first_list["slug"]) == {"city", "company", "visits"}
    changed_list = data(client.patch(f"/lists/{first_list['id']}", json={"asked_fields": ["city"]}))
    assert changed_list["asked_fields"] == ["city"]
    assert read_field_inputs(stranger, first_list["slug"]) == {"city"}
    assert read_field_inputs(stranger, second_list["slug"]) == {"city", "company", "visits"}
    # The setting `asked_fields` affects only the sign-up form. A sign-up through the API may
    # contain any public field.
    body = {"email": new_address(), "fields": {"company": "Acme"}}
    data(stranger.post(f"/subscriptions/{first_list['id']}", json=body))
    data(client.patch(f"/lists/{first_list['id']}", json={"asked_fields": None}))
    assert read_field_inputs(stranger, first_list["slug"]) == {"city", "company", "visits"}


def test_sign_up_without_a_required_field_is_rejected(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    mailing_list = new_list(client, required_fields=["city"])
    path = f"/subscriptions/{mailing_list['id']}"
    email = new_address()
    error = problem(stranger.post(path, json={"email": email}), 422, "field.value")
    assert error["errors"] == [
        {"field": "body.fields.city", "code": "field.required", "message": "is required"}
    ]
    html_headers = {"Accept": "text/html"}
    page = stranger.post(path, data={"email": email, "fields.city": " "}, headers=html_headers)
    assert "Please answer this question." in page.text
    assert fetch_members(client, mailing_list["id"]) == []
    data(stranger.post(path, json={"email": email, "fields": {"city": "Rome"}}))
    assert [each["fields"] for each in fetch_members(client, mailing_list["id"])] == [
        {"city": "Rome"}
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"asked_fields": ["hidden"]},
        {"asked_fields": ["nothing"]},
        {"asked_fields": [], "required_fields": ["city"]},
    ],
)
def test_list_rejects_private_or_unknown_or_unasked_required_fields(
    client: httpx2.Client, list_id: int, changes: dict[str, Any]
) -> None:
    new_field(client, "hidden")
    problem(client.patch(f"/lists/{list_id}", json=changes), 422, "list.fields")
    assert data(client.get(f"/lists/{list_id}"))["asked_fields"] is None
