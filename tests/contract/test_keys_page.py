"""Keys that expire, and the page on which people see, make and end their keys."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from core.scopes import EXPLANATIONS, Scope
from tests.contract.replies import data, problem
from tests.stack import Stack
from tests.visiting import Visitor, a_visitor, new_account, user_id_of

KEYS, NEW = "/account/keys", "/account/keys/new"


@pytest.fixture
def email(stack: Stack) -> str:
    return new_account(stack)


@pytest.fixture
def member(stack: Stack, email: str) -> Iterator[Visitor]:
    with a_visitor(stack) as visitor:
        visitor.log_in(email)
        yield visitor


def opens(stack: Stack, key: str) -> bool:
    with stack.client(key) as client:
        return client.get("/users/me").status_code == 200


def in_days(days: float) -> str:
    return (datetime.now(UTC) + timedelta(days=days)).isoformat()


def expire(stack: Stack, key_id: int) -> None:
    stack.query(
        "UPDATE api_keys SET expires_at = now() - interval '1 second' WHERE id = %s", key_id
    )


# -- by the API ----------------------------------------------------------------------------------


def test_a_key_works_until_it_expires(stack: Stack, client: httpx.Client) -> None:
    made = data(client.post("/apikeys", json={"name": "short", "expires_at": in_days(1)}))
    assert opens(stack, made["key"])
    expire(stack, made["id"])
    with stack.client(made["key"]) as late:
        problem(late.get("/users/me"), 401, "auth.invalid_credentials")
    [listed] = [each for each in data(client.get("/apikeys")) if each["id"] == made["id"]]
    assert listed["revoked_at"] is None
    assert listed["expires_at"] < in_days(0)


def test_a_key_without_an_expiry_lasts(client: httpx.Client) -> None:
    for body in ({"name": "a"}, {"name": "b", "expires_at": None}):
        assert data(client.post("/apikeys", json=body))["expires_at"] is None


def test_an_expiry_is_a_moment_to_come(client: httpx.Client) -> None:
    reply = client.post("/apikeys", json={"name": "past", "expires_at": in_days(-1)})
    assert problem(reply, 422, "api_key.expiry")["errors"][0]["field"] == "expires_at"
    for wrong in ("tomorrow", 1_900_000_000, "2030-01-01T00:00:00"):
        reply = client.post("/apikeys", json={"name": "wrong", "expires_at": wrong})
        problem(reply, 422, "body.invalid")


def test_a_key_that_a_key_made_expires_and_ends_with_it(stack: Stack, client: httpx.Client) -> None:
    first = data(client.post("/apikeys", json={"name": "first", "expires_at": in_days(1)}))
    with stack.client(first["key"]) as by_first:
        for wanted in (None, in_days(2)):
            made = data(by_first.post("/apikeys", json={"name": "n", "expires_at": wanted}))
            assert made["expires_at"] == first["expires_at"]
        second = data(by_first.post("/apikeys", json={"name": "s", "expires_at": in_days(0.5)}))
        assert second["expires_at"] < first["expires_at"]
    with stack.client(second["key"]) as by_second:
        third = data(by_second.post("/apikeys", json={"name": "third"}))
    assert data(client.delete(f"/apikeys/{first['id']}")) == 1
    for each in (first, second, made, third):
        assert not opens(stack, each["key"])
    assert data(client.delete(f"/apikeys/{third['id']}")) == 0
    data(client.get("/users/me"))


# -- by the page ---------------------------------------------------------------------------------


def make(member: Visitor, **fields: str) -> httpx.Response:
    form = {"name": "upload script", "reach": "chosen", "lifetime": "90", **fields}
    return member.fill_in(NEW, **form)


def test_the_page_makes_shows_and_ends_keys(stack: Stack, member: Visitor, email: str) -> None:
    assert "You have no key." in member.get(KEYS).text
    shown = make(member, **{"scope.attachment": "on"})
    assert shown.status_code == 200
    assert shown.headers["cache-control"] == "no-store"
    [key] = re.findall(r"prk_\w+", shown.text)
    with stack.client(key) as client:
        data(client.get("/attachments"))
        problem(client.get("/lists"), 403, "auth.insufficient_scope")
    page = member.get(KEYS).text
    assert key not in page
    assert "upload script" in page
    assert EXPLANATIONS[Scope.ATTACHMENT] in page
    days = "SELECT extract(days FROM expires_at - now()) FROM api_keys WHERE user_id = %s"
    assert stack.query(days, user_id_of(stack, email)) == [(89,)]
    [key_id] = re.findall(r'name="key_id" value="(\d+)"', page)
    form = {"csrf_token": member.csrf_token(), "key_id": key_id}
    assert member.client.post(KEYS, data={**form, "csrf_token": "x"}).status_code == 403
    assert opens(stack, key)
    assert member.client.post(KEYS, data=form).status_code == 303
    assert not opens(stack, key)
    assert "You have no key." in member.get(KEYS).text


def test_an_unrestricted_key_is_a_choice_of_its_own(stack: Stack, member: Visitor) -> None:
    nothing = make(member)
    assert nothing.status_code == 422
    assert "Tick what the key may do." in nothing.text
    shown = make(member, reach="all", lifetime="")
    [key] = re.findall(r"prk_\w+", shown.text)
    with stack.client(key) as client:
        [made] = data(client.get("/apikeys"))
    assert (made["scopes"], made["expires_at"]) == (None, None)
    page = member.get(KEYS).text
    assert "It may do all that you may." in page
    assert "lasts until you end it" in page


def test_the_page_gives_no_scope_that_the_operator_gives(
    stack: Stack, member: Visitor, email: str
) -> None:
    ticked = {"scope.delivery": "on", "scope.attachment": "on"}
    assert make(member, **ticked).status_code == 200
    scopes = "SELECT scopes FROM api_keys WHERE user_id = %s"
    assert stack.query(scopes, user_id_of(stack, email)) == [(["attachment"],)]


@pytest.mark.parametrize("fields", [{"name": ""}, {"name": "n" * 201}, {"lifetime": "7"}])
def test_what_the_page_does_not_offer_is_refused(
    stack: Stack, member: Visitor, email: str, fields: dict[str, str]
) -> None:
    assert make(member, **{"scope.attachment": "on"}, **fields).status_code == 422
    user_id = user_id_of(stack, email)
    assert stack.query("SELECT 1 FROM api_keys WHERE user_id = %s", user_id) == []


def test_no_person_ends_a_key_of_another(
    stack: Stack, member: Visitor, client: httpx.Client
) -> None:
    made = data(client.post("/apikeys", json={"name": "theirs"}))
    for wanted in (str(made["id"]), "0", "", "x", "9" * 30, "-1", "٣"):
        form = {"csrf_token": member.csrf_token(), "key_id": wanted}
        assert member.client.post(KEYS, data=form).status_code == 404
    assert opens(stack, made["key"])


def test_expired_keys_are_not_on_the_page(stack: Stack, member: Visitor, email: str) -> None:
    make(member, **{"scope.attachment": "on"})
    [(key_id,)] = stack.query(
        "SELECT id FROM api_keys WHERE user_id = %s", user_id_of(stack, email)
    )
    assert isinstance(key_id, int)
    expire(stack, key_id)
    assert "You have no key." in member.get(KEYS).text
