from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from core.secret_form import API_KEY
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from tests.support.http.replies import data, problem
from tests.support.stack.without_workers import KEY_HEADER

ME = "/users/me"


def as_bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def test_key_is_accepted_as_bearer_and_in_its_header(stranger: httpx2.Client, owner: Owner) -> None:
    for headers in (
        as_bearer(owner.key),
        {"authorization": f"bearer {owner.key}"},
        {"Authorization": f"BEARER  {owner.key}"},
        {"X-API-Key": owner.key},
        {**as_bearer(owner.key), "X-API-Key": owner.key},
    ):
        assert data(stranger.get(ME, headers=headers))["id"] == owner.user_id


def test_setting_names_the_header_of_the_key(
    stack_without_workers: Stack, owner_without_workers: Owner
) -> None:
    with stack_without_workers.client() as client:
        named = client.get(ME, headers={KEY_HEADER: owner_without_workers.key})
        assert data(named)["id"] == owner_without_workers.user_id
        usual = client.get(ME, headers={"X-API-Key": owner_without_workers.key})
        problem(usual, 401, "auth.credentials_missing")
        schemes = client.get("/openapi.json").json()["components"]["securitySchemes"]
        assert schemes["apiKey"]["name"] == KEY_HEADER


def test_credentials_that_disagree_are_refused_even_when_one_is_good(
    stack: Stack, stranger: httpx2.Client, owner: Owner
) -> None:
    other = stack.create_key(owner.user_id)
    for second in (other, "nonsense", ""):
        headers = {**as_bearer(owner.key), "X-API-Key": second}
        problem(stranger.get(ME, headers=headers), 401, "auth.credentials_disagree")
    twice = [("X-API-Key", owner.key), ("X-API-Key", other)]
    problem(stranger.get(ME, headers=twice), 401, "auth.credentials_disagree")


@pytest.mark.parametrize("sent", ["Basic dTpw", "Bearer", "prk_x", "Token prk_x", ""])
def test_other_schemes_are_401(stranger: httpx2.Client, sent: str) -> None:
    reply = stranger.get(ME, headers={"Authorization": sent})
    assert reply.status_code == 401
    assert reply.headers["www-authenticate"].startswith("Bearer")


def test_what_is_no_key_is_401(stranger: httpx2.Client) -> None:
    for key in ("x", "prk_", "prk_" + "0" * 49, "pra_" + "0" * 49, "caf\xe9", API_KEY.generate()):
        headers = httpx2.Headers({"X-API-Key": key}, encoding="latin-1")
        problem(stranger.get(ME, headers=headers), 401, "auth.invalid_credentials")


def test_key_form_is_prefix_secret_and_checksum(owner: Owner) -> None:
    assert owner.key.startswith("prk_")
    assert len(owner.key) == 4 + 43 + 6
    assert owner.key[4:].isalnum()


def test_mistyped_key_is_refused_without_a_query(
    disconnected_api: httpx2.Client, owner_without_workers: Owner
) -> None:
    key = owner_without_workers.key
    for place in (4, 20, len(key) - 1):
        wrong = "x" if key[place] != "x" else "y"
        typo = key[:place] + wrong + key[place + 1 :]
        problem(disconnected_api.get(ME, headers=as_bearer(typo)), 401, "auth.invalid_credentials")
    # A key in good form needs the database, which this process can't reach.
    problem(disconnected_api.get(ME, headers=as_bearer(key)), 503, "service.unavailable")


def test_revoked_key_is_refused_on_the_next_request(client: httpx2.Client, stack: Stack) -> None:
    made = data(client.post("/apikeys", json={"name": "lost laptop"}))
    with stack.client(made["key"]) as other:
        data(other.get(ME))
        assert data(client.delete(f"/apikeys/{made['id']}")) == 1
        problem(other.get(ME), 401, "auth.invalid_credentials")
    assert data(client.delete(f"/apikeys/{made['id']}")) == 0
    listed = {each["id"]: each for each in data(client.get("/apikeys"))}
    assert listed[made["id"]]["revoked_at"] is not None


def test_key_is_shown_once_and_only_its_hmac_is_stored(client: httpx2.Client, stack: Stack) -> None:
    made = data(client.post("/apikeys", json={"name": "  import script "}))
    assert made["name"] == "import script"
    assert made["key"].endswith(made["last_four"])
    listed = client.get("/apikeys").text
    assert made["key"] not in listed
    [(row,)] = stack.query("SELECT row_to_json(k)::text FROM api_keys k WHERE id = %s", made["id"])
    assert made["key"] not in str(row)
    assert made["key"][4:20] not in str(row)
    query = "SELECT encode(secret_hmac, 'hex') FROM api_keys WHERE id = %s"
    [(stored,)] = stack.query(query, made["id"])
    expected = stack.settings().keyring.signer("api-key").digest(made["key"].encode())
    assert stored == expected.hex()


def test_key_without_scopes_has_all_of_its_users(client: httpx2.Client, stack: Stack) -> None:
    for body in ({"name": "all"}, {"name": "all", "scopes": None}):
        made = data(client.post("/apikeys", json=body))
        assert (made["scopes"], made["expires_at"]) == (None, None)
        with stack.client(made["key"]) as other:
            data(other.get("/attachments"))
            data(other.get("/apikeys"))


def test_restricted_key_works_within_its_scopes_and_makes_no_keys(
    stack: Stack, client: httpx2.Client
) -> None:
    made = data(client.post("/apikeys", json={"name": "uploads", "scopes": ["attachment"]}))
    assert made["scopes"] == ["attachment"]
    with stack.client(made["key"]) as restricted:
        data(restricted.get("/attachments"))
        for method, path in (("GET", "/apikeys"), ("DELETE", f"/apikeys/{made['id']}")):
            problem(restricted.request(method, path), 403, "auth.restricted_credential")
        reply = restricted.post("/apikeys", json={"name": "more"})
        problem(reply, 403, "auth.restricted_credential")


def test_key_with_an_empty_list_of_scopes_may_do_nothing(
    client: httpx2.Client, stack: Stack
) -> None:
    made = data(client.post("/apikeys", json={"name": "nothing", "scopes": []}))
    with stack.client(made["key"]) as other:
        problem(other.get("/attachments"), 403, "auth.insufficient_scope")
        problem(other.get("/apikeys"), 403, "auth.restricted_credential")


def test_delivery_is_not_grantable(client: httpx2.Client) -> None:
    reply = client.post("/apikeys", json={"name": "sender", "scopes": ["attachment", "delivery"]})
    problem(reply, 403, "auth.scope_not_grantable")
    assert all(each["name"] != "sender" for each in data(client.get("/apikeys")))


def test_keys_have_a_name(client: httpx2.Client) -> None:
    problem(client.post("/apikeys", json={"name": ""}), 422, "body.invalid")
    problem(client.post("/apikeys", json={"name": "n" * 201}), 422, "body.invalid")
    problem(client.post("/apikeys", json={"name": "   "}), 422, "api_key.name")


def test_credentials_in_the_address_do_not_count(stranger: httpx2.Client, owner: Owner) -> None:
    for name in ("api_key", "access_token", "X-API-Key"):
        problem(stranger.get(ME, params={name: owner.key}), 401, "auth.credentials_missing")


def test_last_use_of_a_key_is_noted(stack: Stack, owner: Owner) -> None:
    query = "SELECT last_used_at FROM api_keys WHERE user_id = %s"

    def last_use() -> Any:
        [(when,)] = stack.query(query, owner.user_id)
        return when

    with stack.client(owner.key) as client:
        data(client.get(ME))
        first = eventually(last_use)
        age = "UPDATE api_keys SET last_used_at = last_used_at - interval '1 hour'"
        stack.query(f"{age} WHERE user_id = %s", owner.user_id)
        data(client.get(ME))
        assert eventually(lambda: last_use() > first)


def in_days(days: float) -> str:
    return (datetime.now(UTC) + timedelta(days=days)).isoformat()


def test_a_key_works_until_it_expires(stack: Stack, client: httpx2.Client) -> None:
    made = data(client.post("/apikeys", json={"name": "short", "expires_at": in_days(1)}))
    assert stack.is_accepted(made["key"])
    age = "UPDATE api_keys SET expires_at = now() - interval '1 second' WHERE id = %s"
    stack.query(age, made["id"])
    with stack.client(made["key"]) as late:
        problem(late.get("/users/me"), 401, "auth.invalid_credentials")
    [listed] = [each for each in data(client.get("/apikeys")) if each["id"] == made["id"]]
    assert listed["revoked_at"] is None
    assert listed["expires_at"] < in_days(0)


def test_an_expiry_is_a_moment_to_come(client: httpx2.Client) -> None:
    reply = client.post("/apikeys", json={"name": "past", "expires_at": in_days(-1)})
    assert problem(reply, 422, "api_key.expiry")["errors"][0]["field"] == "expires_at"
    for wrong in ("tomorrow", 1_900_000_000, "2030-01-01T00:00:00"):
        reply = client.post("/apikeys", json={"name": "wrong", "expires_at": wrong})
        problem(reply, 422, "body.invalid")


def test_a_key_that_a_key_made_expires_and_ends_with_it(
    stack: Stack, client: httpx2.Client
) -> None:
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
        assert not stack.is_accepted(each["key"])
    assert data(client.delete(f"/apikeys/{third['id']}")) == 0
    data(client.get("/users/me"))
