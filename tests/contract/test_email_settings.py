"""The list's mail switched off and on by its reader, and off by one click of a mail client."""

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from core.scopes import Scope
from tests.contract.replies import data, problem
from tests.contract.subscribers import Reader, count, known_member, new_list, subscribe, trace_for
from tests.stack import Stack

UINT64_MAX = 2**64 - 1
ONE_CLICK = {"List-Unsubscribe": "One-Click"}


def set_by_trace(
    caller: httpx2.Client, list_id: int, trace_id: str, enabled: object, where: str = "json"
) -> httpx2.Response:
    path = f"/subscriptions/{list_id}/email"
    if where == "query":
        return caller.put(path, params={"trace_id": trace_id}, json={"enabled": enabled})
    if where == "form":
        return caller.put(path, data={"trace_id": trace_id, "enabled": str(enabled).lower()})
    return caller.put(path, json={"trace_id": trace_id, "enabled": enabled})


@pytest.mark.parametrize("where", ["query", "json", "form"])
def test_a_trace_id_switches_mail_off_and_on(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, reader: Reader, where: str
) -> None:
    list_id = new_list(client)["id"]
    reader.joins(list_id)
    trace_id = trace_for(stack, list_id, reader.user_id)
    for enabled in (False, False, True, True, False):
        assert data(set_by_trace(stranger, list_id, trace_id, enabled, where)) == 1
        assert reader.stands(list_id) == ("active", enabled)
    assert count(client, list_id) == 1


def test_a_login_switches_its_own_mail_off_and_on(
    make_reader: Callable[[], Reader], list_id: int
) -> None:
    one, two = make_reader().joins(list_id), make_reader().joins(list_id)
    for enabled in (False, False, True, True, False):
        one.wants_mail(list_id, enabled)
        assert one.stands(list_id) == ("active", enabled)
        assert two.stands(list_id) == ("active", True)


def test_mail_on_does_not_bring_back_who_left(
    client: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id).leaves(list_id).wants_mail(list_id, enabled=True)
    assert reader.stands(list_id) == ("unsubscribed", True)
    assert count(client, list_id) == 0


def test_a_no_without_a_subscription_is_kept(
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


def test_enabled_is_a_boolean(reader: Reader, list_id: int) -> None:
    reader.joins(list_id)
    for body in ({}, {"enabled": None}, {"enabled": 1}, {"enabled": "true"}):
        reply = reader.client.put(f"/subscriptions/{list_id}/email", json=body)
        found = problem(reply, 422, "body.invalid")
        assert [each["field"] for each in found["errors"]] == ["body.enabled"]
        assert reader.stands(list_id) == ("active", True)


def test_enabled_in_a_form_is_one_of_its_words(reader: Reader, list_id: int) -> None:
    path = f"/subscriptions/{list_id}/email"
    reader.joins(list_id)
    problem(reader.client.put(path, data={"enabled": "yes"}), 422, "body.invalid")
    assert data(reader.client.put(path, data={"enabled": "False"})) == 1
    assert reader.stands(list_id) == ("active", False)


@pytest.mark.parametrize("where", ["query", "body"])
def test_one_click_of_a_mail_client_switches_mail_off(
    stack: Stack, stranger: httpx2.Client, reader: Reader, list_id: int, where: str
) -> None:
    """RFC 8058: a POST without credentials, urlencoded or multipart."""
    reader.joins(list_id)
    trace_id = trace_for(stack, list_id, reader.user_id)
    query = {"trace_id": trace_id} if where == "query" else {}
    fields = {**ONE_CLICK, **({} if query else {"trace_id": trace_id})}
    parts = {name: (None, value) for name, value in fields.items()}
    path = f"/subscriptions/{list_id}/delete"
    bodies: list[dict[str, Any]] = [{"data": fields}, {"files": parts}]
    for body in bodies:
        reader.wants_mail(list_id, enabled=True)
        for _ in range(2):
            assert data(stranger.post(path, params=query, **body)) == 1
            assert reader.stands(list_id) == ("active", False)


def test_mail_is_switched_off_by_json_by_no_body_and_by_a_login(
    stack: Stack, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    path, trace_id = f"/subscriptions/{list_id}/delete", trace_for(stack, list_id, reader.user_id)
    calls: list[tuple[httpx2.Client, dict[str, Any]]] = [
        (stranger, {"json": {"trace_id": trace_id}}),
        (stranger, {"params": {"trace_id": trace_id}}),
        (reader.client, {}),
        (reader.client, {"data": ONE_CLICK}),
    ]
    for caller, sent in calls:
        reader.wants_mail(list_id, enabled=True)
        assert data(caller.request("POST", path, **sent)) == 1
        assert reader.stands(list_id) == ("active", False)


def test_nothing_but_a_post_is_one_click(
    stack: Stack, stranger: httpx2.Client, reader: Reader, list_id: int
) -> None:
    reader.joins(list_id)
    path = f"/subscriptions/{list_id}/delete"
    query = {"trace_id": trace_for(stack, list_id, reader.user_id)}
    for method in ("GET", "PUT", "DELETE", "PATCH"):
        reply = stranger.request(method, path, params=query)
        problem(reply, 405, "route.method_not_allowed")
        assert reply.headers["allow"] == "POST"
    assert stranger.head(path, params=query).status_code == 405
    assert reader.stands(list_id) == ("active", True)


# Beside its mail, a person switches the whole subscription off.
each_way = pytest.mark.parametrize(
    ("method", "name"), [("PUT", "/email"), ("POST", "/delete"), ("DELETE", "")]
)


@each_way
def test_neither_trace_id_nor_login_is_401(
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
def test_each_way_refuses_what_names_another_list_person_or_credential(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, method: str, name: str
) -> None:
    letter, other = new_list(client), new_list(client)["id"]
    person = stack.new_owner()
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
    with stack.client(stack.new_key(person.user_id, Scope.SUBSCRIPTION_READ)) as reading:
        problem(send(letter["id"], reading), 403, "auth.insufficient_scope")
    with stack.client("prk_nonsense") as mistaken:
        problem(send(letter["id"], mistaken), 401, "auth.invalid_credentials")
        assert data(send(letter["id"], mistaken, trace_id=trace_id)) == 1
    both = f"/subscriptions/{letter['id']}{name}?trace_id={trace_id}"
    reply = stranger.request(method, both, json={"trace_id": f"{trace_id}A", "enabled": False})
    problem(reply, 400, "trace.ambiguous")
    reply = stranger.request(method, both, json={"trace_id": trace_id, "enabled": False})
    assert data(reply) == 1
