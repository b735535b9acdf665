import time
from types import ModuleType
from typing import Any

import pytest

from core.scopes import Scope
from tests import oauth
from tests.stack import Owner, Stack

SCOPES = ("credit.read", "attachment")


def _returned(stack: Stack, owner: Owner, url: str, decision: str = "allow") -> str:
    """The URL to which the person comes back after the consent page."""
    person = oauth.log_in(stack, owner)
    reply = person.answer(url.removeprefix(stack.api_url), *SCOPES, decision=decision)
    assert reply.status_code == 303, reply.text
    location: str = reply.headers["location"]
    return location


@pytest.fixture
def login(package: ModuleType, stack: Stack) -> Any:
    program = oauth.register(stack, scopes=(Scope.CREDIT_READ, Scope.ATTACHMENT))
    return package.OAuth(
        stack.api_url, program.client_id, program.redirect_uri, client_secret=program.secret
    )


def test_a_program_gets_tokens_renews_them_and_ends_them(
    package: ModuleType, stack: Stack, owner: Owner, login: Any
) -> None:
    begun = login.begin(SCOPES)
    tokens = login.finish(begun, _returned(stack, owner, begun.url))
    assert set(tokens.scope.split()) == set(SCOPES)
    with package.Pressroom(stack.api_url, tokens.access_token) as client:
        assert client.read_balance()["user_id"] == owner.user_id
    kept: list[Any] = []
    expired = package.Tokens(tokens.access_token, tokens.refresh_token, time.time(), "")
    source = package.TokenSource(login, expired, on_change=kept.append)
    with package.Pressroom(stack.api_url, source) as client:
        assert client.read_balance()["user_id"] == owner.user_id
        client.read_balance()
    assert len(kept) == 1
    assert kept[0].access_token != tokens.access_token
    login.revoke(kept[0])
    with pytest.raises(package.Refused) as refused:
        login.refresh(kept[0])
    assert refused.value.code == "invalid_grant"


def test_a_url_of_another_login_or_server_gives_no_tokens(
    package: ModuleType, stack: Stack, owner: Owner, login: Any
) -> None:
    begun = login.begin(SCOPES)
    returned = _returned(stack, owner, begun.url)
    with pytest.raises(package.Refused) as other_login:
        login.finish(login.begin(SCOPES), returned)
    assert other_login.value.code == "state.mismatch"
    foreign = f"{oauth.REDIRECT}?code=c&state={begun.state}"
    for url in (foreign, f"{foreign}&iss=https://evil.example"):
        with pytest.raises(package.Refused) as other_server:
            login.finish(begun, url)
        assert other_server.value.code == "iss.mismatch"


def test_a_person_who_says_no_is_a_refusal(
    package: ModuleType, stack: Stack, owner: Owner, login: Any
) -> None:
    begun = login.begin(SCOPES)
    with pytest.raises(package.Refused) as refused:
        login.finish(begun, _returned(stack, owner, begun.url, decision="deny"))
    assert refused.value.code == "access_denied"
