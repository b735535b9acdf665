"""Ordinary OAuth clients complete the flow: one of Python, and one of JavaScript."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from authlib.integrations.httpx_client import OAuth2Client

from tests import javascript_client
from tests.contract.credits import grant
from tests.contract.replies import data, problem
from tests.oauth import Person, Program, log_in, register
from tests.stack import Owner, Stack


@pytest.fixture
def person(stack: Stack, owner: Owner) -> Iterator[Person]:
    person = log_in(stack, owner)
    yield person
    person.browser.close()


@pytest.fixture(params=["confidential", "public"])
def program(stack: Stack, request: pytest.FixtureRequest) -> Program:
    return register(stack, public=request.param == "public")


def agree(person: Person, asking: str) -> str:
    """Where the browser of the person is sent after they pressed the button."""
    path = asking.removeprefix(person.stack.api_url)
    assert path.startswith("/oauth/authorize?")
    location: str = person.answer(path, "credit.read").headers["location"]
    return location


def test_authlibs_client_reads_the_balance_and_may_not_consume(
    stack: Stack, program: Program, person: Person
) -> None:
    grant(stack, person.owner.user_id, "12.5")
    found = httpx2.get(f"{stack.api_url}/.well-known/oauth-authorization-server").json()
    with OAuth2Client(
        program.client_id,
        program.secret,
        token_endpoint_auth_method="client_secret_basic" if program.secret else "none",
        scope="credit.read",
        redirect_uri=program.redirect_uri,
        code_challenge_method="S256",
        base_url=stack.api_url,
        timeout=60,
    ) as client:
        asking, state = client.create_authorization_url(
            found["authorization_endpoint"], code_verifier=program.verifier
        )
        token = client.fetch_token(
            found["token_endpoint"],
            authorization_response=agree(person, asking),
            state=state,
            code_verifier=program.verifier,
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
        assert data(client.get("/users/me"))["id"] == person.owner.user_id
        revoked = client.revoke_token(
            found["revocation_endpoint"], token=refreshed["refresh_token"]
        )
        assert revoked.status_code == 200
        problem(client.get("/users/me"), 401, "auth.invalid_credentials")


def test_a_javascript_client_reads_the_balance_and_may_not_consume(
    stack: Stack, program: Program, person: Person
) -> None:
    grant(stack, person.owner.user_id, "12.5")
    settings = {
        "issuer": stack.api_url,
        "clientId": program.client_id,
        "clientSecret": program.secret,
        "redirectUri": program.redirect_uri,
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
            running.stdin.write(agree(person, json.loads(first)["asking"]) + "\n")
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
    assert told["sub"] == str(person.owner.user_id)
    assert told["refreshed"] is True
    assert told["isActive"] is (True if program.secret else None)
    with stack.client(told["accessToken"]) as client:
        problem(client.get("/users/me"), 401, "auth.invalid_credentials")
