"""Tests that attacks on OAuth obtain no token, and that stolen tokens are revoked."""

from typing import Any

import httpx2
import psycopg2
import pytest

from core.errors import DomainError
from core.scopes import GRANTABLE_SCOPES, Scope
from core.secret_form import ACCESS_TOKEN, AUTHORIZATION_CODE, REFRESH_TOKEN
from devstack.harness.stack import Owner, Stack
from services.oauth import clients
from tests.support.http.replies import data, problem
from tests.support.people.oauth import (
    LOOPBACK,
    REDIRECT,
    Person,
    Program,
    challenge_of,
    fields_of,
    is_error,
    log_in,
    register,
)
from tests.support.stack.load import call_at_once

ME = "/users/me"


@pytest.fixture(scope="module")
def program(stack: Stack) -> Program:
    return register(stack)


def count_credentials(stack: Stack, owner: Owner) -> int:
    """Count the authorization codes and tokens that were issued for an owner."""
    [(count,)] = stack.query(
        "SELECT (SELECT count(*) FROM oauth_codes c WHERE c.grant_id = ANY (g.ids))"
        " + (SELECT count(*) FROM oauth_tokens t WHERE t.grant_id = ANY (g.ids))"
        " FROM (SELECT array_agg(id) AS ids FROM oauth_grants WHERE user_id = %s) g",
        owner.user_id,
    )
    assert isinstance(count, int)
    return count


def test_reused_authorization_code_revokes_its_tokens(
    stack: Stack, program: Program, logged_in_owner: Person
) -> None:
    code = program.code(logged_in_owner)
    first = program.exchange(code).json()
    second = program.refresh(first["refresh_token"]).json()
    tokens_of_other_login = program.tokens(logged_in_owner)
    assert is_error(program.exchange(code), 400, "invalid_grant")
    for tokens in (first, second):
        assert not stack.is_accepted(tokens["access_token"])
        assert is_error(program.refresh(tokens["refresh_token"]), 400, "invalid_grant")
    # The tokens of another login of the same person stay valid.
    assert stack.is_accepted(tokens_of_other_login["access_token"])


def test_concurrent_reuse_of_authorization_code_leaves_no_valid_token(
    stack: Stack, program: Program, logged_in_owner: Person
) -> None:
    code = program.code(logged_in_owner)
    replies = call_at_once(8, lambda: program.exchange(code))
    tokens = [reply.json() for reply in replies if reply.status_code == 200]
    assert len(tokens) == 1
    assert not stack.is_accepted(tokens[0]["access_token"])


def test_reused_refresh_token_revokes_its_family(
    stack: Stack, program: Program, logged_in_owner: Person
) -> None:
    first = program.tokens(logged_in_owner)
    second = program.refresh(first["refresh_token"]).json()
    assert is_error(program.refresh(first["refresh_token"]), 400, "invalid_grant")
    assert is_error(program.refresh(second["refresh_token"]), 400, "invalid_grant")
    for tokens in (first, second):
        assert not stack.is_accepted(tokens["access_token"])


def test_concurrent_reuse_of_refresh_token_revokes_all_tokens(
    stack: Stack, public_program: Program, logged_in_owner: Person
) -> None:
    first = public_program.tokens(logged_in_owner)
    replies = call_at_once(8, lambda: public_program.refresh(first["refresh_token"]))
    tokens = [reply.json() for reply in replies if reply.status_code == 200]
    assert len(tokens) == 1
    for each in (first, tokens[0]):
        assert not stack.is_accepted(each["access_token"])
        assert is_error(public_program.refresh(each["refresh_token"]), 400, "invalid_grant")


def test_client_cannot_use_or_revoke_tokens_and_codes_of_another_client(
    stack: Stack, program: Program, public_program: Program, logged_in_owner: Person
) -> None:
    code = program.code(logged_in_owner)
    tokens = program.tokens(logged_in_owner)
    for other_program in (register(stack), public_program):
        other_program.verifier = program.verifier
        before = count_credentials(stack, logged_in_owner.owner)
        assert is_error(other_program.exchange(code), 400, "invalid_grant")
        assert is_error(other_program.refresh(tokens["refresh_token"]), 400, "invalid_grant")
        for kind in ("access_token", "refresh_token"):
            assert other_program.post("/oauth/revoke", {"token": tokens[kind]}).status_code == 200
        assert count_credentials(stack, logged_in_owner.owner) == before
    # The authorization code and the tokens still work for the client to which they were issued.
    assert stack.is_accepted(tokens["access_token"])
    assert program.refresh(tokens["refresh_token"]).status_code == 200
    assert program.exchange(code).status_code == 200


def test_code_exchange_requires_the_clients_own_credentials(
    stack: Stack, program: Program, public_program: Program, logged_in_owner: Person
) -> None:
    code = program.code(logged_in_owner)
    assert program.secret
    wrong_secret = program.secret[:-1] + ("x" if program.secret[-1] != "x" else "y")
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": program.redirect_uri,
        "code_verifier": program.verifier,
    }
    own_id = {"client_id": program.client_id}
    other_program = register(stack)
    # The form fields and the HTTP basic credentials of token requests that must fail.
    attempts: list[tuple[dict[str, str], Any]] = [
        ({}, None),
        (own_id, None),
        ({**own_id, "client_secret": ""}, None),
        ({**own_id, "client_secret": wrong_secret}, None),
        ({**own_id, "client_secret": wrong_secret + "ü"}, None),
        ({**own_id, "client_secret": other_program.secret or ""}, None),
        ({"client_id": "nobody", "client_secret": program.secret}, None),
        ({"client_secret": program.secret}, None),
        ({}, (program.client_id, "")),
        ({}, (program.client_id, wrong_secret)),
        ({}, ("", program.secret)),
        ({}, (program.client_id.upper(), program.secret)),
    ]
    with stack.client() as client:
        for fields, basic_auth in attempts:
            reply = client.post("/oauth/token", data={**form, **fields}, auth=basic_auth)
            assert is_error(reply, 401, "invalid_client")
        for fields in ({"client_id": other_program.client_id}, {"client_secret": program.secret}):
            reply = client.post(
                "/oauth/token", data={**form, **fields}, auth=(program.client_id, program.secret)
            )
            assert is_error(reply, 400, "invalid_request")
    # A public client has no secret, so every secret is wrong.
    public_program.secret = "x"
    try:
        assert is_error(public_program.exchange(code), 401, "invalid_client")
    finally:
        public_program.secret = None
    assert program.exchange(code).status_code == 200


def test_authorization_code_is_bound_to_its_redirect_uri(
    public_program: Program, logged_in_owner: Person
) -> None:
    for redirect_uri in (LOOPBACK, "", REDIRECT + "/"):
        code = public_program.code(logged_in_owner)
        reply = public_program.exchange(code, redirect_uri=redirect_uri)
        assert is_error(reply, 400, "invalid_grant")
        # An authorization code is valid for only one request, even if the request fails.
        assert is_error(public_program.exchange(code), 400, "invalid_grant")


VERIFIER = "v" * 43
DOWNGRADES: list[dict[str, str | None]] = [
    {"code_challenge": None, "code_challenge_method": None},
    {"code_challenge": None},
    {"code_challenge_method": None},
    {"code_challenge_method": "plain"},
    {"code_challenge_method": "plain", "code_challenge": VERIFIER},
    {"code_challenge_method": "PLAIN"},
    {"code_challenge_method": "s256"},
    {"code_challenge_method": "S256 "},
    {"code_challenge_method": "S256,plain"},
    {"code_challenge_method": "S512"},
    {"code_challenge_method": ""},
    {"code_challenge": ""},
    {"code_challenge": "short"},
    {"code_challenge": challenge_of(VERIFIER) + "="},
    {"code_challenge": challenge_of(VERIFIER) + "\n"},
    {"code_challenge": challenge_of(VERIFIER)[:-1]},
    {"code_challenge": challenge_of(VERIFIER)[:-1] + "+"},
    {"code_challenge": "ü" * 43},
    {"code_challenge": "a" * 128},
]


@pytest.mark.parametrize("kind", ["confidential", "public"])
def test_authorization_requires_pkce_with_s256(
    program: Program, public_program: Program, logged_in_owner: Person, kind: str
) -> None:
    client_program = program if kind == "confidential" else public_program
    for changes in DOWNGRADES:
        reply = logged_in_owner.browser.get(client_program.request(**changes))
        assert reply.status_code == 303, changes
        assert fields_of(reply.headers["location"])["error"] == "invalid_request", changes
        assert reply.headers["location"].startswith(REDIRECT + "?")
    repeated_parameter = client_program.request() + "&code_challenge=" + "a" * 43
    assert logged_in_owner.browser.get(repeated_parameter).status_code == 400


WRONG_VERIFIERS = ["", "x", "v" * 42, "v" * 44, "v" * 129, "V" * 43, "ü" * 43, VERIFIER + "\n"]


@pytest.mark.parametrize("kind", ["confidential", "public"])
def test_code_exchange_requires_the_matching_pkce_verifier(
    stack: Stack, program: Program, public_program: Program, logged_in_owner: Person, kind: str
) -> None:
    client_program = program if kind == "confidential" else public_program
    own_verifier = client_program.verifier
    client_program.verifier = VERIFIER
    try:
        for wrong_verifier in (*WRONG_VERIFIERS, challenge_of(VERIFIER)):
            code = client_program.code(logged_in_owner)
            reply = client_program.exchange(code, code_verifier=wrong_verifier)
            assert reply.status_code == 400, wrong_verifier
            assert reply.json()["error"] in {"invalid_grant", "invalid_request"}
            # After a request with a wrong verifier, the authorization code is invalid.
            assert is_error(client_program.exchange(code), 400, "invalid_grant")
    finally:
        client_program.verifier = own_verifier
    [(token_count,)] = stack.query(
        "SELECT count(*) FROM oauth_tokens t JOIN oauth_grants g ON g.id = t.grant_id"
        " WHERE g.user_id = %s",
        logged_in_owner.owner.user_id,
    )
    assert token_count == 0


FORBIDDEN_SCOPES = [
    *("delivery", "composer", "credit.read composer", "credit.read delivery", "*", "admin", "all"),
    *("credit.*", "Credit.Read", "credit.read,credit.full", "openid", "offline_access"),
    *("ü", "\x01"),
    *("credit.read\x0bcomposer", "subscription.full", "credit", "credit.read credit.admin"),
]


@pytest.mark.parametrize("scope", FORBIDDEN_SCOPES)
def test_authorization_rejects_scopes_beyond_those_of_the_client(
    public_program: Program, logged_in_owner: Person, scope: str
) -> None:
    reply = logged_in_owner.browser.get(public_program.request(scope=scope))
    assert reply.status_code == 303, scope
    assert fields_of(reply.headers["location"])["error"] == "invalid_scope", scope


def test_consent_grants_no_more_scopes_than_requested(
    stack: Stack, program: Program, logged_in_owner: Person
) -> None:
    reply = logged_in_owner.answer(program.request("credit.read"), *Scope)
    code = fields_of(reply.headers["location"])["code"]
    token_reply = program.exchange(code, scope="credit.full")
    assert token_reply.json()["scope"] == "credit.read"
    assert stack.query(
        "SELECT scopes FROM oauth_grants WHERE user_id = %s", logged_in_owner.owner.user_id
    ) == [(["credit.read"],)]


def test_refresh_grants_no_more_scopes_than_consented(
    program: Program, logged_in_owner: Person
) -> None:
    # An earlier login also grants credit.full, but its tokens belong to another token family.
    program.tokens(logged_in_owner, "credit.full")
    tokens = program.tokens(logged_in_owner, "credit.read")
    for scope in ("credit.full", "credit.read credit.full", "attachment", *FORBIDDEN_SCOPES):
        reply = program.refresh(tokens["refresh_token"], scope=scope)
        assert is_error(reply, 400, "invalid_scope"), scope
    # A rejected refresh doesn't use up the refresh token.
    assert program.refresh(tokens["refresh_token"]).json()["scope"] == "credit.read"


def test_oauth_clients_never_receive_the_delivery_scope(stack: Stack) -> None:
    with pytest.raises(DomainError, match="delivery"), stack.resources.unit_of_work() as uow:
        clients.register_client(
            uow,
            name="Sender",
            redirect_uris=[REDIRECT],
            scopes=[Scope.DELIVERY],
            public=False,
        )
    with pytest.raises(psycopg2.errors.CheckViolation, match="never_delivery"):
        stack.query("UPDATE oauth_clients SET scopes = '{delivery}'")


def test_access_token_cannot_manage_keys_or_grants(
    stack: Stack, logged_in_owner: Person, client: httpx2.Client
) -> None:
    scopes = sorted(GRANTABLE_SCOPES)
    everything = register(stack, scopes=tuple(scopes))
    tokens = everything.tokens(logged_in_owner, *scopes)
    key = data(client.post("/apikeys", json={"name": "own"}))
    [grant] = data(client.get("/grants"))
    with stack.client(tokens["access_token"]) as token:
        for method, path in (
            ("GET", "/apikeys"),
            ("POST", "/apikeys"),
            ("DELETE", f"/apikeys/{key['id']}"),
            ("GET", "/grants"),
            ("DELETE", f"/grants/{grant['id']}"),
        ):
            body = {"name": "stronger"} if method == "POST" else None
            problem(token.request(method, path, json=body), 403, "auth.restricted_credential")
        # An OAuth token doesn't log its holder in to the console or to the consent page.
        assert token.get("/console/developers/access").status_code == 303
        assert token.get(everything.request()).headers["location"].startswith(stack.api_url)


def test_consent_requires_csrf_token_and_origin_of_the_same_session(
    stack: Stack, program: Program, logged_in_owner: Person
) -> None:
    path = program.request()
    own = logged_in_owner.csrf_token(path)
    attacker = log_in(stack, stack.create_owner())
    foreign = attacker.csrf_token(path)
    changed = own[:-1] + ("A" if own[-1] != "A" else "B")
    tokens = [None, "", "x", foreign, changed, own + "x", own.upper(), "null", own[::-1]]
    origins = [None, "null", "https://evil.example", stack.api_url + ".evil.example"]
    attempts = 0
    for token in tokens:
        for origin in origins:
            for decision in ("allow", "deny", ""):
                form = {"decision": decision, "scope.credit.read": "on"}
                form |= {} if token is None else {"csrf_token": token}
                headers = {} if origin is None else {"Origin": origin}
                reply = logged_in_owner.browser.post(path, data=form, headers=headers)
                assert reply.status_code == 403
                assert "location" not in reply.headers
                attempts += 1
    assert attempts >= 100
    assert count_credentials(stack, logged_in_owner.owner) == 0
    attacker.browser.close()


def test_opening_the_consent_page_grants_nothing(
    stack: Stack, program: Program, logged_in_owner: Person
) -> None:
    for extra_query in ("", "&decision=allow", "&decision=allow&scope.credit.read=on&prompt=none"):
        assert logged_in_owner.browser.get(program.request() + extra_query).status_code == 200
        assert logged_in_owner.browser.head(program.request() + extra_query).status_code == 200
    assert (
        stack.query("SELECT 1 FROM oauth_grants WHERE user_id = %s", logged_in_owner.owner.user_id)
        == []
    )


def test_revoking_grant_or_client_takes_effect_on_the_next_request(
    stack: Stack, logged_in_owner: Person, client: httpx2.Client
) -> None:
    program = register(stack)
    tokens = program.tokens(logged_in_owner)
    code = program.code(logged_in_owner)
    [grant] = data(client.get("/grants"))
    assert stack.is_accepted(tokens["access_token"])
    assert data(client.delete(f"/grants/{grant['id']}")) == 1
    assert not stack.is_accepted(tokens["access_token"])
    assert is_error(program.refresh(tokens["refresh_token"]), 400, "invalid_grant")
    assert is_error(program.exchange(code), 400, "invalid_grant")
    new_tokens = program.tokens(logged_in_owner)
    assert stack.is_accepted(new_tokens["access_token"])
    assert not stack.is_accepted(tokens["access_token"])
    with stack.resources.unit_of_work() as uow:
        assert clients.revoke_client(uow, program.client_id) == 1
    assert not stack.is_accepted(new_tokens["access_token"])
    assert is_error(program.refresh(new_tokens["refresh_token"]), 401, "invalid_client")
    assert logged_in_owner.browser.get(program.request()).status_code == 400


@pytest.mark.parametrize("form", [ACCESS_TOKEN, REFRESH_TOKEN, AUTHORIZATION_CODE])
def test_unknown_secret_in_any_of_our_formats_is_no_access_token(stack: Stack, form: Any) -> None:
    with stack.client(form.generate()) as client:
        problem(client.get(ME), 401, "auth.invalid_credentials")


def test_refresh_tokens_codes_and_client_secrets_do_not_authenticate_calls(
    stack: Stack, program: Program, logged_in_owner: Person
) -> None:
    code = program.code(logged_in_owner)
    tokens = program.tokens(logged_in_owner)
    renamed = "pra_" + tokens["refresh_token"][4:]
    for secret in (code, tokens["refresh_token"], renamed, program.secret):
        with stack.client(secret) as client:
            problem(client.get(ME), 401, "auth.invalid_credentials")
    assert is_error(program.refresh(tokens["access_token"]), 400, "invalid_grant")
    assert is_error(program.refresh(code), 400, "invalid_grant")
    assert is_error(program.exchange(tokens["refresh_token"]), 400, "invalid_grant")
