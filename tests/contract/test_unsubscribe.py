"""Tests of the calls that end a subscription, or switch the mails of a list off or on."""

import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from core.scopes import Scope
from devstack.harness.stack import Stack
from tests.support.http.replies import data, problem
from tests.support.lists.subscribers import (
    Reader,
    count,
    known_member,
    new_list,
    subscribe,
    trace_for,
)

ONE_CLICK = {"List-Unsubscribe": "One-Click"}
LINE = b"List-Unsubscribe=One-Click\r\n"


def ways(trace_id: str) -> dict[str, dict[str, Any]]:
    """Return what a call is sent with, by each way in which it can carry the trace id."""
    named = {"trace_id": trace_id}
    return {
        "in the query": {"params": named},
        "in JSON": {"json": named},
        "in a form": {"data": named},
        "in multipart": {"files": parts_of(named)},
        "everywhere": {"params": named, "json": named},
        "with a byte order mark": {
            "content": b"\xef\xbb\xbf" + json.dumps(named).encode(),
            "headers": {"Content-Type": "application/problem+json; charset=utf-8"},
        },
    }


def test_trace_id_unsubscribes_its_person_wherever_the_request_carries_the_trace_id(
    stack: Stack, stranger: httpx2.Client, reader: Reader, mailing_list: dict[str, Any]
) -> None:
    trace_id = trace_for(stack, mailing_list["id"], reader.user_id)
    for way, sent in ways(trace_id).items():
        for name in (mailing_list["id"], mailing_list["slug"]):
            reader.joins(mailing_list["id"])
            for _ in range(2):
                assert data(stranger.request("DELETE", f"/subscriptions/{name}", **sent)) == 1
                assert reader.stands(mailing_list["id"])[0] == "unsubscribed", way


def test_logged_in_person_unsubscribes_only_themselves(
    client: httpx2.Client, make_reader: Callable[[], Reader], list_id: int
) -> None:
    leaving = make_reader().joins(list_id)
    staying = make_reader().joins(list_id)
    for _ in range(2):
        leaving.leaves(list_id)
    assert leaving.stands(list_id)[0] == "unsubscribed"
    assert staying.stands(list_id) == ("active", True)
    assert count(client, list_id) == 1


def test_request_with_a_trace_id_ignores_other_credentials(
    stack: Stack, reader: Reader, make_reader: Callable[[], Reader], list_id: int
) -> None:
    reader.joins(list_id)
    trace_id = trace_for(stack, list_id, reader.user_id)
    path = f"/subscriptions/{list_id}"
    bystander = make_reader().joins(list_id)
    read_key = stack.create_key(bystander.user_id, Scope.SUBSCRIPTION_READ)
    for key in ("prk_nonsense", bystander.key, read_key):
        with stack.client(key) as caller:
            assert data(caller.delete(path, params={"trace_id": trace_id})) == 1
        assert reader.stands(list_id)[0] == "unsubscribed"
        reader.joins(list_id)
    assert bystander.stands(list_id) == ("active", True)


def test_trace_id_must_be_a_string(stranger: httpx2.Client, list_id: int) -> None:
    for value in [5, True, ["a"], {"a": 1}]:
        reply = stranger.request("DELETE", f"/subscriptions/{list_id}", json={"trace_id": value})
        body = problem(reply, 422, "body.invalid")
        assert [each["field"] for each in body["errors"]] == ["body.trace_id"]


def test_unsubscribe_request_with_an_unreadable_body_is_rejected(
    stranger: httpx2.Client, list_id: int
) -> None:
    path = f"/subscriptions/{list_id}"
    for kind, body, status, code in (
        ("application/json", b"{", 400, "body.not_json"),
        ("application/json", b'"\\ud800"', 400, "body.not_json"),
        ("application/json", b"[]", 422, "body.invalid"),
        ("application/x-www-form-urlencoded", b"a=b&" * 200, 400, "body.malformed"),
        ("application/x-www-form-urlencoded", b"\xff", 400, "body.malformed"),
        ("multipart/form-data; boundary=x", b"nonsense", 400, "body.malformed"),
        ("text/plain", b"trace_id=a", 415, "body.unsupported_type"),
    ):
        reply = stranger.request("DELETE", path, content=body, headers={"Content-Type": kind})
        problem(reply, status, code)


@pytest.mark.parametrize("came", ["never", "removed", "pending", "active"])
def test_opt_out_is_recorded_for_every_previous_subscription_status(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, reader: Reader, came: str
) -> None:
    list_id = new_list(client, confirm_required=came == "pending")["id"]
    if came == "pending":
        subscribe(stranger, list_id, reader.email)
    elif came != "never":
        reader.joins(list_id)
    if came == "removed":
        assert data(client.delete(f"/subscriptions/{list_id}/members/{reader.user_id}")) == 1
    trace_id = trace_for(stack, list_id, reader.user_id)
    left = stranger.delete(f"/subscriptions/{list_id}", params={"trace_id": trace_id})
    assert data(left) == 1
    assert data(client.patch(f"/lists/{list_id}", json={"confirm_required": False}))
    subscribe(stranger, list_id, reader.email)
    assert known_member(client, list_id, reader.email)["status"] == "pending"
    path = f"/subscriptions/{list_id}/members/{reader.user_id}/email"
    problem(client.put(path, json={"enabled": True}), 409, "subscription.opted_out")
    assert count(client, list_id) == 0


def test_unsubscribing_from_one_list_keeps_other_subscriptions(
    client: httpx2.Client, other_owner: httpx2.Client, reader: Reader, list_id: int
) -> None:
    second_list_id = new_list(client)["id"]
    foreign_list_id = new_list(other_owner)["id"]
    reader.joins(list_id).joins(second_list_id).joins(foreign_list_id).wants_mail(list_id, False)
    reader.leaves(list_id)
    assert reader.stands(second_list_id) == reader.stands(foreign_list_id) == ("active", True)


UINT64_MAX = 2**64 - 1


def set_by_trace(
    caller: httpx2.Client, list_id: int, trace_id: str, enabled: bool
) -> httpx2.Response:
    body = {"trace_id": trace_id, "enabled": enabled}
    return caller.put(f"/subscriptions/{list_id}/email", json=body)


def test_trace_id_or_login_switches_mail_off_and_on_for_its_own_person(
    stack: Stack, stranger: httpx2.Client, make_reader: Callable[[], Reader], list_id: int
) -> None:
    one = make_reader().joins(list_id)
    two = make_reader().joins(list_id)
    trace_id = trace_for(stack, list_id, one.user_id)
    for enabled in (False, False, True, True, False):
        assert data(set_by_trace(stranger, list_id, trace_id, enabled)) == 1
        assert one.stands(list_id) == ("active", enabled)
    for enabled in (False, True, True, False):
        one.wants_mail(list_id, enabled)
        assert one.stands(list_id) == ("active", enabled)
    assert two.stands(list_id) == ("active", True)


def test_switching_mail_on_does_not_restore_an_unsubscribed_person(
    client: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id).leaves(list_id).wants_mail(list_id, enabled=True)
    assert reader.stands(list_id) == ("unsubscribed", True)
    assert count(client, list_id) == 0


def test_mail_opt_out_without_subscription_is_recorded(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    trace_id = trace_for(stack, list_id, reader.user_id)
    for _ in range(2):
        assert data(set_by_trace(stranger, list_id, trace_id, enabled=False)) == 1
    assert client.get(f"/lists/{list_id}/subscriptions").json()["data"]["items"] == []
    subscribe(stranger, list_id, reader.email)
    assert known_member(client, list_id, reader.email)["status"] == "pending"
    path = f"/subscriptions/{list_id}/members/{reader.user_id}/email"
    problem(client.put(path, json={"enabled": True}), 409, "subscription.opted_out")


def test_request_that_switches_mail_requires_a_json_boolean(reader: Reader, list_id: int) -> None:
    reader.joins(list_id)
    for body in ({}, {"enabled": None}, {"enabled": 1}, {"enabled": "true"}):
        reply = reader.client.put(f"/subscriptions/{list_id}/email", json=body)
        found = problem(reply, 422, "body.invalid")
        assert [each["field"] for each in found["errors"]] == ["body.enabled"]
        assert reader.stands(list_id) == ("active", True)


def test_request_that_switches_mail_accepts_only_true_or_false_in_a_form(
    reader: Reader, list_id: int
) -> None:
    path = f"/subscriptions/{list_id}/email"
    reader.joins(list_id)
    problem(reader.client.put(path, data={"enabled": "yes"}), 422, "body.invalid")
    for word, enabled in (("False", False), ("true", True)):
        assert data(reader.client.put(path, data={"enabled": word})) == 1
        assert reader.stands(list_id) == ("active", enabled)


def test_one_click_unsubscribe_accepts_form_and_json_and_empty_body_and_login(
    stack: Stack, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    """RFC 8058: a POST without credentials, urlencoded or multipart."""
    reader.joins(list_id)
    named = {"trace_id": trace_for(stack, list_id, reader.user_id)}
    both = {**ONE_CLICK, **named}
    calls: list[tuple[httpx2.Client, dict[str, Any]]] = [
        (stranger, {"params": named, "data": ONE_CLICK}),
        (stranger, {"params": named, "files": parts_of(ONE_CLICK)}),
        (stranger, {"data": both}),
        (stranger, {"params": named, "content": LINE, "headers": {"Content-Type": "text/plain"}}),
        (stranger, {"files": parts_of(both)}),
        (stranger, {"json": named}),
        (stranger, {"params": named}),
        (reader.client, {}),
        (reader.client, {"data": ONE_CLICK}),
    ]
    for caller, sent in calls:
        reader.wants_mail(list_id, enabled=True)
        for _ in range(2):
            assert data(caller.post(f"/subscriptions/{list_id}/delete", **sent)) == 1
            assert reader.stands(list_id) == ("active", False), sent


def parts_of(fields: dict[str, str]) -> dict[str, tuple[None, str]]:
    """Return what is sent for these fields as multipart."""
    return {name: (None, value) for name, value in fields.items()}


# Beside its mail, a person switches the whole subscription off.
each_way = pytest.mark.parametrize(
    ("method", "name"), [("PUT", "/email"), ("POST", "/delete"), ("DELETE", "")]
)


@each_way
def test_unsubscribe_routes_require_a_trace_id_or_a_login(
    stranger: httpx2.Client, list_id: int, method: str, name: str
) -> None:
    path = f"/subscriptions/{list_id}{name}"
    for reply in (
        stranger.request(method, path),
        stranger.request(method, path, json={"enabled": False}),
        stranger.request(method, path, json={"enabled": False, "trace_id": ""}),
        stranger.request(method, path, data=ONE_CLICK),
    ):
        problem(reply, 401, "auth.credentials_missing")


@each_way
def test_unsubscribe_routes_reject_trace_ids_and_credentials_that_do_not_match(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, method: str, name: str
) -> None:
    letter = new_list(client)
    other = new_list(client)["id"]
    person = stack.create_owner()
    trace_id = trace_for(stack, letter["id"], person.user_id)

    def send(list_name: object, caller: httpx2.Client = stranger, **query: str) -> httpx2.Response:
        path = f"/subscriptions/{list_name}{name}"
        return caller.request(method, path, params=query, json={"enabled": False})

    problem(send(other, trace_id=trace_id), 403, "trace.invalid")
    problem(send(letter["id"], trace_id=f"{trace_id}A"), 403, "trace.invalid")
    problem(send(0, trace_id=trace_id), 404, "list.not_found")
    problem(send(UINT64_MAX, trace_id=trace_id), 404, "list.not_found")
    problem(send("no-such-list", trace_id=trace_id), 404, "list.not_found")
    problem(send(letter["slug"], trace_id=f"{trace_id}A"), 403, "trace.invalid")
    code = "request.invalid" if name else "list.name_invalid"
    problem(send(UINT64_MAX + 1, trace_id=trace_id), 400, code)
    with stack.client(stack.create_key(person.user_id, Scope.SUBSCRIPTION_READ)) as reading:
        problem(send(letter["id"], reading), 403, "auth.insufficient_scope")
    with stack.client("prk_nonsense") as mistaken:
        problem(send(letter["id"], mistaken), 401, "auth.invalid_credentials")
        assert data(send(letter["id"], mistaken, trace_id=trace_id)) == 1
    both = f"/subscriptions/{letter['id']}{name}?trace_id={trace_id}"
    reply = stranger.request(method, both, json={"trace_id": f"{trace_id}A", "enabled": False})
    problem(reply, 400, "trace.ambiguous")
    reply = stranger.request(method, both, json={"trace_id": trace_id, "enabled": False})
    assert data(reply) == 1
