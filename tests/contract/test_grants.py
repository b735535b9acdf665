"""Tests of grants, by which people let OAuth clients act for them."""

import json
import subprocess
from typing import Any

import httpx2
import pytest
from authlib.integrations.httpx_client import OAuth2Client

from devstack.harness.stack import Stack
from tests.support.clients import javascript_client
from tests.support.commands.running import fails_with, pressroom, printed
from tests.support.credits.credits import grant
from tests.support.http.replies import data, problem
from tests.support.people.erasure import erase
from tests.support.people.oauth import REDIRECT, Person, Program, register


@pytest.fixture(scope="module")
def ledger_program(stack: Stack) -> Program:
    """An OAuth client that can request access to an owner's account."""
    return register(stack, name="Ledger & reader")


def test_oauth_grant_lists_every_scope_that_the_person_agreed_to(
    client: httpx2.Client, ledger_program: Program, logged_in_owner: Person
) -> None:
    assert data(client.get("/grants")) == []
    ledger_program.tokens(logged_in_owner, "credit.read")
    [first] = data(client.get("/grants"))
    assert first["client_id"] == ledger_program.client_id
    assert first["client_name"] == "Ledger & reader"
    assert first["scopes"] == ["credit.read"]
    ledger_program.tokens(logged_in_owner, "attachment")
    [second] = data(client.get("/grants"))
    assert second["id"] == first["id"]
    assert second["scopes"] == ["attachment", "credit.read"]
    assert second["created_at"] == first["created_at"]
    assert second["updated_at"] > first["updated_at"]


def test_cli_registers_and_lists_and_revokes_oauth_clients(
    stack: Stack, logged_in_owner: Person
) -> None:
    registration = printed(
        stack,
        *("oauth-clients", "create", " Reader ", "--redirect-uri", REDIRECT),
        *("--redirect-uri", "http://127.0.0.1/cb", "--scope", "credit.read"),
    )
    assert registration["name"] == "Reader"
    assert registration["public"] is False
    assert registration["redirect_uris"] == [REDIRECT, "http://127.0.0.1/cb"]
    assert registration["scopes"] == ["credit.read"]
    program = Program(stack, registration["client_id"], registration["client_secret"])
    tokens = program.tokens(logged_in_owner)
    listed = {each["client_id"]: each for each in printed(stack, "oauth-clients", "list")}
    assert listed[registration["client_id"]]["revoked_at"] is None
    assert registration["client_secret"] not in json.dumps(listed)
    assert printed(stack, "oauth-clients", "revoke", registration["client_id"])["revoked"] == 1
    assert printed(stack, "oauth-clients", "revoke", registration["client_id"])["revoked"] == 0
    assert not stack.is_accepted(tokens["access_token"])
    assert data(logged_in_owner.browser.get("/grants")) == []


def test_public_oauth_client_is_registered_without_a_secret(
    stack: Stack, logged_in_owner: Person
) -> None:
    words = ("create", "App", "--public", "--redirect-uri", "com.example.app:/cb")
    registration = printed(stack, "oauth-clients", *words, "--scope", "attachment")
    assert (registration["public"], registration["client_secret"]) == (True, None)
    program = Program(stack, registration["client_id"], None, "com.example.app:/cb")
    consent_page = logged_in_owner.browser.get(program.request("attachment"))
    assert "form-action 'self' com.example.app:" in consent_page.headers["content-security-policy"]
    assert program.tokens(logged_in_owner, "attachment")["scope"] == "attachment"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--redirect-uri", "http://client.example/", "--scope", "credit.read"), "must use https"),
        (("--redirect-uri", REDIRECT, "--scope", "delivery"), "delivery"),
        (("--redirect-uri", REDIRECT, "--scope", "everything"), "everything"),
        (("--redirect-uri", REDIRECT), "--scope"),
        (("--scope", "credit.read"), "--redirect-uri"),
    ],
)
def test_cli_rejects_an_invalid_oauth_client(
    stack: Stack, words: tuple[str, ...], complaint: str
) -> None:
    done = pressroom(stack, "oauth-clients", "create", "Wrong", *words)
    assert done.returncode != 0
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
    assert stack.query("SELECT 1 FROM oauth_clients WHERE name = 'Wrong'") == []


def test_cli_reports_an_unknown_oauth_client(stack: Stack) -> None:
    fails_with(stack, "oauth_client.not_found", "oauth-clients", "revoke", "nobody")


def test_erasure_revokes_and_deletes_oauth_grants_of_the_person(
    stack: Stack, ledger_program: Program, logged_in_owner: Person
) -> None:
    tokens = ledger_program.tokens(logged_in_owner)
    erase(stack.resources, logged_in_owner.owner.email)
    assert not stack.is_accepted(tokens["access_token"])
    assert ledger_program.refresh(tokens["refresh_token"]).status_code == 400
    of_person = "SELECT 1 FROM oauth_grants WHERE user_id = %s"
    assert stack.query(of_person, logged_in_owner.owner.user_id) == []


@pytest.fixture(params=["confidential", "public"])
def program_of_each_kind(stack: Stack, request: pytest.FixtureRequest) -> Program:
    """An OAuth client. Tests run once with a confidential client and once with a public client."""
    return register(stack, public=request.param == "public")


def agree(person: Person, asking: str) -> str:
    """Grant access in the browser, and return the URL to which the browser is redirected."""
    path = asking.removeprefix(person.stack.api_url)
    assert path.startswith("/oauth/authorize?")
    return str(person.answer(path, "credit.read").headers["location"])


def test_authlib_client_reads_the_balance_but_cannot_spend_credits(
    stack: Stack, program_of_each_kind: Program, logged_in_owner: Person
) -> None:
    grant(stack, logged_in_owner.owner.user_id, "12.5")
    found = httpx2.get(f"{stack.api_url}/.well-known/oauth-authorization-server").json()
    with OAuth2Client(
        program_of_each_kind.client_id,
        program_of_each_kind.secret,
        token_endpoint_auth_method="client_secret_basic" if program_of_each_kind.secret else "none",
        scope="credit.read",
        redirect_uri=program_of_each_kind.redirect_uri,
        code_challenge_method="S256",
        base_url=stack.api_url,
        timeout=60,
    ) as client:
        asking, state = client.create_authorization_url(
            found["authorization_endpoint"], code_verifier=program_of_each_kind.verifier
        )
        token = client.fetch_token(
            found["token_endpoint"],
            authorization_response=agree(logged_in_owner, asking),
            state=state,
            code_verifier=program_of_each_kind.verifier,
        )
        assert token["scope"] == "credit.read"
        balance = data(client.get("/auxilia/credits/balance"))
        assert balance["balance_credit"] == 12.5
        body = {"amount": 1, "source_id": "python"}
        reply = client.post("/auxilia/credits/consume", json=body)
        problem(reply, 403, "auth.insufficient_scope")
        assert 'error="insufficient_scope"' in reply.headers["www-authenticate"]
        refreshed = client.refresh_token(found["token_endpoint"])
        assert refreshed["access_token"] != token["access_token"]
        assert data(client.get("/users/me"))["id"] == logged_in_owner.owner.user_id
        revoked = client.revoke_token(
            found["revocation_endpoint"], token=refreshed["refresh_token"]
        )
        assert revoked.status_code == 200
        problem(client.get("/users/me"), 401, "auth.invalid_credentials")


def test_javascript_oauth_client_reads_the_balance_but_cannot_spend_credits(
    stack: Stack, program_of_each_kind: Program, logged_in_owner: Person
) -> None:
    grant(stack, logged_in_owner.owner.user_id, "12.5")
    settings = {
        "issuer": stack.api_url,
        "clientId": program_of_each_kind.client_id,
        "clientSecret": program_of_each_kind.secret,
        "redirectUri": program_of_each_kind.redirect_uri,
    }
    with subprocess.Popen(
        [javascript_client.node(), "flow.mjs", json.dumps(settings)],
        cwd=javascript_client.FOLDER,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdin
        assert running.stdout
        first = running.stdout.readline()
        if first:
            running.stdin.write(agree(logged_in_owner, json.loads(first)["asking"]) + "\n")
            running.stdin.flush()
        out, complaint = running.communicate(timeout=60)
    assert running.returncode == 0, complaint
    told: dict[str, Any] = json.loads(out)
    assert told["scope"] == "credit.read"
    assert told["balance"] == 12.5
    assert told["error"]["status"] == 403
    assert told["error"]["scheme"] == "bearer"
    assert told["error"]["challenge"]["error"] == "insufficient_scope"
    assert told["error"]["challenge"]["scope"] == "credit.full"
    assert told["sub"] == str(logged_in_owner.owner.user_id)
    assert told["refreshed"] is True
    assert told["isActive"] is (True if program_of_each_kind.secret else None)
    with stack.client(told["accessToken"]) as client:
        problem(client.get("/users/me"), 401, "auth.invalid_credentials")
