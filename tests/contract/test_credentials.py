from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from core.scopes import Scope
from core.secret_form import API_KEY
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from tests.support.http.replies import data, problem
from tests.support.stack.without_workers import KEY_HEADER

ME = "/users/me"


def as_bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def test_api_key_is_accepted_as_bearer_token_and_in_its_header(
    stranger: httpx2.Client, owner: Owner
) -> None:
    for headers in (
        as_bearer(owner.key),
        {"authorization": f"bearer {owner.key}"},
        {"Authorization": f"BEARER  {owner.key}"},
        {"X-API-Key": owner.key},
        {**as_bearer(owner.key), "X-API-Key": owner.key},
    ):
        assert data(stranger.get(ME, headers=headers))["id"] == owner.user_id


def test_setting_changes_the_name_of_the_api_key_header(
    stack_without_workers: Stack, owner_without_workers: Owner
) -> None:
    with stack_without_workers.client() as client:
        named = client.get(ME, headers={KEY_HEADER: owner_without_workers.key})
        assert data(named)["id"] == owner_without_workers.user_id
        usual = client.get(ME, headers={"X-API-Key": owner_without_workers.key})
        problem(usual, 401, "auth.credentials_missing")
        schemes = client.get("/openapi.json").json()["components"]["securitySchemes"]
        assert schemes["apiKey"]["name"] == KEY_HEADER


def test_request_with_two_different_credentials_is_rejected(
    stack: Stack, stranger: httpx2.Client, owner: Owner
) -> None:
    other = stack.create_key(owner.user_id)
    for second in (other, "nonsense", ""):
        headers = {**as_bearer(owner.key), "X-API-Key": second}
        problem(stranger.get(ME, headers=headers), 401, "auth.credentials_disagree")
    twice = [("X-API-Key", owner.key), ("X-API-Key", other)]
    problem(stranger.get(ME, headers=twice), 401, "auth.credentials_disagree")


@pytest.mark.parametrize("sent", ["Basic dTpw", "Bearer", "prk_x", "Token prk_x", ""])
def test_unsupported_authorization_scheme_is_rejected(stranger: httpx2.Client, sent: str) -> None:
    reply = stranger.get(ME, headers={"Authorization": sent})
    assert reply.status_code == 401
    assert reply.headers["www-authenticate"].startswith("Bearer")


def test_malformed_or_unknown_api_key_is_rejected(stranger: httpx2.Client) -> None:
    for key in ("x", "prk_", "prk_" + "0" * 49, "pra_" + "0" * 49, "caf\xe9", API_KEY.generate()):
        headers = httpx2.Headers({"X-API-Key": key}, encoding="latin-1")
        problem(stranger.get(ME, headers=headers), 401, "auth.invalid_credentials")


def test_api_key_consists_of_prefix_and_secret_and_checksum(owner: Owner) -> None:
    assert owner.key.startswith("prk_")
    assert len(owner.key) == 4 + 43 + 6
    assert owner.key[4:].isalnum()


def test_mistyped_api_key_is_rejected_without_a_database_query(
    disconnected_api: httpx2.Client, owner_without_workers: Owner
) -> None:
    key = owner_without_workers.key
    for place in (4, 20, len(key) - 1):
        wrong = "x" if key[place] != "x" else "y"
        typo = key[:place] + wrong + key[place + 1 :]
        problem(disconnected_api.get(ME, headers=as_bearer(typo)), 401, "auth.invalid_credentials")
    # A key in good form needs the database, which this process can't reach.
    problem(disconnected_api.get(ME, headers=as_bearer(key)), 503, "service.unavailable")


def test_revoked_api_key_is_rejected_on_the_next_request(
    client: httpx2.Client, stack: Stack
) -> None:
    made = data(client.post("/apikeys", json={"name": "lost laptop"}))
    with stack.client(made["key"]) as other:
        data(other.get(ME))
        assert data(client.delete(f"/apikeys/{made['id']}")) == 1
        problem(other.get(ME), 401, "auth.invalid_credentials")
    assert data(client.delete(f"/apikeys/{made['id']}")) == 0
    listed = {each["id"]: each for each in data(client.get("/apikeys"))}
    assert listed[made["id"]]["revoked_at"] is not None


def test_api_key_is_shown_only_at_creation_and_stored_only_as_hmac(
    client: httpx2.Client, stack: Stack
) -> None:
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


def test_api_key_without_scopes_has_full_access(client: httpx2.Client, stack: Stack) -> None:
    for body in ({"name": "all"}, {"name": "all", "scopes": None}):
        made = data(client.post("/apikeys", json=body))
        assert (made["scopes"], made["expires_at"]) == (None, None)
        with stack.client(made["key"]) as other:
            data(other.get("/attachments"))
            data(other.get("/apikeys"))


def test_restricted_api_key_works_only_within_its_scopes_and_creates_no_keys(
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


def test_api_key_with_empty_scopes_has_no_access(client: httpx2.Client, stack: Stack) -> None:
    made = data(client.post("/apikeys", json={"name": "nothing", "scopes": []}))
    with stack.client(made["key"]) as other:
        problem(other.get("/attachments"), 403, "auth.insufficient_scope")
        problem(other.get("/apikeys"), 403, "auth.restricted_credential")


def test_delivery_scope_cannot_be_granted_through_the_api(client: httpx2.Client) -> None:
    reply = client.post("/apikeys", json={"name": "sender", "scopes": ["attachment", "delivery"]})
    problem(reply, 403, "auth.scope_not_grantable")
    assert all(each["name"] != "sender" for each in data(client.get("/apikeys")))


def test_api_key_requires_a_name_of_at_most_200_characters(client: httpx2.Client) -> None:
    problem(client.post("/apikeys", json={"name": ""}), 422, "body.invalid")
    problem(client.post("/apikeys", json={"name": "n" * 201}), 422, "body.invalid")
    problem(client.post("/apikeys", json={"name": "   "}), 422, "api_key.name")


def test_credentials_in_query_parameters_are_ignored(stranger: httpx2.Client, owner: Owner) -> None:
    for name in ("api_key", "access_token", "X-API-Key"):
        problem(stranger.get(ME, params={name: owner.key}), 401, "auth.credentials_missing")


def test_last_use_of_an_api_key_is_recorded(stack: Stack, owner: Owner) -> None:
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


def test_api_key_is_rejected_after_its_expiry(stack: Stack, client: httpx2.Client) -> None:
    made = data(client.post("/apikeys", json={"name": "short", "expires_at": in_days(1)}))
    assert stack.is_accepted(made["key"])
    age = "UPDATE api_keys SET expires_at = now() - interval '1 second' WHERE id = %s"
    stack.query(age, made["id"])
    with stack.client(made["key"]) as late:
        problem(late.get("/users/me"), 401, "auth.invalid_credentials")
    [listed] = [each for each in data(client.get("/apikeys")) if each["id"] == made["id"]]
    assert listed["revoked_at"] is None
    assert listed["expires_at"] < in_days(0)


def test_api_key_expiry_requires_a_future_time_with_time_zone(client: httpx2.Client) -> None:
    reply = client.post("/apikeys", json={"name": "past", "expires_at": in_days(-1)})
    assert problem(reply, 422, "api_key.expiry")["errors"][0]["field"] == "expires_at"
    for wrong in ("tomorrow", 1_900_000_000, "2030-01-01T00:00:00"):
        reply = client.post("/apikeys", json={"name": "wrong", "expires_at": wrong})
        problem(reply, 422, "body.invalid")


def test_api_key_created_by_another_key_expires_and_is_revoked_with_that_key(
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


def test_scope_that_only_a_newer_release_knows_is_ignored(
    stack: Stack, owner: Owner, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    """During an upgrade, a newer release creates keys that this release must accept too."""
    key = stack.create_key(owner.user_id, Scope.CREDIT_READ, Scope.WEBHOOK)
    [record] = [each for each in data(client.get("/apikeys")) if each["scopes"]]
    statement = "UPDATE api_keys SET scopes = '{credit.read,later.scope}' WHERE id = %s"
    stack.query(statement, record["id"])
    data(stranger.get("/auxilia/credits/balance", headers=as_bearer(key)))
    [record] = [each for each in data(client.get("/apikeys")) if each["id"] == record["id"]]
    assert record["scopes"] == ["credit.read"]
