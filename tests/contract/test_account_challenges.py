"""Registering and asking for a new password where a challenge is set up."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from api.html.frame import page
from devstack import LOOPBACK
from integrations.challenges.siteverify import WIDGETS
from tests.contract.test_challenges import token
from tests.ports import free_port
from tests.stack import Stack, plain_client
from tests.visiting import Visitor, new_account, new_address

FIELD = "cf-turnstile-response"
SITE_KEY = "sandbox-turnstile-site-key"
PATHS = {"/register": "register", "/password/forgotten": "forgotten"}
SUBJECTS = {
    "/register": "You have an account already",
    "/password/forgotten": "Choose a new password",
}


@pytest.fixture(scope="module")
def guarded(stack: Stack, home: Path) -> Iterator[str]:
    """The URL of an API process of the shared stack that asks for a challenge."""
    port = free_port()
    running = stack.start_api(port, PRESSROOM_ACCOUNT_CHALLENGE="turnstile")
    yield f"http://{LOOPBACK}:{port}"
    running.stop()
    stack.processes.remove(running)


@pytest.fixture
def visitor(stack: Stack, guarded: str) -> Iterator[Visitor]:
    with plain_client(base_url=guarded) as client:
        yield Visitor(stack, client)


def asked(stack: Stack, email: str) -> list[tuple[object, ...]]:
    return stack.query("SELECT kind FROM account_mails WHERE email = %s", email)


@pytest.mark.parametrize("path", PATHS)
def test_the_page_shows_the_widget_for_its_own_action(visitor: Visitor, path: str) -> None:
    shown = visitor.get(path)
    for part in (f'data-sitekey="{SITE_KEY}"', f'data-action="{PATHS[path]}"', "<noscript>"):
        assert part in shown.text
    policy = _directives(shown)
    origin = "https://challenges.cloudflare.com"
    assert policy["script-src"] == policy["frame-src"] == origin
    assert policy["default-src"] == "'none'"
    assert policy["form-action"] == "'self'"
    assert "unsafe" not in shown.headers["content-security-policy"]


@pytest.mark.parametrize("path", PATHS)
def test_a_token_for_this_action_has_the_mail_sent_once(
    stack: Stack, visitor: Visitor, path: str
) -> None:
    email, good = new_account(stack), token(f"pass.{PATHS[path]}.")
    reply = visitor.fill_in(path, email=email, **{FIELD: good})
    assert (reply.status_code, reply.headers["location"]) == (303, "?sent=yes")
    visitor.mailed(email, SUBJECTS[path])
    again = visitor.fill_in(path, email=email, **{FIELD: good})
    assert again.status_code == 403
    assert len(asked(stack, email)) == 1


@pytest.mark.parametrize("path", PATHS)
def test_without_a_good_token_nothing_is_mailed_and_the_page_comes_again(
    stack: Stack, visitor: Visitor, path: str
) -> None:
    other = next(action for action in PATHS.values() if action != PATHS[path])
    bad = {
        "": 403,
        token("fail-"): 403,
        # Of the widget of a list, and of the other page.
        token("pass-"): 403,
        token(f"pass.{other}."): 403,
        token("hostname-"): 403,
        token("error-"): 503,
    }
    for sent, status in bad.items():
        email = new_address()
        reply = visitor.fill_in(path, email=email, **{FIELD: sent})
        assert reply.status_code == status, sent
        assert email in reply.text
        assert f'data-sitekey="{SITE_KEY}"' in reply.text
        assert asked(stack, email) == []


def test_a_page_without_a_challenge_has_no_script(stack: Stack) -> None:
    with plain_client(base_url=stack.api_url) as client:
        shown = client.get("/register")
        assert "<script" not in shown.text
        assert "script-src" not in shown.headers["content-security-policy"]


@pytest.mark.parametrize("provider", WIDGETS)
def test_each_widget_is_allowed_and_nothing_else(provider: str) -> None:
    widget = next(each for name, each in WIDGETS.items() if name == provider)
    policy = _directives(page("problem.html", foreign=widget.policy, **_PROBLEM))
    own = _directives(page("problem.html", **_PROBLEM))
    allowed = [source.replace("*.", "js.") for source in policy["script-src"].split()]
    assert any(widget.script.startswith(source) for source in allowed)
    for name, sources in own.items():
        assert policy[name].startswith(sources)
    assert set(policy) - set(own) <= {"script-src", "frame-src", "connect-src"}


_PROBLEM: dict[str, Any] = {"heading": "H", "text": "T", "number": None}


def _directives(reply: object) -> dict[str, str]:
    headers: httpx2.Headers = reply.headers  # type: ignore[attr-defined]
    parts = headers["content-security-policy"].split("; ")
    return {name: sources for name, _, sources in (part.partition(" ") for part in parts)}
