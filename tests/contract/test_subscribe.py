"""Tests of the API calls with which people subscribe to lists and read their subscriptions."""

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from devstack.harness.stack import Stack
from tests.support.http.replies import data, problem
from tests.support.lists.subscribers import (
    Reader,
    await_mails,
    confirm,
    fetch_members,
    new_address,
    new_list,
    read_subscriber_count,
    require_member,
    subscribe,
    trace_for,
)


def test_new_address_is_subscribed_immediately_on_a_list_without_confirmation(
    client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    email = new_address()
    assert data(subscribe(stranger, list_id, email)) == 1
    subscriber = require_member(client, list_id, email)
    expected = {
        "list_id": list_id,
        "status": "active",
        "type": "free",
        "paid_expiry": None,
        "email_enabled": True,
        "name": None,
        "email": email,
        "source": "form",
        "user": {"id": subscriber["user_id"], "name": None},
        "list": None,
    }
    assert {name: subscriber[name] for name in expected} == expected
    assert subscriber["user_id"] < 2**53


def test_different_spellings_of_an_address_are_one_member(
    client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    local_part = new_address().split("@")[0]
    for spelling in (
        f"RÉADER.{local_part}@BÜCHER.example.com",
        f"re\u0301ader.{local_part}@bücher.example.com",
        f"réader.{local_part.upper()}@xn--bcher-kva.EXAMPLE.com",
    ):
        assert data(subscribe(stranger, list_id, spelling)) == 1
        [subscriber] = fetch_members(client, list_id)
        assert subscriber["email"] == f"réader.{local_part}@bücher.example.com"
        assert fetch_members(client, list_id, email=spelling) == [subscriber]


def test_sign_up_rejects_malformed_addresses_and_names_the_field(
    client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    path = f"/subscriptions/{list_id}"
    for email in ["", "reader@example", "a b@example.com", "reader@example.com\0", None, 5]:
        body = problem(stranger.post(path, json={"email": email}), 422, "body.invalid")
        assert [each["field"] for each in body["errors"]] == ["body.email"]
    problem(stranger.post(path), 422, "body.invalid")
    assert fetch_members(client, list_id) == []


@pytest.mark.parametrize(
    ("provider", "token"), [("", ""), ("unheard-of", "fail-1"), ("turnstile", "error-1")]
)
def test_challenge_fields_are_ignored_on_lists_without_challenge(
    client: httpx2.Client, stranger: httpx2.Client, list_id: int, provider: str, token: str
) -> None:
    email = new_address()
    fields = {"challenge-provider": provider, "challenge-token": token, "challenge-action": ""}
    assert data(subscribe(stranger, list_id, email, **fields)) == 1
    assert require_member(client, list_id, email)["status"] == "active"


def test_public_sign_up_ignores_credentials(
    client: httpx2.Client, other_owner: httpx2.Client, stack: Stack, list_id: int
) -> None:
    with stack.client("prk_nonsense") as client_with_wrong_key:
        for caller in (client, other_owner, client_with_wrong_key):
            email = new_address()
            assert data(subscribe(caller, list_id, email)) == 1
            assert require_member(client, list_id, email)["source"] == "form"


def test_public_sign_up_keeps_mail_off_that_the_person_switched_off(
    client: httpx2.Client, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id).wants_mail(list_id, enabled=False)
    assert data(subscribe(stranger, list_id, reader.email)) == 1
    assert reader.read_status(list_id) == ("active", False)
    assert data(client.delete(f"/subscriptions/{list_id}/members/{reader.user_id}")) == 1
    assert data(subscribe(stranger, list_id, reader.email)) == 1
    assert reader.read_status(list_id) == ("pending", False)


def test_public_sign_up_of_a_removed_member_requires_confirmation(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    email = new_address()
    subscribe(stranger, list_id, email)
    member_before = require_member(client, list_id, email)
    path = f"/subscriptions/{list_id}/members/{member_before['user_id']}"
    assert data(client.put(f"{path}/email", json={"enabled": False})) == 1
    assert data(client.delete(path)) == 1
    # Even after a repeated sign-up, the member stays pending until the person confirms.
    for _ in range(2):
        assert data(subscribe(stranger, list_id, email)) == 1
        member_after = require_member(client, list_id, email)
        assert (member_after["status"], member_after["id"]) == ("pending", member_before["id"])
    assert read_subscriber_count(client, list_id) == 0
    assert confirm(stranger, *await_mails(stack, email)).status_code == 303
    member_after = require_member(client, list_id, email)
    assert (member_after["status"], member_after["email_enabled"], member_after["id"]) == (
        "active",
        True,
        member_before["id"],
    )


def test_account_name_is_shown_only_to_lists_joined_while_logged_in(
    client: httpx2.Client, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    subscribe(stranger, list_id, reader.email)
    user_id = reader.user_id
    subscriptions_path = f"/subscriptions/{list_id}/members/{user_id}/subs"
    for reply in (
        client.get(f"/lists/{list_id}/subscriptions"),
        client.get(subscriptions_path),
        client.patch(f"/lists/{list_id}/members/{user_id}", json={"type": "gold"}),
    ):
        assert reader.name not in reply.text
    [subscription] = data(client.get(subscriptions_path))
    assert (subscription["user"], subscription["name"]) == ({"id": user_id, "name": None}, None)
    joined_list_id = new_list(client)["id"]
    reader.joins(joined_list_id)
    joined_member = require_member(client, joined_list_id, reader.email)
    assert (joined_member["user"]["name"], joined_member["name"]) == (reader.name, reader.name)
    # The owner sees the name in the reader's account only on the list that the reader joined while
    # logged in.
    assert require_member(client, list_id, reader.email)["user"]["name"] is None
    # The owner can't learn the name in the reader's account by transferring the member to another
    # list.
    target_id = new_list(client)["id"]
    transfer_path = f"/subscriptions/{list_id}/members/{user_id}/transfer"
    assert data(client.post(transfer_path, params={"dst_list_id": target_id})) == 1
    assert reader.name not in client.get(f"/lists/{target_id}/subscriptions").text


UINT64_MAX = 2**64 - 1


def look_up_subscription(caller: httpx2.Client, **query: object) -> httpx2.Response:
    return caller.get("/subscriptions/opponent", params=dict(query))  # type: ignore[arg-type]


def test_person_reads_their_own_subscription_by_list_id_or_slug(
    make_reader: Callable[[], Reader], mailing_list: dict[str, Any]
) -> None:
    first_reader = make_reader().joins(mailing_list["id"])
    second_reader = make_reader().joins(mailing_list["id"])
    for id_or_slug in (mailing_list["id"], mailing_list["slug"]):
        subscription = data(first_reader.client.get(f"/subscriptions/{id_or_slug}/rel"))
        assert (subscription["user_id"], subscription["email"]) == (
            first_reader.user_id,
            first_reader.email,
        )
        assert subscription["user"] is None
        assert subscription["list"] == {**mailing_list, "subscriber_count": 2}
        assert (
            second_reader.email
            not in first_reader.client.get(f"/subscriptions/{id_or_slug}/rel").text
        )


def test_subscription_of_a_person_who_is_not_on_the_list_returns_404(
    client: httpx2.Client, reader: Reader, mailing_list: dict[str, Any]
) -> None:
    for caller in (client, reader.client):
        for id_or_slug in (mailing_list["id"], mailing_list["slug"]):
            reply = caller.get(f"/subscriptions/{id_or_slug}/rel")
            problem(reply, 404, "subscription.not_found")
    for id_or_slug in (0, UINT64_MAX, "no-such-list"):
        problem(reader.client.get(f"/subscriptions/{id_or_slug}/rel"), 404, "list.not_found")
    for id_or_slug in (UINT64_MAX + 1, "-1", "No_Slug"):
        problem(reader.client.get(f"/subscriptions/{id_or_slug}/rel"), 400, "list.name_invalid")


def test_person_lists_their_subscriptions_newest_first_without_ended_ones(
    client: httpx2.Client,
    other_owner: httpx2.Client,
    stranger: httpx2.Client,
    make_reader: Callable[[], Reader],
) -> None:
    reader = make_reader()
    other_reader = make_reader()
    left_id, removed_id, archived_id, kept_id = (new_list(client)["id"] for _ in range(4))
    foreign_id = new_list(other_owner)["id"]
    pending_id = new_list(client, confirm_required=True)["id"]
    for joined_id in (left_id, removed_id, archived_id, kept_id, foreign_id):
        reader.joins(joined_id)
    subscribe(stranger, pending_id, reader.email)
    other_reader.joins(kept_id)
    reader.leaves(left_id)
    assert data(client.delete(f"/subscriptions/{removed_id}/members/{reader.user_id}")) == 1
    assert data(client.delete(f"/lists/{archived_id}")) == 1
    subscriptions = data(reader.client.get("/subscriptions"))
    assert [(each["list_id"], each["status"]) for each in subscriptions] == [
        (pending_id, "pending"),
        (foreign_id, "active"),
        (kept_id, "active"),
    ]
    for subscription in subscriptions:
        assert (subscription["user_id"], subscription["user"]) == (reader.user_id, None)
        assert subscription["list"] == data(client.get(f"/lists/{subscription['list_id']}"))
    assert [each["list_id"] for each in data(other_reader.client.get("/subscriptions"))] == [
        kept_id
    ]
    assert data(client.get("/subscriptions")) == []


def test_trace_id_shows_the_list_and_a_masked_subscription(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    trace_id = trace_for(stack, list_id, reader.user_id)
    with stack.client("prk_nonsense") as client_with_wrong_key:
        for caller in (stranger, client, client_with_wrong_key):
            for query in ({}, {"list_id": list_id}):
                shown_subscription = data(look_up_subscription(caller, trace_id=trace_id, **query))
                assert set(shown_subscription) == {"list", "sub"}
                assert shown_subscription["list"] == data(client.get(f"/lists/{list_id}"))
                masked_values = {
                    "email": f"{reader.email[0]}…@example.com",
                    "name": None,
                    "user_id": None,
                }
                assert shown_subscription["sub"] == {
                    **reader.read_membership(list_id),
                    "list": None,
                    **masked_values,
                }


def test_subscription_lookup_rejects_missing_or_invalid_trace_ids_and_credentials(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    trace_id = trace_for(stack, list_id, reader.user_id)
    other_list_id = new_list(client)["id"]
    reader.joins(other_list_id)
    cases: list[tuple[httpx2.Client, dict[str, object], int, str]] = [
        (stranger, {}, 401, "auth.credentials_missing"),
        (stranger, {"list_id": list_id}, 401, "auth.credentials_missing"),
        (stranger, {"list_id": list_id, "trace_id": ""}, 401, "auth.credentials_missing"),
        (stranger, {"trace_id": trace_id}, 404, "subscription.not_found"),
        (stranger, {"trace_id": trace_id, "list_id": other_list_id}, 403, "trace.invalid"),
        (reader.client, {"trace_id": trace_id, "list_id": other_list_id}, 403, "trace.invalid"),
        (reader.client, {"trace_id": "nonsense", "list_id": other_list_id}, 403, "trace.invalid"),
        (reader.client, {}, 400, "list_id.missing"),
        (reader.client, {"list_id": list_id}, 404, "subscription.not_found"),
        (reader.client, {"list_id": UINT64_MAX}, 404, "list.not_found"),
    ]
    for caller, query, status, code in cases:
        problem(look_up_subscription(caller, **query), status, code)
    for invalid_list_id in (UINT64_MAX + 1, "-1", "a-slug", ""):
        problem(
            look_up_subscription(reader.client, list_id=invalid_list_id), 400, "request.invalid"
        )


def join(reader: Reader, list_id: int) -> int:
    """Join a list while logged in. The API ignores the address in the request body."""
    body = {"email": "other@example.com"}
    changed_count: int = data(
        reader.client.post(f"/subscriptions/{list_id}/no-challenge", json=body)
    )
    return changed_count


@pytest.mark.parametrize("from_status", ["active", "unsubscribed", "removed", "never there"])
def test_rejoining_while_logged_in_lifts_every_opt_out(
    stack: Stack, client: httpx2.Client, reader: Reader, list_id: int, from_status: str
) -> None:
    if from_status != "never there":
        reader.joins(list_id)
    reader.wants_mail(list_id, enabled=False)
    if from_status == "removed":
        data(client.delete(f"/subscriptions/{list_id}/members/{reader.user_id}"))
    if from_status != "active":
        reader.leaves(list_id)
        assert join(reader, list_id) == 1
        assert reader.read_status(list_id) == ("active", True)
        assert stack.query("SELECT 1 FROM opt_outs WHERE user_id = %s", reader.user_id) == []
    else:
        # Joining again changes nothing, because the person is already a member. Mail from the list
        # to the member stays turned off.
        assert join(reader, list_id) == 0
        assert reader.read_status(list_id) == ("active", False)
