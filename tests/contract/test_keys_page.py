"""Keys that expire, and end with the key that made them."""

from datetime import UTC, datetime, timedelta

import httpx

from tests.contract.replies import data, problem
from tests.stack import Stack


def opens(stack: Stack, key: str) -> bool:
    with stack.client(key) as client:
        return client.get("/users/me").status_code == 200


def in_days(days: float) -> str:
    return (datetime.now(UTC) + timedelta(days=days)).isoformat()


def expire(stack: Stack, key_id: int) -> None:
    stack.query(
        "UPDATE api_keys SET expires_at = now() - interval '1 second' WHERE id = %s", key_id
    )


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
