"""Tests of the origin of a sign-up, in the consent entry and in the member's record."""

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from devstack.harness.stack import Stack
from services.subscriptions.sign_up_origins import ORIGIN_NAMES, UTM_NAMES
from tests.support.http.pages import BROWSER_HEADERS, follow_redirect, read_text
from tests.support.http.replies import data
from tests.support.imports.bulk import (
    build_addresses,
    build_csv,
    export_rows,
    import_members_file,
    nonzero_counts,
)
from tests.support.lists.people_on_lists import Subscriber
from tests.support.lists.preferences import open_preferences
from tests.support.lists.segments import new_field, put_member
from tests.support.lists.subscribers import (
    await_mails,
    confirm,
    new_address,
    new_list,
    require_member,
)
from tests.support.people.erasure import erase

UTM_COLUMNS = ("utm_source", "utm_medium", "utm_campaign")
SENT_ORIGIN = {
    "utm_source": "Spring-Fair",
    "utm_medium": "Poster",
    "utm_campaign": "Tea 2026",
    "utm_term": "green tea",
    "utm_content": "red",
    "referrer": "News.example.com",
    "landing": "/Tea/Join",
}
STORED_ORIGIN = {
    **{name: value.lower() for name, value in SENT_ORIGIN.items()},
    "landing": "/Tea/Join",
}


@pytest.fixture
def browser_client(stack: Stack) -> Iterator[httpx2.Client]:
    """Yield a client that isn't logged in and keeps cookies."""
    with stack.client() as client:
        yield client


def build_origin(**values: str) -> dict[str, str | None]:
    return {**dict.fromkeys(ORIGIN_NAMES), **values}


def subscribe(
    stranger: httpx2.Client,
    list_id: int,
    email: str,
    **values: Any,
) -> None:
    body = {"email": email, **values}
    assert data(stranger.post(f"/subscriptions/{list_id}", json=body)) == 1


def read_origins(client: httpx2.Client, member: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the kind and the origin of each consent entry of a member, newest first."""
    path = f"/lists/{member['list_id']}/members/{member['user_id']}/consent"
    return [(each["how"], each["origin"]) for each in data(client.get(path))["items"]]


def read_hidden_inputs(text: str) -> dict[str, str]:
    pattern = r'<input type="hidden" name="([^"]+)" value="([^"]*)">'
    return dict(re.findall(pattern, text))


def test_json_sign_up_stores_the_origin_with_its_consent_entry(
    client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    email = new_address()
    subscribe(stranger, list_id, email, **SENT_ORIGIN)
    member = require_member(client, list_id, email)
    assert member["origin"] == STORED_ORIGIN
    assert read_origins(client, member) == [("form", STORED_ORIGIN)]
    path = f"/lists/{list_id}/members/{member['user_id']}"
    assert data(client.get(path))["origin"] == STORED_ORIGIN


def test_invalid_values_of_an_origin_never_reject_a_sign_up(
    client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    email = new_address()
    invalid_values: list[Any] = ["ada@example.com", 5, {"a": 1}, ["x"], "\0", "x" * 50_000, None]
    values = dict(zip(ORIGIN_NAMES, invalid_values, strict=True))
    subscribe(stranger, list_id, email, **values)
    member = require_member(client, list_id, email)
    assert member["origin"] is None
    assert read_origins(client, member) == [("form", None)]


def test_later_sign_ups_never_change_the_origin_of_a_member(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    email = new_address()
    subscribe(stranger, list_id, email, utm_source="first")
    member = require_member(client, list_id, email)
    subscribe(stranger, list_id, email, utm_source="second")
    data(client.delete(f"/subscriptions/{list_id}/members/{member['user_id']}"))
    subscribe(stranger, list_id, email, utm_source="third")
    assert read_origins(client, member)[0] == ("form", None)
    confirm(stranger, *await_mails(stack, email))
    assert require_member(client, list_id, email)["origin"] == build_origin(utm_source="first")
    assert read_origins(client, member) == [
        ("confirmation", build_origin(utm_source="third")),
        ("form", None),
        ("form", build_origin(utm_source="first")),
    ]


def test_origin_of_a_stranger_takes_effect_only_with_the_confirmation(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    """The owner has added and removed this member, who then signs up for the first time."""
    email = new_address()
    member = put_member(client, list_id, email)
    data(client.delete(f"/subscriptions/{list_id}/members/{member['user_id']}"))
    subscribe(stranger, list_id, email, utm_source="fair")
    pending_member = require_member(client, list_id, email)
    assert (pending_member["status"], pending_member["origin"]) == ("pending", None)
    confirm(stranger, *await_mails(stack, email))
    confirmed_member = require_member(client, list_id, email)
    assert (confirmed_member["status"], confirmed_member["origin"]) == (
        "active",
        build_origin(utm_source="fair"),
    )
    # Wait for the welcome mail before the member is removed, because Pressroom sends no mail to
    # removed members.
    await_mails(stack, email, 2)
    data(client.delete(f"/subscriptions/{list_id}/members/{member['user_id']}"))
    stack.query(
        "UPDATE subscriptions SET confirmation_asked_at = NULL, origin = NULL WHERE id = %s",
        confirmed_member["id"],
    )
    subscribe(stranger, list_id, email, utm_source="later")
    confirmation_mail = next(
        each for each in await_mails(stack, email, 3) if "/confirm?token=" in each["text"]
    )
    confirm(stranger, confirmation_mail)
    # If the first sign-up had no origin, a later sign-up doesn't set the member's origin.
    assert require_member(client, list_id, email)["origin"] is None


def test_sign_up_page_copies_campaign_and_referring_host_into_its_form(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    mailing_list = new_list(client)
    email = new_address()
    path = f"/s/{mailing_list['slug']}"
    query = {"utm_source": 'Fair"><b>', "utm_medium": "Poster", "utm_term": "a@b.example"}
    page = stranger.get(
        path, params=query, headers={"Referer": "https://news.example.com/item?id=1"}
    )
    assert "set-cookie" not in page.headers
    assert "<script" not in page.text
    assert read_hidden_inputs(page.text) == {
        "utm_source": "fair&#34;&gt;&lt;b&gt;",
        "utm_medium": "poster",
        "referrer": "news.example.com",
    }
    fields = {**read_hidden_inputs(page.text), "utm_source": "fair", "email": email}
    # After an invalid e-mail address, the sign-up form is shown again. The form still contains the
    # origin of the sign-up.
    page_after_error = stranger.post(
        path, data={**fields, "email": "wrong"}, headers=BROWSER_HEADERS
    )
    assert read_hidden_inputs(page_after_error.text) == {
        name: fields[name] for name in fields if name != "email"
    }
    assert stranger.post(path, data=fields, headers=BROWSER_HEADERS).status_code == 303
    assert require_member(client, mailing_list["id"], email)["origin"] == build_origin(
        utm_source="fair", utm_medium="poster", referrer="news.example.com"
    )


@pytest.mark.parametrize("name", ["", "x" * 190])
def test_corrected_sign_up_keeps_its_answers_and_its_origin_unless_the_origin_is_long(
    client: httpx2.Client, browser_client: httpx2.Client, name: str
) -> None:
    mailing_list = new_list(client, confirm_required=True)
    email = new_address()
    path = f"/s/{mailing_list['slug']}"
    long_origin = dict.fromkeys(UTM_NAMES, "\u8336" * 100) if name else {}
    fields = {"email": email, "name": name, "utm_source": "fair", **long_origin}
    reply = browser_client.post(path, data=fields, headers=BROWSER_HEADERS)
    follow_redirect(browser_client, reply)
    form = browser_client.get(path, params={"correct": "yes"})
    assert f'value="{email}"' in form.text
    if name:
        assert f'value="{name}"' in form.text
    else:
        assert read_hidden_inputs(form.text) == {"utm_source": "fair"}


def test_embedded_form_without_script_uses_the_referring_page(
    client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    email = new_address()
    headers = {**BROWSER_HEADERS, "Referer": "https://www.owner.example/tea/join?ad=1"}
    form = {"email": email, "utm_source": "Fair", "referrer": "", "landing": ""}
    reply = stranger.post(f"/subscriptions/{list_id}", data=form, headers=headers)
    assert reply.status_code == 303
    assert require_member(client, list_id, email)["origin"] == build_origin(
        utm_source="fair", referrer="www.owner.example", landing="/tea/join"
    )


def test_import_records_origins_as_claims_of_the_file(
    client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    known_email, new_email, email_without_origin = build_addresses(3)
    subscribe(stranger, list_id, known_email, utm_source="fair")
    header = [
        "email",
        "First Name",
        "Last Name",
        "status",
        "tier",
        "created_at",
        "Where",
        *UTM_COLUMNS,
    ]
    date_and_referrer = ["2024-03-24 10:23:10 UTC", "News.example.com"]
    rows = [
        [known_email, "", "", "active", "free", *date_and_referrer, "Twitter", "Social", "Launch"],
        [new_email, "", "", "active", "free", *date_and_referrer, "Twitter", "Social", "Launch"],
        [email_without_origin, "", "", "active", "free", "", "", "", "", "ada@example.com"],
    ]
    mapping = json.dumps({"Where": "origin.referrer"})
    result = import_members_file(client, list_id, build_csv(header, *rows), mapping=mapping)
    # The person who was already a member had no join date, so the import adds the date from the
    # file.
    assert nonzero_counts(result) == {"received": 3, "added": 2, "already": 1, "updated": 1}
    claimed_origin = build_origin(
        utm_source="twitter",
        utm_medium="social",
        utm_campaign="launch",
        referrer="news.example.com",
    )
    member = require_member(client, list_id, new_email)
    assert member["origin"] == claimed_origin
    path = f"/lists/{list_id}/members/{member['user_id']}/consent"
    entries = data(client.get(path))["items"]
    assert [(each["claimed_by"], each["origin"]) for each in entries] == [
        ("beehiiv", claimed_origin),
        ("owner", None),
    ]
    assert require_member(client, list_id, email_without_origin)["origin"] is None
    # A member who signed up before the import keeps the origin of the sign-up, although the file
    # contains another origin.
    known_subscriber = require_member(client, list_id, known_email)
    assert known_subscriber["origin"] == build_origin(utm_source="fair")
    assert ("import", claimed_origin) in read_origins(client, known_subscriber)


def test_origin_column_still_fills_a_field_of_the_same_name(
    client: httpx2.Client, list_id: int
) -> None:
    """Earlier releases imported the column ``utm_source`` into the field of the same name."""
    new_field(client, "utm_source")
    [email] = build_addresses(1)
    import_members_file(client, list_id, build_csv(["email", "utm_source"], [email, "Twitter"]))
    member = require_member(client, list_id, email)
    assert member["fields"]["utm_source"] == "Twitter"
    assert member["origin"] == build_origin(utm_source="twitter")


def test_export_of_members_contains_the_origin_before_the_reason_for_leaving(
    client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    email = new_address()
    subscribe(stranger, list_id, email, utm_source="=fair", landing="/tea")
    [row] = export_rows(client, list_id)
    names = (*ORIGIN_NAMES, "left_reason", "stated_reason")
    assert tuple(row)[-len(names) :] == names
    assert [row[name] for name in ORIGIN_NAMES] == ["'=fair", "", "", "", "", "", "/tea"]


def test_person_sees_and_downloads_the_origin_of_their_sign_up(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    email = new_address()
    subscribe(stranger, list_id, email, utm_source="fair", landing="/tea")
    user_id = require_member(client, list_id, email)["user_id"]
    with stack.client() as browser:
        open_preferences(browser, Subscriber(stack, list_id, user_id, email))
        page = read_text(browser.get("/preferences/data"))
        [list_data] = browser.get("/preferences/data.json").json()["lists"]
    assert page.count("Page: /tea, Source: fair") == 2
    stored_origin = {"utm_source": "fair", "landing": "/tea"}
    assert (list_data["origin"], list_data["consent"][0]["origin"]) == (
        stored_origin,
        stored_origin,
    )


def test_origin_follows_a_transferred_member(
    client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    email = new_address()
    target_id = new_list(client)["id"]
    subscribe(stranger, list_id, email, utm_source="fair")
    user_id = require_member(client, list_id, email)["user_id"]
    path = f"/subscriptions/{list_id}/members/{user_id}/transfer"
    assert data(client.post(path, params={"dst_list_id": target_id})) == 1
    transferred_member = require_member(client, target_id, email)
    assert transferred_member["origin"] == build_origin(utm_source="fair")
    assert ("form", build_origin(utm_source="fair")) in read_origins(client, transferred_member)


def test_transfer_to_a_former_record_without_a_sign_up_brings_the_origin(
    client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    email = new_address()
    target_id = new_list(client)["id"]
    former_member = put_member(client, target_id, email)
    data(client.delete(f"/subscriptions/{target_id}/members/{former_member['user_id']}"))
    subscribe(stranger, list_id, email, utm_source="fair")
    path = f"/subscriptions/{list_id}/members/{former_member['user_id']}/transfer"
    assert data(client.post(path, params={"dst_list_id": target_id})) == 1
    assert require_member(client, target_id, email)["origin"] == build_origin(utm_source="fair")
    rows = data(client.get(f"/lists/{target_id}/stats", params={"by": "utm_source"}))["rows"]
    assert [(row["key"], row["joined"]) for row in rows] == [("fair", 1), ("", 1)]


def test_origin_of_a_transferred_request_takes_effect_with_the_confirmation(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    email = new_address()
    target_id = new_list(client)["id"]
    user_id = put_member(client, list_id, email)["user_id"]
    data(client.delete(f"/subscriptions/{list_id}/members/{user_id}"))
    subscribe(stranger, list_id, email, utm_source="fair")
    messages = await_mails(stack, email)
    path = f"/subscriptions/{list_id}/members/{user_id}/transfer"
    assert data(client.post(path, params={"dst_list_id": target_id})) == 1
    assert require_member(client, target_id, email)["origin"] is None
    confirm(stranger, *messages)
    assert require_member(client, target_id, email)["origin"] == build_origin(utm_source="fair")


def test_erasure_leaves_no_origin_of_the_person(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    email = new_address()
    subscribe(stranger, list_id, email, utm_source="fair")
    user_id = require_member(client, list_id, email)["user_id"]
    erase(stack.resources, email)
    assert stack.query("SELECT origin FROM subscriptions WHERE user_id = %s", user_id) == [(None,)]
    assert stack.query("SELECT origin FROM consent_entries WHERE user_id = %s", user_id) == []


def test_release_1_0_0_erases_the_origin_together_with_the_address(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    """When release 1.0.0 erases a member's address, a database trigger erases the origin."""
    email = new_address()
    subscribe(stranger, list_id, email, utm_source="fair")
    member = require_member(client, list_id, email)
    stack.query("UPDATE subscriptions SET email = NULL WHERE id = %s", member["id"])
    assert stack.query("SELECT origin FROM subscriptions WHERE id = %s", member["id"]) == [(None,)]
