"""Tests of the authorization server, which follows RFC 6749, 7009, 7636, 7662, 8414 and 9207."""

import base64
import time

import httpx2
import pytest
from authlib.oauth2.rfc8414 import AuthorizationServerMetadata

from core.scopes import SCOPE_EXPLANATIONS, Scope
from core.secret_form import ACCESS_TOKEN, REFRESH_TOKEN
from devstack.harness.opening import RETIRED_KEY
from devstack.harness.stack import Stack
from tests.support.http.pages import read_text
from tests.support.http.replies import data, problem
from tests.support.people.oauth import (
    REDIRECT,
    Person,
    Program,
    fields_of,
    is_error,
    register,
)

ME_PATH = "/users/me"
BALANCE_PATH = "/auxilia/credits/balance"


@pytest.fixture(scope="module")
def program(stack: Stack) -> Program:
    """A registered OAuth client."""
    return register(stack)


def test_authorization_code_is_exchanged_for_tokens_with_the_granted_scope(
    stack: Stack, program: Program, logged_in_owner: Person
) -> None:
    reply = program.exchange(program.code(logged_in_owner, "credit.read"))
    assert reply.status_code == 200
    assert reply.headers["cache-control"] == "no-store"
    assert reply.headers["pragma"] == "no-cache"
    tokens = reply.json()
    assert set(tokens) == {"access_token", "token_type", "expires_in", "refresh_token", "scope"}
    assert (tokens["token_type"], tokens["expires_in"]) == ("Bearer", 3600)
    assert tokens["scope"] == "credit.read"
    assert ACCESS_TOKEN.matches(tokens["access_token"])
    assert REFRESH_TOKEN.matches(tokens["refresh_token"])
    with stack.client(tokens["access_token"]) as client:
        assert data(client.get(BALANCE_PATH))["user_id"] == logged_in_owner.owner.user_id
        assert data(client.get(ME_PATH))["id"] == logged_in_owner.owner.user_id


def test_authorization_response_contains_state_and_issuer(
    stack: Stack, program: Program, logged_in_owner: Person
) -> None:
    state = "a b+c/ü&=%"
    path = program.request(state=state)
    granted_fields = fields_of(logged_in_owner.answer(path, "credit.read").headers["location"])
    assert granted_fields.keys() == {"code", "state", "iss"}
    assert (granted_fields["state"], granted_fields["iss"]) == (state, stack.api_url)
    location = logged_in_owner.answer(path, decision="deny").headers["location"]
    assert location.startswith(REDIRECT + "?")
    denied_fields = fields_of(location)
    assert (denied_fields["error"], denied_fields["state"], denied_fields["iss"]) == (
        "access_denied",
        state,
        stack.api_url,
    )
    assert "code" not in denied_fields


def test_consent_page_explains_each_scope_and_names_the_client(
    stack: Stack, logged_in_owner: Person
) -> None:
    all_scopes = tuple(SCOPE_EXPLANATIONS)
    assert len(all_scopes) == 6
    program = register(stack, scopes=all_scopes, name='<b>"Everything"</b>')
    page = logged_in_owner.browser.get(program.request(*all_scopes))
    assert page.status_code == 200
    for scope, explanation in SCOPE_EXPLANATIONS.items():
        assert f'name="scope.{scope}" checked' in page.text
        assert explanation in page.text
    assert "&lt;b&gt;&#34;Everything&#34;&lt;/b&gt;" in page.text
    assert "client.example" in page.text
    assert logged_in_owner.owner.email in read_text(page)
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert policy.endswith("form-action 'self' https:")
    assert "access-control-allow-origin" not in page.headers


def test_person_can_grant_fewer_scopes_than_requested_but_not_none(
    stack: Stack, program: Program, logged_in_owner: Person
) -> None:
    path = program.request("credit.read", "attachment")
    location = logged_in_owner.answer(path, "attachment").headers["location"]
    tokens = program.exchange(fields_of(location)["code"]).json()
    assert tokens["scope"] == "attachment"
    with stack.client(tokens["access_token"]) as client:
        data(client.get("/attachments"))
        problem(client.get(BALANCE_PATH), 403, "auth.insufficient_scope")
    assert fields_of(logged_in_owner.answer(path).headers["location"])["error"] == "access_denied"


def test_authorization_without_scope_requests_all_scopes_of_the_client(
    program: Program, logged_in_owner: Person
) -> None:
    page = logged_in_owner.browser.get(program.request(scope=None))
    for scope in (Scope.CREDIT_READ, Scope.CREDIT_FULL, Scope.ATTACHMENT):
        assert f'name="scope.{scope}"' in page.text
    assert "scope.composer" not in page.text


def test_oauth_refresh_returns_a_new_token_pair_with_the_same_scopes(
    stack: Stack, program: Program, logged_in_owner: Person
) -> None:
    first_tokens = program.tokens(logged_in_owner, "attachment", "credit.read")
    second_tokens = program.refresh(first_tokens["refresh_token"]).json()
    assert second_tokens["scope"] == first_tokens["scope"] == "attachment credit.read"
    assert second_tokens["refresh_token"] != first_tokens["refresh_token"]
    # A refresh doesn't revoke the first access token, which is valid for one hour.
    assert stack.is_accepted(first_tokens["access_token"])
    assert stack.is_accepted(second_tokens["access_token"])
    # A client may request fewer scopes in one refresh, and all granted scopes in a later refresh.
    narrow_tokens = program.refresh(second_tokens["refresh_token"], scope="attachment").json()
    assert narrow_tokens["scope"] == "attachment"
    with stack.client(narrow_tokens["access_token"]) as client:
        problem(client.get(BALANCE_PATH), 403, "auth.insufficient_scope")
    assert (
        program.refresh(narrow_tokens["refresh_token"]).json()["scope"] == "attachment credit.read"
    )


def test_expired_oauth_tokens_are_rejected(
    stack: Stack, program: Program, logged_in_owner: Person
) -> None:
    tokens = program.tokens(logged_in_owner)
    expire = "UPDATE oauth_tokens SET expires_at = now() - interval '1 s' WHERE secret_hmac = %s"
    signer = stack.resources.keyring.signer("oauth-token")
    stack.query(expire, signer.digest(tokens["access_token"].encode()))
    with stack.client(tokens["access_token"]) as client:
        reply = client.get(ME_PATH)
    problem(reply, 401, "auth.invalid_credentials")
    assert 'error="invalid_token"' in reply.headers["www-authenticate"]
    stack.query(expire, signer.digest(tokens["refresh_token"].encode()))
    assert is_error(program.refresh(tokens["refresh_token"]), 400, "invalid_grant")


def test_authorization_code_expires_after_one_minute(
    stack: Stack, program: Program, logged_in_owner: Person
) -> None:
    code = program.code(logged_in_owner)
    [(seconds,)] = stack.query(
        "SELECT round(extract(epoch FROM c.expires_at - c.created_at))::int FROM oauth_codes c"
        " JOIN oauth_grants g ON g.id = c.grant_id WHERE g.user_id = %s",
        logged_in_owner.owner.user_id,
    )
    assert seconds == 60
    stack.query(
        "UPDATE oauth_codes SET expires_at = now() - interval '1 s' WHERE grant_id ="
        " (SELECT id FROM oauth_grants WHERE user_id = %s)",
        logged_in_owner.owner.user_id,
    )
    assert is_error(program.exchange(code), 400, "invalid_grant")


def test_oauth_secrets_are_never_stored_in_plain_text_or_logged(
    stack: Stack, program: Program, logged_in_owner: Person
) -> None:
    code = program.code(logged_in_owner)
    tokens = program.exchange(code).json()
    stored_rows = "".join(
        str(row)
        for table in ("oauth_clients", "oauth_grants", "oauth_codes", "oauth_tokens")
        for row in stack.query(f"SELECT row_to_json(t)::text FROM {table} t")
    )
    assert program.secret
    for secret in (code, tokens["access_token"], tokens["refresh_token"], program.secret):
        assert secret not in stored_rows
        assert secret[4:30] not in stored_rows
        for process in stack.processes:
            assert secret not in process.log.read_text()


def test_oauth_tokens_signed_with_a_retired_key_remain_valid(
    stack: Stack, program: Program, logged_in_owner: Person
) -> None:
    tokens = program.tokens(logged_in_owner)
    signer = stack.resources.keyring.signer("oauth-token")
    retired_digest = signer._digest(RETIRED_KEY.id, tokens["access_token"].encode())
    current_digest = signer.digest(tokens["access_token"].encode())
    stack.query(
        "UPDATE oauth_tokens SET secret_hmac = %s WHERE secret_hmac = %s",
        retired_digest,
        current_digest,
    )
    assert stack.is_accepted(tokens["access_token"])


def test_revoking_a_refresh_token_revokes_all_tokens_of_that_login(
    stack: Stack, program: Program, logged_in_owner: Person
) -> None:
    first_tokens = program.tokens(logged_in_owner)
    second_tokens = program.refresh(first_tokens["refresh_token"]).json()
    tokens_of_other_login = program.tokens(logged_in_owner)
    reply = program.post("/oauth/revoke", {"token": second_tokens["refresh_token"]})
    assert (reply.status_code, reply.json()) == (200, {})
    assert not stack.is_accepted(first_tokens["access_token"])
    assert not stack.is_accepted(second_tokens["access_token"])
    assert is_error(program.refresh(second_tokens["refresh_token"]), 400, "invalid_grant")
    assert stack.is_accepted(tokens_of_other_login["access_token"])


def test_revoking_an_access_token_keeps_its_refresh_token_valid(
    stack: Stack, program: Program, logged_in_owner: Person
) -> None:
    tokens = program.tokens(logged_in_owner)
    for hint in ("refresh_token", "nonsense"):
        form = {"token": tokens["access_token"], "token_type_hint": hint}
        assert program.post("/oauth/revoke", form).status_code == 200
        assert not stack.is_accepted(tokens["access_token"])
    assert program.refresh(tokens["refresh_token"]).status_code == 200


def test_revoking_an_unknown_oauth_token_succeeds(program: Program) -> None:
    for token in ("x", ACCESS_TOKEN.generate(), REFRESH_TOKEN.generate()):
        assert program.post("/oauth/revoke", {"token": token}).status_code == 200
    assert is_error(program.post("/oauth/revoke", {}), 400, "invalid_request")


def test_token_introspection_describes_access_and_refresh_tokens_to_their_client(
    stack: Stack, program: Program, logged_in_owner: Person
) -> None:
    tokens = program.tokens(logged_in_owner, "credit.read")
    for token_type, lifetime_seconds in (("access_token", 3600), ("refresh_token", 30 * 24 * 3600)):
        description = program.post("/oauth/introspect", {"token": tokens[token_type]}).json()
        assert description["active"] is True
        assert description["client_id"] == program.client_id
        assert description["scope"] == "credit.read"
        assert description["sub"] == str(logged_in_owner.owner.user_id)
        assert description["iss"] == stack.api_url
        assert description["exp"] - description["iat"] in {lifetime_seconds, lifetime_seconds + 1}
        assert abs(description["iat"] - time.time()) < 60
        assert description.get("token_type") == ("Bearer" if token_type == "access_token" else None)


def test_token_introspection_reports_used_and_foreign_tokens_as_inactive(
    stack: Stack, program: Program, logged_in_owner: Person
) -> None:
    tokens = program.tokens(logged_in_owner)
    program.refresh(tokens["refresh_token"])
    foreign_tokens = register(stack).tokens(logged_in_owner)
    for token in (
        tokens["refresh_token"],
        foreign_tokens["access_token"],
        ACCESS_TOKEN.generate(),
        "x",
    ):
        reply = program.post("/oauth/introspect", {"token": token})
        assert (reply.status_code, reply.json()) == (200, {"active": False})


def test_token_introspection_requires_a_confidential_client(
    stack: Stack, logged_in_owner: Person
) -> None:
    public_client = register(stack, public=True)
    tokens = public_client.tokens(logged_in_owner)
    reply = public_client.post("/oauth/introspect", {"token": tokens["access_token"]})
    assert is_error(reply, 401, "invalid_client")


def test_oauth_metadata_is_valid_and_names_working_endpoints(
    stack: Stack, stranger: httpx2.Client
) -> None:
    reply = stranger.get("/.well-known/oauth-authorization-server")
    assert reply.status_code == 200
    metadata = reply.json()
    AuthorizationServerMetadata(metadata).validate()
    assert metadata["issuer"] == stack.api_url
    assert metadata["code_challenge_methods_supported"] == ["S256"]
    assert metadata["authorization_response_iss_parameter_supported"] is True
    assert set(metadata["scopes_supported"]) == set(SCOPE_EXPLANATIONS)
    for name in ("token", "revocation", "introspection"):
        assert stranger.post(metadata[f"{name}_endpoint"]).status_code in {400, 401}
    assert stranger.get(metadata["userinfo_endpoint"]).status_code == 401
    assert stranger.get(metadata["authorization_endpoint"]).status_code == 400


def test_userinfo_returns_the_owner_of_the_token(
    program: Program, logged_in_owner: Person, stack: Stack
) -> None:
    tokens = program.tokens(logged_in_owner)
    with stack.client(tokens["access_token"]) as client:
        user_info = client.get("/oauth/userinfo").json()
    assert user_info["sub"] == str(logged_in_owner.owner.user_id)
    assert user_info["email"] == logged_in_owner.owner.email
    assert set(user_info) <= {"sub", "email", "name"}


def test_any_origin_can_call_the_token_endpoint_but_not_read_the_consent_page(
    program: Program, logged_in_owner: Person
) -> None:
    origin = {"Origin": "https://app.example"}
    reply = program.post("/oauth/token", {"grant_type": "x"}, headers=origin)
    assert reply.headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-credentials" not in reply.headers
    consent_page = logged_in_owner.browser.get(program.request(), headers=origin)
    assert "access-control-allow-origin" not in consent_page.headers


@pytest.mark.parametrize(
    ("form", "error"),
    [
        ({}, "invalid_request"),
        ({"grant_type": "password", "username": "u", "password": "p"}, "unsupported_grant_type"),
        ({"grant_type": "client_credentials"}, "unsupported_grant_type"),
        ({"grant_type": 'implicit ü"\\'}, "unsupported_grant_type"),
        ({"grant_type": "authorization_code"}, "invalid_request"),
        ({"grant_type": "refresh_token"}, "invalid_request"),
        ({"grant_type": "refresh_token", "refresh_token": "x"}, "invalid_grant"),
        ({"grant_type": "authorization_code", "code": "ü\x01"}, "invalid_grant"),
        ({"grant_type": "authorization_code", "code": "a\x00"}, "invalid_request"),
    ],
)
def test_token_endpoint_rejects_malformed_requests_with_standard_errors(
    program: Program, form: dict[str, str], error: str
) -> None:
    assert is_error(program.post("/oauth/token", form), 400, error)


def test_token_endpoint_accepts_only_form_bodies(
    stack: Stack, program: Program, logged_in_owner: Person
) -> None:
    code = program.code(logged_in_owner)
    fields = {
        "grant_type": "authorization_code",
        "code": code,
        "client_id": program.client_id,
        "client_secret": program.secret,
        "redirect_uri": REDIRECT,
        "code_verifier": program.verifier,
    }
    with stack.client() as client:
        assert is_error(client.post("/oauth/token", json=fields), 400, "invalid_request")
        assert is_error(client.post("/oauth/token", params=fields), 400, "invalid_request")
        assert client.get("/oauth/token", params=fields).status_code == 405
        reply_to_repeated_field = httpx2.post(
            f"{stack.api_url}/oauth/token", data={"grant_type": ["a", "b"]}
        )
        assert is_error(reply_to_repeated_field, 400, "invalid_request")
    assert program.exchange(code).status_code == 200


def test_unknown_oauth_client_is_rejected_with_a_basic_challenge(stranger: httpx2.Client) -> None:
    credentials = [b"nobody", b"nobody:x", b"\xff\xfe:\xff", b"a\x00:b"]
    basic_headers = [f"Basic {base64.b64encode(each).decode()}" for each in credentials]
    for header in ("Basic", "Basic !!!", *basic_headers, "Bearer x", "Basic caf\xe9"):
        reply = stranger.post(
            "/oauth/token",
            data={"grant_type": "refresh_token", "refresh_token": "x"},
            headers=httpx2.Headers({"Authorization": header}, encoding="latin-1"),
        )
        assert is_error(reply, 401, "invalid_client")
        assert reply.headers["www-authenticate"].startswith("Basic")
