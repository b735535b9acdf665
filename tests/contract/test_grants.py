"""Tests of grants, by which people let OAuth clients act for them."""

import json
import subprocess
from typing import Any

import httpx2
import pytest
from authlib.integrations.httpx_client import OAuth2Client

from devstack.harness.stack import Stack
from tests.support.clients import javascript_client
from tests.support.commands.running import pressroom, require_command_error, run_json_command
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
    [first_grant] = data(client.get("/grants"))
    assert first_grant["client_id"] == ledger_program.client_id
    assert first_grant["client_name"] == "Ledger & reader"
    assert first_grant["scopes"] == ["credit.read"]
    ledger_program.tokens(logged_in_owner, "attachment")
    [second_grant] = data(client.get("/grants"))
    assert second_grant["id"] == first_grant["id"]
    assert second_grant["scopes"] == ["attachment", "credit.read"]
    assert second_grant["created_at"] == first_grant["created_at"]
    assert second_grant["updated_at"] > first_grant["updated_at"]


def test_cli_registers_and_lists_and_revokes_oauth_clients(
    stack: Stack, logged_in_owner: Person
) -> None:
    registration = run_json_command(
        stack,
        "oauth-clients",
        "create",
        " Reader ",
        "--redirect-uri",
        REDIRECT,
        "--redirect-uri",
        "http://127.0.0.1/cb",
        "--scope",
        "credit.read",
    )
    assert registration["name"] == "Reader"
    assert registration["public"] is False
    assert registration["redirect_uris"] == [REDIRECT, "http://127.0.0.1/cb"]
    assert registration["scopes"] == ["credit.read"]
    program = Program(stack, registration["client_id"], registration["client_secret"])
    tokens = program.tokens(logged_in_owner)
    clients_by_id = {
        each["client_id"]: each for each in run_json_command(stack, "oauth-clients", "list")
    }
    assert clients_by_id[registration["client_id"]]["revoked_at"] is None
    assert registration["client_secret"] not in json.dumps(clients_by_id)
    assert (
        run_json_command(stack, "oauth-clients", "revoke", registration["client_id"])["revoked"]
        == 1
    )
    assert (
        run_json_command(stack, "oauth-clients", "revoke", registration["client_id"])["revoked"]
        == 0
    )
    assert not stack.is_accepted(tokens["access_token"])
    assert data(logged_in_owner.browser.get("/grants")) == []


def test_public_oauth_client_is_registered_without_a_secret(
    stack: Stack, logged_in_owner: Person
) -> None:
    arguments = ("create", "App", "--public", "--redirect-uri", "com.example.app:/cb")
    registration = run_json_command(stack, "oauth-clients", *arguments, "--scope", "attachment")
    assert (registration["public"], registration["client_secret"]) == (True, None)
    program = Program(stack, registration["client_id"], None, "com.example.app:/cb")
    consent_page = logged_in_owner.browser.get(program.request("attachment"))
    assert "form-action 'self' com.example.app:" in consent_page.headers["content-security-policy"]
    assert program.tokens(logged_in_owner, "attachment")["scope"] == "attachment"


@pytest.mark.parametrize(
    ("arguments", "error_text"),
    [
        (("--redirect-uri", "http://client.example/", "--scope", "credit.read"), "must use https"),
        (("--redirect-uri", REDIRECT, "--scope", "delivery"), "delivery"),
        (("--redirect-uri", REDIRECT, "--scope", "everything"), "everything"),
        (("--redirect-uri", REDIRECT), "--scope"),
        (("--scope", "credit.read"), "--redirect-uri"),
    ],
)
def test_cli_rejects_an_invalid_oauth_client(
    stack: Stack, arguments: tuple[str, ...], error_text: str
) -> None:
    process = pressroom(stack, "oauth-clients", "create", "Wrong", *arguments)
    assert process.returncode != 0
    assert error_text in process.stderr
    assert "Traceback" not in process.stderr
    assert stack.query("SELECT 1 FROM oauth_clients WHERE name = 'Wrong'") == []


def test_cli_reports_an_unknown_oauth_client(stack: Stack) -> None:
    require_command_error(stack, "oauth_client.not_found", "oauth-clients", "revoke", "nobody")


def test_erasure_revokes_and_deletes_oauth_grants_of_the_person(
    stack: Stack, ledger_program: Program, logged_in_owner: Person
) -> None:
    tokens = ledger_program.tokens(logged_in_owner)
    erase(stack.resources, logged_in_owner.owner.email)
    assert not stack.is_accepted(tokens["access_token"])
    assert ledger_program.refresh(tokens["refresh_token"]).status_code == 400
    select_grants = "SELECT 1 FROM oauth_grants WHERE user_id = %s"
    assert stack.query(select_grants, logged_in_owner.owner.user_id) == []


@pytest.fixture(params=["confidential", "public"])
def program_of_each_kind(stack: Stack, request: pytest.FixtureRequest) -> Program:
    """An OAuth client. Tests run once with a confidential client and once with a public client."""
    return register(stack, public=request.param == "public")


def grant_access(person: Person, authorization_url: str) -> str:
    """Grant access in the browser, and return the URL to which the browser is redirected."""
    path = authorization_url.removeprefix(person.stack.api_url)
    assert path.startswith("/oauth/authorize?")
    return str(person.answer(path, "credit.read").headers["location"])


def test_authlib_client_reads_the_balance_but_cannot_spend_credits(
    stack: Stack, program_of_each_kind: Program, logged_in_owner: Person
) -> None:
    grant(stack, logged_in_owner.owner.user_id, "12.5")
    server_metadata = httpx2.get(f"{stack.api_url}/.well-known/oauth-authorization-server").json()
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
        authorization_url, state = client.create_authorization_url(
            server_metadata["authorization_endpoint"], code_verifier=program_of_each_kind.verifier
        )
        token = client.fetch_token(
            server_metadata["token_endpoint"],
            authorization_response=grant_access(logged_in_owner, authorization_url),
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
        refreshed_token = client.refresh_token(server_metadata["token_endpoint"])
        assert refreshed_token["access_token"] != token["access_token"]
        assert data(client.get("/users/me"))["id"] == logged_in_owner.owner.user_id
        revocation_reply = client.revoke_token(
            server_metadata["revocation_endpoint"], token=refreshed_token["refresh_token"]
        )
        assert revocation_reply.status_code == 200
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
        [javascript_client.find_node(), "flow.mjs", json.dumps(settings)],
        cwd=javascript_client.JAVASCRIPT_FOLDER,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin
        assert process.stdout
        first_line = process.stdout.readline()
        if first_line:
            process.stdin.write(
                grant_access(logged_in_owner, json.loads(first_line)["asking"]) + "\n"
            )
            process.stdin.flush()
        output, error_output = process.communicate()
    assert process.returncode == 0, error_output
    result: dict[str, Any] = json.loads(output)
    assert result["scope"] == "credit.read"
    assert result["balance"] == 12.5
    assert result["error"]["status"] == 403
    assert result["error"]["scheme"] == "bearer"
    assert result["error"]["challenge"]["error"] == "insufficient_scope"
    assert result["error"]["challenge"]["scope"] == "credit.full"
    assert result["sub"] == str(logged_in_owner.owner.user_id)
    assert result["refreshed"] is True
    assert result["isActive"] is (True if program_of_each_kind.secret else None)
    with stack.client(result["accessToken"]) as client:
        problem(client.get("/users/me"), 401, "auth.invalid_credentials")
