"""Strangers and people with a login subscribe, and what they see of their subscriptions."""

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from devstack.harness.stack import Stack
from tests.support.http.replies import data, problem
from tests.support.lists.subscribers import (
    Reader,
    confirm,
    count,
    known_member,
    mailed,
    members,
    new_address,
    new_list,
    subscribe,
    trace_for,
)


def test_new_address_is_subscribed_immediately_on_a_list_without_confirmation(
    client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    email = new_address()
    assert data(subscribe(stranger, list_id, email)) == 1
    found = known_member(client, list_id, email)
    expected = {
        "list_id": list_id,
        "status": "active",
        "type": "free",
        "paid_expiry": None,
        "email_enabled": True,
        "name": None,
        "email": email,
        "source": "form",
        "user": {"id": found["user_id"], "name": None},
        "list": None,
    }
    assert {name: found[name] for name in expected} == expected
    assert found["user_id"] < 2**53


def test_different_spellings_of_an_address_are_one_member(
    client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    word = new_address().split("@")[0]
    for written in (
        f"RÉADER.{word}@BÜCHER.example.com",
        f"re\u0301ader.{word}@bücher.example.com",
        f"réader.{word.upper()}@xn--bcher-kva.EXAMPLE.com",
    ):
        assert data(subscribe(stranger, list_id, written)) == 1
        [found] = members(client, list_id)
        assert found["email"] == f"réader.{word}@bücher.example.com"
        assert members(client, list_id, email=written) == [found]


def test_sign_up_rejects_malformed_addresses_and_names_the_field(
    client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    path = f"/subscriptions/{list_id}"
    for email in ["", "reader@example", "a b@example.com", "reader@example.com\0", None, 5]:
        body = problem(stranger.post(path, json={"email": email}), 422, "body.invalid")
        assert [each["field"] for each in body["errors"]] == ["body.email"]
    problem(stranger.post(path), 422, "body.invalid")
    assert members(client, list_id) == []


def test_challenge_fields_are_ignored_on_lists_without_challenge(
    client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    for provider, token in (("", ""), ("unheard-of", "fail-1"), ("turnstile", "error-1")):
        email = new_address()
        fields = {"challenge-provider": provider, "challenge-token": token, "challenge-action": ""}
        assert data(subscribe(stranger, list_id, email, **fields)) == 1
        assert known_member(client, list_id, email)["status"] == "active"


def test_public_sign_up_ignores_credentials(
    client: httpx2.Client, other_owner: httpx2.Client, stack: Stack, list_id: int
) -> None:
    with stack.client("prk_nonsense") as mistaken:
        for caller in (client, other_owner, mistaken):
            email = new_address()
            assert data(subscribe(caller, list_id, email)) == 1
            assert known_member(client, list_id, email)["source"] == "form"


def test_public_sign_up_keeps_mail_off_that_the_person_switched_off(
    client: httpx2.Client, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id).wants_mail(list_id, enabled=False)
    assert data(subscribe(stranger, list_id, reader.email)) == 1
    assert reader.stands(list_id) == ("active", False)
    assert data(client.delete(f"/subscriptions/{list_id}/members/{reader.user_id}")) == 1
    assert data(subscribe(stranger, list_id, reader.email)) == 1
    assert reader.stands(list_id) == ("pending", False)


def test_public_sign_up_of_a_removed_member_requires_confirmation(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, list_id: int
) -> None:
    email = new_address()
    subscribe(stranger, list_id, email)
    before = known_member(client, list_id, email)
    path = f"/subscriptions/{list_id}/members/{before['user_id']}"
    assert data(client.put(f"{path}/email", json={"enabled": False})) == 1
    assert data(client.delete(path)) == 1
    # However often the form is sent, it is the person who decides.
    for _ in range(2):
        assert data(subscribe(stranger, list_id, email)) == 1
        after = known_member(client, list_id, email)
        assert (after["status"], after["id"]) == ("pending", before["id"])
    assert count(client, list_id) == 0
    assert confirm(stranger, *mailed(stack, email)).status_code == 303
    after = known_member(client, list_id, email)
    assert (after["status"], after["email_enabled"], after["id"]) == ("active", True, before["id"])


def test_account_name_is_shown_only_to_lists_joined_while_logged_in(
    client: httpx2.Client, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    subscribe(stranger, list_id, reader.email)
    user_id = reader.user_id
    subs = f"/subscriptions/{list_id}/members/{user_id}/subs"
    for reply in (
        client.get(f"/lists/{list_id}/subscriptions"),
        client.get(subs),
        client.patch(f"/lists/{list_id}/members/{user_id}", json={"type": "gold"}),
    ):
        assert reader.name not in reply.text
    [found] = data(client.get(subs))
    assert (found["user"], found["name"]) == ({"id": user_id, "name": None}, None)
    joined = new_list(client)["id"]
    reader.joins(joined)
    shown = known_member(client, joined, reader.email)
    assert (shown["user"]["name"], shown["name"]) == (reader.name, reader.name)
    # Having shown it to one list of an owner's does not show it to the next.
    assert known_member(client, list_id, reader.email)["user"]["name"] is None
    # Nor does a move.
    other = new_list(client)["id"]
    path = f"/subscriptions/{list_id}/members/{user_id}/transfer"
    assert data(client.post(path, params={"dst_list_id": other})) == 1
    assert reader.name not in client.get(f"/lists/{other}/subscriptions").text


UINT64_MAX = 2**64 - 1


def opponent(caller: httpx2.Client, **query: object) -> httpx2.Response:
    return caller.get("/subscriptions/opponent", params=dict(query))  # type: ignore[arg-type]


def test_person_reads_their_own_subscription_by_list_id_or_slug(
    make_reader: Callable[[], Reader], mailing_list: dict[str, Any]
) -> None:
    one = make_reader().joins(mailing_list["id"])
    two = make_reader().joins(mailing_list["id"])
    for name in (mailing_list["id"], mailing_list["slug"]):
        found = data(one.client.get(f"/subscriptions/{name}/rel"))
        assert (found["user_id"], found["email"]) == (one.user_id, one.email)
        assert found["user"] is None
        assert found["list"] == {**mailing_list, "subscriber_count": 2}
        assert two.email not in one.client.get(f"/subscriptions/{name}/rel").text


def test_subscription_of_a_person_who_is_not_on_the_list_returns_404(
    client: httpx2.Client, reader: Reader, mailing_list: dict[str, Any]
) -> None:
    for caller in (client, reader.client):
        for name in (mailing_list["id"], mailing_list["slug"]):
            reply = caller.get(f"/subscriptions/{name}/rel")
            problem(reply, 404, "subscription.not_found")
    for name in (0, UINT64_MAX, "no-such-list"):
        problem(reader.client.get(f"/subscriptions/{name}/rel"), 404, "list.not_found")
    for name in (UINT64_MAX + 1, "-1", "No_Slug"):
        problem(reader.client.get(f"/subscriptions/{name}/rel"), 400, "list.name_invalid")


def test_person_lists_their_subscriptions_newest_first_without_ended_ones(
    client: httpx2.Client,
    other_owner: httpx2.Client,
    stranger: httpx2.Client,
    make_reader: Callable[[], Reader],
) -> None:
    reader = make_reader()
    other = make_reader()
    left, removed, archived, kept = (new_list(client)["id"] for _ in range(4))
    theirs = new_list(other_owner)["id"]
    pending = new_list(client, confirm_required=True)["id"]
    for each in (left, removed, archived, kept, theirs):
        reader.joins(each)
    subscribe(stranger, pending, reader.email)
    other.joins(kept)
    reader.leaves(left)
    assert data(client.delete(f"/subscriptions/{removed}/members/{reader.user_id}")) == 1
    assert data(client.delete(f"/lists/{archived}")) == 1
    found = data(reader.client.get("/subscriptions"))
    assert [(each["list_id"], each["status"]) for each in found] == [
        (pending, "pending"),
        (theirs, "active"),
        (kept, "active"),
    ]
    for each in found:
        assert (each["user_id"], each["user"]) == (reader.user_id, None)
        assert each["list"] == data(client.get(f"/lists/{each['list_id']}"))
    assert [each["list_id"] for each in data(other.client.get("/subscriptions"))] == [kept]
    assert data(client.get("/subscriptions")) == []


def test_trace_id_shows_the_list_and_a_masked_subscription(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    trace_id = trace_for(stack, list_id, reader.user_id)
    with stack.client("prk_nonsense") as mistaken:
        for caller in (stranger, client, mistaken):
            for query in ({}, {"list_id": list_id}):
                found = data(opponent(caller, trace_id=trace_id, **query))
                assert set(found) == {"list", "sub"}
                assert found["list"] == data(client.get(f"/lists/{list_id}"))
                hidden = {"email": f"{reader.email[0]}…@example.com", "name": None, "user_id": None}
                assert found["sub"] == {**reader.standing(list_id), "list": None, **hidden}


def test_subscription_lookup_rejects_missing_or_invalid_trace_ids_and_credentials(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    trace_id = trace_for(stack, list_id, reader.user_id)
    other = new_list(client)["id"]
    reader.joins(other)
    cases: list[tuple[httpx2.Client, dict[str, object], int, str]] = [
        (stranger, {}, 401, "auth.credentials_missing"),
        (stranger, {"list_id": list_id}, 401, "auth.credentials_missing"),
        (stranger, {"list_id": list_id, "trace_id": ""}, 401, "auth.credentials_missing"),
        (stranger, {"trace_id": trace_id}, 404, "subscription.not_found"),
        (stranger, {"trace_id": trace_id, "list_id": other}, 403, "trace.invalid"),
        (reader.client, {"trace_id": trace_id, "list_id": other}, 403, "trace.invalid"),
        (reader.client, {"trace_id": "nonsense", "list_id": other}, 403, "trace.invalid"),
        (reader.client, {}, 400, "list_id.missing"),
        (reader.client, {"list_id": list_id}, 404, "subscription.not_found"),
        (reader.client, {"list_id": UINT64_MAX}, 404, "list.not_found"),
    ]
    for caller, query, status, code in cases:
        problem(opponent(caller, **query), status, code)
    for bad in (UINT64_MAX + 1, "-1", "a-slug", ""):
        problem(opponent(reader.client, list_id=bad), 400, "request.invalid")


def join(reader: Reader, list_id: int) -> int:
    """Join; the address in the body is nobody's concern."""
    body = {"email": "other@example.com"}
    found: int = data(reader.client.post(f"/subscriptions/{list_id}/no-challenge", json=body))
    return found


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
        assert reader.stands(list_id) == ("active", True)
        assert stack.query("SELECT 1 FROM opt_outs WHERE user_id = %s", reader.user_id) == []
    else:
        # They never left: what they said about the mail stays said.
        assert join(reader, list_id) == 0
        assert reader.stands(list_id) == ("active", False)
