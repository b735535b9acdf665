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
    new_list,
    read_subscriber_count,
    require_member,
    subscribe,
    trace_for,
)

ONE_CLICK = {"List-Unsubscribe": "One-Click"}
ONE_CLICK_LINE = b"List-Unsubscribe=One-Click\r\n"


def requests_with_trace_id(trace_id: str) -> dict[str, dict[str, Any]]:
    """Build requests that contain the trace id in different ways, such as in the query or in JSON.

    Each key of the returned dictionary describes how the request contains the trace id.
    """
    field = {"trace_id": trace_id}
    return {
        "in the query": {"params": field},
        "in JSON": {"json": field},
        "in a form": {"data": field},
        "in multipart": {"files": build_multipart_fields(field)},
        "everywhere": {"params": field, "json": field},
        "with a byte order mark": {
            "content": b"\xef\xbb\xbf" + json.dumps(field).encode(),
            "headers": {"Content-Type": "application/problem+json; charset=utf-8"},
        },
    }


def test_trace_id_unsubscribes_its_person_wherever_the_request_carries_the_trace_id(
    stack: Stack, stranger: httpx2.Client, reader: Reader, mailing_list: dict[str, Any]
) -> None:
    trace_id = trace_for(stack, mailing_list["id"], reader.user_id)
    for description, content in requests_with_trace_id(trace_id).items():
        for id_or_slug in (mailing_list["id"], mailing_list["slug"]):
            reader.joins(mailing_list["id"])
            for _ in range(2):
                assert (
                    data(stranger.request("DELETE", f"/subscriptions/{id_or_slug}", **content)) == 1
                )
                assert reader.read_status(mailing_list["id"])[0] == "unsubscribed", description


def test_logged_in_person_unsubscribes_only_themselves(
    client: httpx2.Client, make_reader: Callable[[], Reader], list_id: int
) -> None:
    unsubscriber = make_reader().joins(list_id)
    other_reader = make_reader().joins(list_id)
    for _ in range(2):
        unsubscriber.leaves(list_id)
    assert unsubscriber.read_status(list_id)[0] == "unsubscribed"
    assert other_reader.read_status(list_id) == ("active", True)
    assert read_subscriber_count(client, list_id) == 1


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
        assert reader.read_status(list_id)[0] == "unsubscribed"
        reader.joins(list_id)
    assert bystander.read_status(list_id) == ("active", True)


@pytest.mark.parametrize("value", [5, True, ["a"], {"a": 1}])
def test_trace_id_must_be_a_string(
    stranger: httpx2.Client, list_id: int, value: int | bool | list[str] | dict[str, Any]
) -> None:
    reply = stranger.request("DELETE", f"/subscriptions/{list_id}", json={"trace_id": value})
    body = problem(reply, 422, "body.invalid")
    assert [each["field"] for each in body["errors"]] == ["body.trace_id"]


@pytest.mark.parametrize(
    ("media_type", "body", "status", "code"),
    [
        ("application/json", b"{", 400, "body.not_json"),
        ("application/json", b'"\\ud800"', 400, "body.not_json"),
        ("application/json", b"[]", 422, "body.invalid"),
        ("application/x-www-form-urlencoded", b"a=b&" * 200, 400, "body.malformed"),
        ("application/x-www-form-urlencoded", b"\xff", 400, "body.malformed"),
        ("multipart/form-data; boundary=x", b"nonsense", 400, "body.malformed"),
        ("text/plain", b"trace_id=a", 415, "body.unsupported_type"),
    ],
)
def test_unsubscribe_request_with_an_unreadable_body_is_rejected(
    stranger: httpx2.Client, list_id: int, *, media_type: str, body: bytes, status: int, code: str
) -> None:
    path = f"/subscriptions/{list_id}"
    reply = stranger.request("DELETE", path, content=body, headers={"Content-Type": media_type})
    problem(reply, status, code)


@pytest.mark.parametrize("previous_status", ["never", "removed", "pending", "active"])
def test_opt_out_is_recorded_for_every_previous_subscription_status(
    stack: Stack,
    client: httpx2.Client,
    stranger: httpx2.Client,
    reader: Reader,
    previous_status: str,
) -> None:
    list_id = new_list(client, confirm_required=previous_status == "pending")["id"]
    if previous_status == "pending":
        subscribe(stranger, list_id, reader.email)
    elif previous_status != "never":
        reader.joins(list_id)
    if previous_status == "removed":
        assert data(client.delete(f"/subscriptions/{list_id}/members/{reader.user_id}")) == 1
    trace_id = trace_for(stack, list_id, reader.user_id)
    reply = stranger.delete(f"/subscriptions/{list_id}", params={"trace_id": trace_id})
    assert data(reply) == 1
    assert data(client.patch(f"/lists/{list_id}", json={"confirm_required": False}))
    subscribe(stranger, list_id, reader.email)
    assert require_member(client, list_id, reader.email)["status"] == "pending"
    path = f"/subscriptions/{list_id}/members/{reader.user_id}/email"
    problem(client.put(path, json={"enabled": True}), 409, "subscription.opted_out")
    assert read_subscriber_count(client, list_id) == 0


def test_unsubscribing_from_one_list_keeps_other_subscriptions(
    client: httpx2.Client, other_owner: httpx2.Client, reader: Reader, list_id: int
) -> None:
    second_list_id = new_list(client)["id"]
    foreign_list_id = new_list(other_owner)["id"]
    reader.joins(list_id).joins(second_list_id).joins(foreign_list_id).wants_mail(list_id, False)
    reader.leaves(list_id)
    assert (
        reader.read_status(second_list_id)
        == reader.read_status(foreign_list_id)
        == ("active", True)
    )


UINT64_MAX = 2**64 - 1


def switch_mail_by_trace_id(
    caller: httpx2.Client, list_id: int, trace_id: str, enabled: bool
) -> httpx2.Response:
    body = {"trace_id": trace_id, "enabled": enabled}
    return caller.put(f"/subscriptions/{list_id}/email", json=body)


def test_trace_id_or_login_switches_mail_off_and_on_for_its_own_person(
    stack: Stack, stranger: httpx2.Client, make_reader: Callable[[], Reader], list_id: int
) -> None:
    first_reader = make_reader().joins(list_id)
    second_reader = make_reader().joins(list_id)
    trace_id = trace_for(stack, list_id, first_reader.user_id)
    for enabled in (False, False, True, True, False):
        assert data(switch_mail_by_trace_id(stranger, list_id, trace_id, enabled)) == 1
        assert first_reader.read_status(list_id) == ("active", enabled)
    for enabled in (False, True, True, False):
        first_reader.wants_mail(list_id, enabled)
        assert first_reader.read_status(list_id) == ("active", enabled)
    assert second_reader.read_status(list_id) == ("active", True)


def test_switching_mail_on_does_not_restore_an_unsubscribed_person(
    client: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id).leaves(list_id).wants_mail(list_id, enabled=True)
    assert reader.read_status(list_id) == ("unsubscribed", True)
    assert read_subscriber_count(client, list_id) == 0


def test_mail_opt_out_without_subscription_is_recorded(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    trace_id = trace_for(stack, list_id, reader.user_id)
    for _ in range(2):
        assert data(switch_mail_by_trace_id(stranger, list_id, trace_id, enabled=False)) == 1
    assert client.get(f"/lists/{list_id}/subscriptions").json()["data"]["items"] == []
    subscribe(stranger, list_id, reader.email)
    assert require_member(client, list_id, reader.email)["status"] == "pending"
    path = f"/subscriptions/{list_id}/members/{reader.user_id}/email"
    problem(client.put(path, json={"enabled": True}), 409, "subscription.opted_out")


@pytest.mark.parametrize("body", [{}, {"enabled": None}, {"enabled": 1}, {"enabled": "true"}])
def test_request_that_switches_mail_requires_a_json_boolean(
    reader: Reader, list_id: int, body: dict[str, Any]
) -> None:
    reader.joins(list_id)
    reply = reader.client.put(f"/subscriptions/{list_id}/email", json=body)
    error = problem(reply, 422, "body.invalid")
    assert [each["field"] for each in error["errors"]] == ["body.enabled"]
    assert reader.read_status(list_id) == ("active", True)


def test_request_that_switches_mail_accepts_only_true_or_false_in_a_form(
    reader: Reader, list_id: int
) -> None:
    path = f"/subscriptions/{list_id}/email"
    reader.joins(list_id)
    problem(reader.client.put(path, data={"enabled": "yes"}), 422, "body.invalid")
    for word, enabled in (("False", False), ("true", True)):
        assert data(reader.client.put(path, data={"enabled": word})) == 1
        assert reader.read_status(list_id) == ("active", enabled)


def test_one_click_unsubscribe_accepts_form_and_json_and_empty_body_and_login(
    stack: Stack, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    """RFC 8058 requires a POST without credentials, whose body is URL-encoded or multipart."""
    reader.joins(list_id)
    trace_field = {"trace_id": trace_for(stack, list_id, reader.user_id)}
    all_fields = {**ONE_CLICK, **trace_field}
    calls: list[tuple[httpx2.Client, dict[str, Any]]] = [
        (stranger, {"params": trace_field, "data": ONE_CLICK}),
        (stranger, {"params": trace_field, "files": build_multipart_fields(ONE_CLICK)}),
        (stranger, {"data": all_fields}),
        (
            stranger,
            {
                "params": trace_field,
                "content": ONE_CLICK_LINE,
                "headers": {"Content-Type": "text/plain"},
            },
        ),
        (stranger, {"files": build_multipart_fields(all_fields)}),
        (stranger, {"json": trace_field}),
        (stranger, {"params": trace_field}),
        (reader.client, {}),
        (reader.client, {"data": ONE_CLICK}),
    ]
    for caller, content in calls:
        reader.wants_mail(list_id, enabled=True)
        for _ in range(2):
            assert data(caller.post(f"/subscriptions/{list_id}/delete", **content)) == 1
            assert reader.read_status(list_id) == ("active", False), content


def build_multipart_fields(fields: dict[str, str]) -> dict[str, tuple[None, str]]:
    """Return the fields as parts of a multipart body."""
    return {name: (None, value) for name, value in fields.items()}


# The routes that turn off a person's mail from a list, or end the person's subscription.
each_unsubscribe_route = pytest.mark.parametrize(
    ("method", "path_end"), [("PUT", "/email"), ("POST", "/delete"), ("DELETE", "")]
)


@each_unsubscribe_route
def test_unsubscribe_routes_require_a_trace_id_or_a_login(
    stranger: httpx2.Client, list_id: int, method: str, path_end: str
) -> None:
    path = f"/subscriptions/{list_id}{path_end}"
    for reply in (
        stranger.request(method, path),
        stranger.request(method, path, json={"enabled": False}),
        stranger.request(method, path, json={"enabled": False, "trace_id": ""}),
        stranger.request(method, path, data=ONE_CLICK),
    ):
        problem(reply, 401, "auth.credentials_missing")


@each_unsubscribe_route
def test_unsubscribe_routes_reject_trace_ids_and_credentials_that_do_not_match(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, method: str, path_end: str
) -> None:
    mailing_list = new_list(client)
    other_list_id = new_list(client)["id"]
    person = stack.create_owner()
    trace_id = trace_for(stack, mailing_list["id"], person.user_id)

    def send(id_or_slug: object, caller: httpx2.Client = stranger, **query: str) -> httpx2.Response:
        path = f"/subscriptions/{id_or_slug}{path_end}"
        return caller.request(method, path, params=query, json={"enabled": False})

    problem(send(other_list_id, trace_id=trace_id), 403, "trace.invalid")
    problem(send(mailing_list["id"], trace_id=f"{trace_id}A"), 403, "trace.invalid")
    problem(send(0, trace_id=trace_id), 404, "list.not_found")
    problem(send(UINT64_MAX, trace_id=trace_id), 404, "list.not_found")
    problem(send("no-such-list", trace_id=trace_id), 404, "list.not_found")
    problem(send(mailing_list["slug"], trace_id=f"{trace_id}A"), 403, "trace.invalid")
    code = "request.invalid" if path_end else "list.name_invalid"
    problem(send(UINT64_MAX + 1, trace_id=trace_id), 400, code)
    with stack.client(stack.create_key(person.user_id, Scope.SUBSCRIPTION_READ)) as reading_client:
        problem(send(mailing_list["id"], reading_client), 403, "auth.insufficient_scope")
    with stack.client("prk_nonsense") as client_with_wrong_key:
        problem(send(mailing_list["id"], client_with_wrong_key), 401, "auth.invalid_credentials")
        assert data(send(mailing_list["id"], client_with_wrong_key, trace_id=trace_id)) == 1
    url_with_trace_id = f"/subscriptions/{mailing_list['id']}{path_end}?trace_id={trace_id}"
    reply = stranger.request(
        method, url_with_trace_id, json={"trace_id": f"{trace_id}A", "enabled": False}
    )
    problem(reply, 400, "trace.ambiguous")
    reply = stranger.request(
        method, url_with_trace_id, json={"trace_id": trace_id, "enabled": False}
    )
    assert data(reply) == 1
