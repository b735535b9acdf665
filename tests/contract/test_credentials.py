"""Tests of API keys: how they are sent, stored, restricted, revoked and expired."""

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

USER_PATH = "/users/me"


def bearer_header(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def test_api_key_is_accepted_as_bearer_token_and_in_its_header(
    stranger: httpx2.Client, owner: Owner
) -> None:
    for headers in (
        bearer_header(owner.key),
        {"authorization": f"bearer {owner.key}"},
        {"Authorization": f"BEARER  {owner.key}"},
        {"X-API-Key": owner.key},
        {**bearer_header(owner.key), "X-API-Key": owner.key},
    ):
        assert data(stranger.get(USER_PATH, headers=headers))["id"] == owner.user_id


def test_setting_changes_the_name_of_the_api_key_header(
    stack_without_workers: Stack, owner_without_workers: Owner
) -> None:
    with stack_without_workers.client() as client:
        accepted_reply = client.get(USER_PATH, headers={KEY_HEADER: owner_without_workers.key})
        assert data(accepted_reply)["id"] == owner_without_workers.user_id
        rejected_reply = client.get(USER_PATH, headers={"X-API-Key": owner_without_workers.key})
        problem(rejected_reply, 401, "auth.credentials_missing")
        schemes = client.get("/openapi.json").json()["components"]["securitySchemes"]
        assert schemes["apiKey"]["name"] == KEY_HEADER


def test_request_with_two_different_credentials_is_rejected(
    stack: Stack, stranger: httpx2.Client, owner: Owner
) -> None:
    other_key = stack.create_key(owner.user_id)
    for second_credential in (other_key, "nonsense", ""):
        headers = {**bearer_header(owner.key), "X-API-Key": second_credential}
        problem(stranger.get(USER_PATH, headers=headers), 401, "auth.credentials_disagree")
    repeated_header = [("X-API-Key", owner.key), ("X-API-Key", other_key)]
    problem(stranger.get(USER_PATH, headers=repeated_header), 401, "auth.credentials_disagree")


@pytest.mark.parametrize("header_value", ["Basic dTpw", "Bearer", "prk_x", "Token prk_x", ""])
def test_unsupported_authorization_scheme_is_rejected(
    stranger: httpx2.Client, header_value: str
) -> None:
    reply = stranger.get(USER_PATH, headers={"Authorization": header_value})
    assert reply.status_code == 401
    assert reply.headers["www-authenticate"].startswith("Bearer")


def test_malformed_or_unknown_api_key_is_rejected(stranger: httpx2.Client) -> None:
    for key in ("x", "prk_", "prk_" + "0" * 49, "pra_" + "0" * 49, "caf\xe9", API_KEY.generate()):
        headers = httpx2.Headers({"X-API-Key": key}, encoding="latin-1")
        problem(stranger.get(USER_PATH, headers=headers), 401, "auth.invalid_credentials")


def test_api_key_consists_of_prefix_and_secret_and_checksum(owner: Owner) -> None:
    assert owner.key.startswith("prk_")
    assert len(owner.key) == 4 + 43 + 6
    assert owner.key[4:].isalnum()


def test_mistyped_api_key_is_rejected_without_a_database_query(
    disconnected_api: httpx2.Client, owner_without_workers: Owner
) -> None:
    key = owner_without_workers.key
    for position in (4, 20, len(key) - 1):
        wrong_character = "x" if key[position] != "x" else "y"
        typo = key[:position] + wrong_character + key[position + 1 :]
        problem(
            disconnected_api.get(USER_PATH, headers=bearer_header(typo)),
            401,
            "auth.invalid_credentials",
        )
    # If the checksum of an API key is correct, the API looks the key up in the database. This API
    # process can't reach the database.
    problem(disconnected_api.get(USER_PATH, headers=bearer_header(key)), 503, "service.unavailable")


def test_revoked_api_key_is_rejected_on_the_next_request(
    client: httpx2.Client, stack: Stack
) -> None:
    api_key = data(client.post("/apikeys", json={"name": "lost laptop"}))
    with stack.client(api_key["key"]) as key_client:
        data(key_client.get(USER_PATH))
        assert data(client.delete(f"/apikeys/{api_key['id']}")) == 1
        problem(key_client.get(USER_PATH), 401, "auth.invalid_credentials")
    assert data(client.delete(f"/apikeys/{api_key['id']}")) == 0
    keys_by_id = {each["id"]: each for each in data(client.get("/apikeys"))}
    assert keys_by_id[api_key["id"]]["revoked_at"] is not None


def test_api_key_is_shown_only_at_creation_and_stored_only_as_hmac(
    client: httpx2.Client, stack: Stack
) -> None:
    api_key = data(client.post("/apikeys", json={"name": "  import script "}))
    assert api_key["name"] == "import script"
    assert api_key["key"].endswith(api_key["last_four"])
    key_list = client.get("/apikeys").text
    assert api_key["key"] not in key_list
    [(row,)] = stack.query(
        "SELECT row_to_json(k)::text FROM api_keys k WHERE id = %s", api_key["id"]
    )
    assert api_key["key"] not in str(row)
    assert api_key["key"][4:20] not in str(row)
    query = "SELECT encode(secret_hmac, 'hex') FROM api_keys WHERE id = %s"
    [(stored_hmac,)] = stack.query(query, api_key["id"])
    expected_hmac = stack.settings().keyring.signer("api-key").digest(api_key["key"].encode())
    assert stored_hmac == expected_hmac.hex()


@pytest.mark.parametrize("body", [{"name": "all"}, {"name": "all", "scopes": None}])
def test_api_key_without_scopes_has_full_access(
    client: httpx2.Client, stack: Stack, body: dict[str, Any]
) -> None:
    api_key = data(client.post("/apikeys", json=body))
    assert (api_key["scopes"], api_key["expires_at"]) == (None, None)
    with stack.client(api_key["key"]) as key_client:
        data(key_client.get("/attachments"))
        data(key_client.get("/apikeys"))


def test_restricted_api_key_works_only_within_its_scopes_and_creates_no_keys(
    stack: Stack, client: httpx2.Client
) -> None:
    api_key = data(client.post("/apikeys", json={"name": "uploads", "scopes": ["attachment"]}))
    assert api_key["scopes"] == ["attachment"]
    with stack.client(api_key["key"]) as restricted_client:
        data(restricted_client.get("/attachments"))
        for method, path in (("GET", "/apikeys"), ("DELETE", f"/apikeys/{api_key['id']}")):
            problem(restricted_client.request(method, path), 403, "auth.restricted_credential")
        reply = restricted_client.post("/apikeys", json={"name": "more"})
        problem(reply, 403, "auth.restricted_credential")


def test_api_key_with_empty_scopes_has_no_access(client: httpx2.Client, stack: Stack) -> None:
    api_key = data(client.post("/apikeys", json={"name": "nothing", "scopes": []}))
    with stack.client(api_key["key"]) as key_client:
        problem(key_client.get("/attachments"), 403, "auth.insufficient_scope")
        problem(key_client.get("/apikeys"), 403, "auth.restricted_credential")


def test_delivery_scope_of_every_list_cannot_be_granted_through_the_api(
    client: httpx2.Client,
) -> None:
    reply = client.post("/apikeys", json={"name": "sender", "scopes": ["attachment", "delivery"]})
    problem(reply, 403, "auth.insufficient_scope")
    assert all(each["name"] != "sender" for each in data(client.get("/apikeys")))


def test_api_key_requires_a_name_of_at_most_200_characters(client: httpx2.Client) -> None:
    problem(client.post("/apikeys", json={"name": ""}), 422, "body.invalid")
    problem(client.post("/apikeys", json={"name": "n" * 201}), 422, "body.invalid")
    problem(client.post("/apikeys", json={"name": "   "}), 422, "api_key.name")


@pytest.mark.parametrize("name", ["api_key", "access_token", "X-API-Key"])
def test_credentials_in_query_parameters_are_ignored(
    stranger: httpx2.Client, owner: Owner, name: str
) -> None:
    problem(stranger.get(USER_PATH, params={name: owner.key}), 401, "auth.credentials_missing")


def test_last_use_of_an_api_key_is_recorded(stack: Stack, owner: Owner) -> None:
    query = "SELECT last_used_at FROM api_keys WHERE user_id = %s"

    def read_last_use() -> Any:
        [(last_used_at,)] = stack.query(query, owner.user_id)
        return last_used_at

    with stack.client(owner.key) as client:
        data(client.get(USER_PATH))
        first_use = eventually(read_last_use)
        age_keys = "UPDATE api_keys SET last_used_at = last_used_at - interval '1 hour'"
        stack.query(f"{age_keys} WHERE user_id = %s", owner.user_id)
        data(client.get(USER_PATH))
        assert eventually(lambda: read_last_use() > first_use)


def days_from_now(days: float) -> str:
    return (datetime.now(UTC) + timedelta(days=days)).isoformat()


def test_api_key_is_rejected_after_its_expiry(stack: Stack, client: httpx2.Client) -> None:
    api_key = data(client.post("/apikeys", json={"name": "short", "expires_at": days_from_now(1)}))
    assert stack.is_accepted(api_key["key"])
    expire_key = "UPDATE api_keys SET expires_at = now() - interval '1 second' WHERE id = %s"
    stack.query(expire_key, api_key["id"])
    with stack.client(api_key["key"]) as expired_client:
        problem(expired_client.get("/users/me"), 401, "auth.invalid_credentials")
    [listed_key] = [each for each in data(client.get("/apikeys")) if each["id"] == api_key["id"]]
    assert listed_key["revoked_at"] is None
    assert listed_key["expires_at"] < days_from_now(0)


def test_api_key_expiry_requires_a_future_time_with_time_zone(client: httpx2.Client) -> None:
    reply = client.post("/apikeys", json={"name": "past", "expires_at": days_from_now(-1)})
    assert problem(reply, 422, "api_key.expiry")["errors"][0]["field"] == "body.expires_at"
    for invalid_expiry in ("tomorrow", 1_900_000_000, "2030-01-01T00:00:00"):
        reply = client.post("/apikeys", json={"name": "wrong", "expires_at": invalid_expiry})
        problem(reply, 422, "body.invalid")


def test_api_key_created_by_another_key_expires_and_is_revoked_with_that_key(
    stack: Stack, client: httpx2.Client
) -> None:
    first_key = data(
        client.post("/apikeys", json={"name": "first", "expires_at": days_from_now(1)})
    )
    with stack.client(first_key["key"]) as first_client:
        for requested_expiry in (None, days_from_now(2)):
            child_key = data(
                first_client.post("/apikeys", json={"name": "n", "expires_at": requested_expiry})
            )
            assert child_key["expires_at"] == first_key["expires_at"]
        second_key = data(
            first_client.post("/apikeys", json={"name": "s", "expires_at": days_from_now(0.5)})
        )
        assert second_key["expires_at"] < first_key["expires_at"]
    with stack.client(second_key["key"]) as second_client:
        third_key = data(second_client.post("/apikeys", json={"name": "third"}))
    assert data(client.delete(f"/apikeys/{first_key['id']}")) == 1
    for each in (first_key, second_key, child_key, third_key):
        assert not stack.is_accepted(each["key"])
    assert data(client.delete(f"/apikeys/{third_key['id']}")) == 0
    data(client.get("/users/me"))


def test_scope_that_only_a_newer_release_knows_is_ignored(
    stack: Stack, owner: Owner, client: httpx2.Client, stranger: httpx2.Client
) -> None:
    """During an upgrade, a newer release may give API keys scopes unknown to this release."""
    key = stack.create_key(owner.user_id, Scope.CREDIT_READ, Scope.WEBHOOK)
    [record] = [each for each in data(client.get("/apikeys")) if each["scopes"]]
    add_unknown_scope = "UPDATE api_keys SET scopes = '{credit.read,later.scope}' WHERE id = %s"
    stack.query(add_unknown_scope, record["id"])
    data(stranger.get("/auxilia/credits/balance", headers=bearer_header(key)))
    [record] = [each for each in data(client.get("/apikeys")) if each["id"] == record["id"]]
    assert record["scopes"] == ["credit.read"]
