"""Tests of the challenges on subscriptions and on account forms, with a simulated provider."""

import secrets
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from api.html.frame import render_page
from devstack.harness.stack import Stack
from integrations.challenges.siteverify import WIDGETS
from tests.support.http.replies import data, fields_at_fault, problem
from tests.support.lists.subscribers import (
    Reader,
    count,
    known_member,
    member,
    new_address,
    new_list,
    new_slug,
)
from tests.support.people.visiting import Visitor, a_visitor, new_account

PROVIDERS = ("turnstile", "hcaptcha", "recaptcha")
FIELDS = ("challenge-provider", "challenge-token", "challenge-action")


def new_guarded_list(client: httpx2.Client, provider: str, **fields: object) -> int:
    mailing_list = new_list(client, challenge_enabled=True, challenge_provider=provider, **fields)
    return int(mailing_list["id"])


def new_token(kind: str) -> str:
    return f"{kind}{secrets.token_hex(6)}"


def answer_challenge(
    provider: str, token: str, action: str = "subscribe", email: str | None = None
) -> dict[str, Any]:
    answers = dict(zip(FIELDS, (provider, token, action), strict=True))
    return {"email": email or new_address(), **answers}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_valid_challenge_token_subscribes_one_address_and_records_one_consent(
    client: httpx2.Client, stranger: httpx2.Client, provider: str
) -> None:
    list_id = new_guarded_list(client, provider)
    path, good = f"/subscriptions/{list_id}", new_token("pass-")
    email = new_address()
    assert data(stranger.post(path, json=answer_challenge(provider, good, email=email))) == 1
    added = known_member(client, list_id, email)
    assert added["status"] == "active"
    path_of_consent = f"/lists/{list_id}/members/{added['user_id']}/consent"
    [entry] = data(client.get(path_of_consent))["items"]
    assert (entry["how"], entry["url"], entry["claimed_by"]) == ("form", None, None)
    again = stranger.post(path, json=answer_challenge(provider, good))
    problem(again, 403, "challenge.failed")
    assert count(client, list_id) == 1


@pytest.mark.parametrize("provider", PROVIDERS)
def test_invalid_challenge_token_is_rejected_and_adds_no_member(
    client: httpx2.Client, stranger: httpx2.Client, provider: str
) -> None:
    list_id = new_guarded_list(client, provider)
    bad = [new_token("fail-"), new_token("hostname-"), "nonsense", " ", "x" * 10_000, "é", "a\nb"]
    if provider == "recaptcha":
        bad.append(new_token("low-score-"))
    for each in bad:
        sent = answer_challenge(provider, each)
        reply = stranger.post(f"/subscriptions/{list_id}", json=sent)
        problem(reply, 403, "challenge.failed")
        assert member(client, list_id, sent["email"]) is None


@pytest.mark.parametrize("provider", ["turnstile", "recaptcha"])
def test_challenge_token_for_another_action_is_rejected(
    client: httpx2.Client, stranger: httpx2.Client, provider: str
) -> None:
    path = f"/subscriptions/{new_guarded_list(client, provider)}"
    for sent in (
        answer_challenge(provider, new_token("pass.login.")),
        answer_challenge(provider, new_token("pass-"), action="login"),
        # The API ignores the action that a caller names.
        answer_challenge(provider, new_token("pass.login."), action="login"),
    ):
        problem(stranger.post(path, json=sent), 403, "challenge.failed")
    assert data(stranger.post(path, json=answer_challenge(provider, new_token("pass-")))) == 1


@pytest.mark.parametrize(
    "kind", ["error-", "garbage-", pytest.param("slow-", marks=pytest.mark.tier("timing"))]
)
def test_sign_up_returns_503_when_the_challenge_provider_fails(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, kind: str
) -> None:
    for provider in PROVIDERS:
        list_id, sent = (
            new_guarded_list(client, provider),
            answer_challenge(provider, new_token(kind)),
        )
        reply = stranger.post(f"/subscriptions/{list_id}", json=sent)
        problem(reply, 503, "challenge.unavailable")
        assert int(reply.headers["retry-after"]) > 0
        assert stack.query("SELECT 1 FROM users WHERE email = %s", sent["email"]) == []


def test_sign_up_names_each_missing_challenge_field(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    path = f"/subscriptions/{new_guarded_list(client, 'turnstile')}"
    complete_answer = answer_challenge("turnstile", new_token("pass-"))
    for name in FIELDS:
        for sent in (
            {key: value for key, value in complete_answer.items() if key != name},
            {**complete_answer, name: ""},
            {**complete_answer, name: None},
        ):
            body = problem(stranger.post(path, json=sent), 422, "challenge.missing")
            assert [each["field"] for each in body["errors"]] == [f"body.{name}"]
    body = problem(stranger.post(path, json={"email": new_address()}), 422, "challenge.missing")
    assert [each["field"] for each in body["errors"]] == [f"body.{name}" for name in FIELDS]
    # A request with a missing field doesn't use up the challenge token.
    assert data(stranger.post(path, json=complete_answer)) == 1


def test_sign_up_rejects_challenge_tokens_of_another_provider(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    list_id = new_guarded_list(client, "turnstile")
    for other in ("hcaptcha", "recaptcha", "Turnstile", "unheard-of"):
        sent = answer_challenge(other, new_token("pass-"))
        reply = stranger.post(f"/subscriptions/{list_id}", json=sent)
        body = problem(reply, 422, "challenge.provider_mismatch")
        assert [each["field"] for each in body["errors"]] == ["body.challenge-provider"]
        assert "turnstile" in body["message"]
    assert count(client, list_id) == 0


def test_sign_up_with_an_invalid_address_does_not_use_up_the_challenge_token(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    path, good = f"/subscriptions/{new_guarded_list(client, 'turnstile')}", new_token("pass-")
    bad = {**answer_challenge("turnstile", good), "email": "nobody"}
    problem(stranger.post(path, json=bad), 422, "body.invalid")
    assert data(stranger.post(path, json=answer_challenge("turnstile", good))) == 1


def test_sign_up_of_a_known_address_requires_the_challenge_too(
    client: httpx2.Client, stranger: httpx2.Client, reader: Reader
) -> None:
    list_id = new_guarded_list(client, "turnstile")
    reader.joins(list_id)
    path = f"/subscriptions/{list_id}"
    problem(stranger.post(path, json={"email": reader.email}), 422, "challenge.missing")
    sent = answer_challenge("turnstile", new_token("fail-"), email=reader.email)
    problem(stranger.post(path, json=sent), 403, "challenge.failed")
    sent = answer_challenge("turnstile", new_token("pass-"), email=reader.email)
    assert data(stranger.post(path, json=sent)) == 1


def test_sign_up_with_a_challenge_stays_pending_if_the_list_requires_confirmation(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    list_id = new_guarded_list(client, "hcaptcha", confirm_required=True)
    sent = answer_challenge("hcaptcha", new_token("pass-"))
    assert data(stranger.post(f"/subscriptions/{list_id}", json=sent)) == 1
    assert known_member(client, list_id, sent["email"])["status"] == "pending"


def test_logged_in_person_joins_without_challenge_and_confirmation(
    client: httpx2.Client, reader: Reader
) -> None:
    list_id = new_guarded_list(client, "recaptcha", confirm_required=True)
    reader.joins(list_id)
    assert reader.stands(list_id) == ("active", True)


LACKING = "list.challenge_provider"


def test_list_with_challenge_requires_a_challenge_provider(
    client: httpx2.Client, list_id: int
) -> None:
    path = f"/lists/{list_id}"
    body = problem(client.patch(path, json={"challenge_enabled": True}), 422, LACKING)
    assert fields_at_fault(body) == ["body.challenge_provider"]
    both = {"challenge_enabled": True, "challenge_provider": "turnstile"}
    assert data(client.patch(path, json=both))["challenge_site_key"] == "sandbox-turnstile-site-key"
    problem(client.patch(path, json={"challenge_provider": None}), 422, LACKING)
    off = {"challenge_enabled": False, "challenge_provider": None}
    changed = data(client.patch(path, json=off))
    assert (changed["challenge_provider"], changed["challenge_site_key"]) == (None, None)


def test_list_with_challenge_requires_a_provider_that_is_configured(
    client_without_workers: httpx2.Client,
) -> None:
    """The test stack without workers has no challenge provider in its settings."""
    change = {"challenge_enabled": True, "challenge_provider": "recaptcha"}
    body = {"title": "T", "slug": new_slug(), **change}
    error = problem(client_without_workers.post("/lists", json=body), 422, LACKING)
    assert "none" in error["message"]
    mailing_list = new_list(client_without_workers)
    problem(client_without_workers.patch(f"/lists/{mailing_list['id']}", json=change), 422, LACKING)


def test_list_with_an_unconfigured_challenge_provider_can_still_be_changed(
    stack_without_workers: Stack, client_without_workers: httpx2.Client
) -> None:
    list_id = new_list(client_without_workers)["id"]
    path = f"/lists/{list_id}"
    stack_without_workers.query(
        "UPDATE lists SET challenge_enabled = true, challenge_provider = 'recaptcha' WHERE id = %s",
        list_id,
    )
    assert data(client_without_workers.patch(path, json={"title": "New"}))["title"] == "New"
    sent = answer_challenge("recaptcha", new_token("pass-"))
    reply = client_without_workers.post(f"/subscriptions/{list_id}", json=sent)
    problem(reply, 503, "challenge.not_configured")
    assert "retry-after" in reply.headers
    assert data(client_without_workers.patch(path, json={"challenge_enabled": False}))


FIELD = "cf-turnstile-response"
SITE_KEY = "sandbox-turnstile-site-key"
PATHS = {"/register": "register", "/password/forgotten": "forgotten"}
SUBJECTS = {
    "/register": "You already have an account",
    "/password/forgotten": "Choose a new password",
}


@pytest.fixture(scope="module")
def stack_with_challenges(stack: Stack) -> Iterator[Stack]:
    """A second API process of the shared stack, which shows a challenge on account forms."""
    with stack.run_second_api(PRESSROOM_ACCOUNT_CHALLENGE="turnstile") as second:
        yield second


@pytest.fixture
def challenged_visitor(stack_with_challenges: Stack) -> Iterator[Visitor]:
    """A logged-out browser at an API process that shows a challenge on account forms."""
    with a_visitor(stack_with_challenges) as visitor:
        yield visitor


def account_mails(stack: Stack, email: str) -> list[tuple[object, ...]]:
    return stack.query("SELECT kind FROM account_mails WHERE email = %s", email)


@pytest.mark.parametrize("path", PATHS)
def test_account_page_shows_the_challenge_widget_for_its_own_action(
    challenged_visitor: Visitor, path: str
) -> None:
    page_reply = challenged_visitor.get(path)
    for part in (f'data-sitekey="{SITE_KEY}"', f'data-action="{PATHS[path]}"', "<noscript>"):
        assert part in page_reply.text
    policy = _directives(page_reply)
    origin = "https://challenges.cloudflare.com"
    assert policy["script-src"] == policy["frame-src"] == origin
    assert policy["default-src"] == "'none'"
    assert policy["form-action"] == "'self'"
    assert "unsafe" not in page_reply.headers["content-security-policy"]


@pytest.mark.parametrize("path", PATHS)
def test_challenge_token_on_an_account_page_sends_one_mail_and_cannot_be_reused(
    stack: Stack, challenged_visitor: Visitor, path: str
) -> None:
    email, good = new_account(stack), new_token(f"pass.{PATHS[path]}.")
    reply = challenged_visitor.fill_in(path, email=email, **{FIELD: good})
    assert (reply.status_code, reply.headers["location"]) == (303, "?sent=yes")
    challenged_visitor.mailed(email, SUBJECTS[path])
    again = challenged_visitor.fill_in(path, email=email, **{FIELD: good})
    assert again.status_code == 403
    assert len(account_mails(stack, email)) == 1


@pytest.mark.parametrize("path", PATHS)
def test_account_page_with_an_invalid_challenge_token_sends_no_mail_and_is_shown_again(
    stack: Stack, challenged_visitor: Visitor, path: str
) -> None:
    other = next(action for action in PATHS.values() if action != PATHS[path])
    bad = {
        "": 403,
        new_token("fail-"): 403,
        # Tokens of a list's widget and of another page are refused.
        new_token("pass-"): 403,
        new_token(f"pass.{other}."): 403,
        new_token("hostname-"): 403,
        new_token("error-"): 503,
    }
    for sent, status in bad.items():
        email = new_address()
        reply = challenged_visitor.fill_in(path, email=email, **{FIELD: sent})
        assert reply.status_code == status, sent
        assert email in reply.text
        assert f'data-sitekey="{SITE_KEY}"' in reply.text
        assert account_mails(stack, email) == []


def test_account_page_without_a_challenge_has_no_script(stranger: httpx2.Client) -> None:
    shown = stranger.get("/register")
    assert "<script" not in shown.text
    assert "script-src" not in shown.headers["content-security-policy"]


@pytest.mark.parametrize("provider", WIDGETS)
def test_content_security_policy_allows_only_the_challenge_widget_in_use(provider: str) -> None:
    widget = next(each for name, each in WIDGETS.items() if name == provider)
    policy = _directives(render_page("problem.html", other_sources=widget.policy, **_PROBLEM))
    own = _directives(render_page("problem.html", **_PROBLEM))
    allowed = [source.replace("*.", "js.") for source in policy["script-src"].split()]
    assert any(widget.script.startswith(source) for source in allowed)
    for name, sources in own.items():
        assert policy[name].startswith(sources)
    assert set(policy) - set(own) <= {"script-src", "frame-src", "connect-src"}


_PROBLEM: dict[str, Any] = {
    "heading": "H",
    "text": "T",
    "number": None,
    "next_page": None,
    "is_about_link": False,
}


def _directives(reply: object) -> dict[str, str]:
    headers: httpx2.Headers = reply.headers  # type: ignore[attr-defined]
    parts = headers["content-security-policy"].split("; ")
    return {name: sources for name, _, sources in (part.partition(" ") for part in parts)}
