"""Unsubscribing: by a trace id from a mail, however it is sent, or by a login."""

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from core.scopes import Scope
from tests.contract.replies import data, problem
from tests.contract.subscribers import Reader, count, known_member, new_list, subscribe, trace_for
from tests.stack import Stack

ONE_CLICK = {"List-Unsubscribe": "One-Click"}

Send = Callable[[httpx2.Client, str, str], httpx2.Response]


def in_query(caller: httpx2.Client, path: str, trace_id: str) -> httpx2.Response:
    return caller.delete(path, params={"trace_id": trace_id})


def in_json(caller: httpx2.Client, path: str, trace_id: str) -> httpx2.Response:
    return caller.request("DELETE", path, json={"trace_id": trace_id})


def in_form(caller: httpx2.Client, path: str, trace_id: str) -> httpx2.Response:
    return caller.request("DELETE", path, data={"trace_id": trace_id})


def in_multipart(caller: httpx2.Client, path: str, trace_id: str) -> httpx2.Response:
    return caller.request("DELETE", path, files={"trace_id": (None, trace_id)})


def everywhere(caller: httpx2.Client, path: str, trace_id: str) -> httpx2.Response:
    query = {"trace_id": trace_id}
    return caller.request("DELETE", path, params=query, json={"trace_id": trace_id})


def with_byte_order_mark(caller: httpx2.Client, path: str, trace_id: str) -> httpx2.Response:
    body = b'\xef\xbb\xbf{"trace_id": "%s"}' % trace_id.encode()
    headers = {"Content-Type": "application/problem+json; charset=utf-8"}
    return caller.request("DELETE", path, content=body, headers=headers)


WAYS = [in_query, in_json, in_form, in_multipart, everywhere, with_byte_order_mark]


@pytest.mark.parametrize("send", WAYS)
def test_a_trace_id_unsubscribes_its_person(
    stack: Stack, stranger: httpx2.Client, reader: Reader, letter: dict[str, Any], send: Send
) -> None:
    trace_id = trace_for(stack, letter["id"], reader.user_id)
    for name in (letter["id"], letter["slug"]):
        reader.joins(letter["id"])
        for _ in range(2):
            assert data(send(stranger, f"/subscriptions/{name}", trace_id)) == 1
            assert reader.stands(letter["id"])[0] == "unsubscribed"


@pytest.mark.parametrize("name", ["id", "slug"])
def test_a_login_unsubscribes_its_own_person(
    client: httpx2.Client, make_reader: Callable[[], Reader], letter: dict[str, Any], name: str
) -> None:
    leaving, staying = make_reader(), make_reader()
    for each in (leaving, staying):
        each.joins(letter["id"])
    for _ in range(2):
        assert data(leaving.client.delete(f"/subscriptions/{letter[name]}")) == 1
    assert leaving.stands(letter["id"])[0] == "unsubscribed"
    assert staying.stands(letter["id"]) == ("active", True)
    assert count(client, letter["id"]) == 1


def test_with_a_trace_id_other_credentials_are_ignored(
    stack: Stack, reader: Reader, make_reader: Callable[[], Reader], list_id: int
) -> None:
    reader.joins(list_id)
    trace_id = trace_for(stack, list_id, reader.user_id)
    bystander = make_reader().joins(list_id)
    read_key = stack.new_key(bystander.user_id, Scope.SUBSCRIPTION_READ)
    for key in ("prk_nonsense", bystander.key, read_key):
        with stack.client(key) as caller:
            assert data(in_query(caller, f"/subscriptions/{list_id}", trace_id)) == 1
        assert reader.stands(list_id)[0] == "unsubscribed"
        reader.joins(list_id)
    assert bystander.stands(list_id) == ("active", True)


def test_a_trace_id_is_a_string(stranger: httpx2.Client, list_id: int) -> None:
    for value in [5, True, ["a"], {"a": 1}]:
        reply = stranger.request("DELETE", f"/subscriptions/{list_id}", json={"trace_id": value})
        body = problem(reply, 422, "body.invalid")
        assert [each["field"] for each in body["errors"]] == ["body.trace_id"]


def test_bodies_that_cannot_be_read_are_refused(stranger: httpx2.Client, list_id: int) -> None:
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
def test_a_no_holds_whatever_was_before(
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
    assert data(in_query(stranger, f"/subscriptions/{list_id}", trace_id)) == 1
    assert data(client.patch(f"/lists/{list_id}", json={"confirm_required": False}))
    subscribe(stranger, list_id, reader.email)
    assert known_member(client, list_id, reader.email)["status"] == "pending"
    path = f"/subscriptions/{list_id}/members/{reader.user_id}/email"
    problem(client.put(path, json={"enabled": True}), 409, "subscription.opted_out")
    assert count(client, list_id) == 0


def test_leaving_one_list_is_not_leaving_another(
    client: httpx2.Client, neighbour: httpx2.Client, reader: Reader, list_id: int
) -> None:
    same_owner, other_owner = new_list(client)["id"], new_list(neighbour)["id"]
    reader.joins(list_id).joins(same_owner).joins(other_owner).wants_mail(list_id, False)
    reader.leaves(list_id)
    assert reader.stands(same_owner) == reader.stands(other_owner) == ("active", True)
