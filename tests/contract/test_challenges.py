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
    find_member,
    new_address,
    new_list,
    new_slug,
    read_subscriber_count,
    require_member,
)
from tests.support.people.visiting import Visitor, new_account, new_visitor

PROVIDERS = ("turnstile", "hcaptcha", "recaptcha")
CHALLENGE_FIELDS = ("challenge-provider", "challenge-token", "challenge-action")


def new_guarded_list(client: httpx2.Client, provider: str, **fields: object) -> int:
    mailing_list = new_list(client, challenge_enabled=True, challenge_provider=provider, **fields)
    return int(mailing_list["id"])


def new_token(kind: str) -> str:
    return f"{kind}{secrets.token_hex(6)}"


def answer_challenge(
    provider: str, token: str, action: str = "subscribe", email: str | None = None
) -> dict[str, Any]:
    answers = dict(zip(CHALLENGE_FIELDS, (provider, token, action), strict=True))
    return {"email": email or new_address(), **answers}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_valid_challenge_token_subscribes_one_address_and_records_one_consent(
    client: httpx2.Client, stranger: httpx2.Client, provider: str
) -> None:
    list_id = new_guarded_list(client, provider)
    path = f"/subscriptions/{list_id}"
    token = new_token("pass-")
    email = new_address()
    assert data(stranger.post(path, json=answer_challenge(provider, token, email=email))) == 1
    member_record = require_member(client, list_id, email)
    assert member_record["status"] == "active"
    consent_path = f"/lists/{list_id}/members/{member_record['user_id']}/consent"
    [consent] = data(client.get(consent_path))["items"]
    assert (consent["how"], consent["url"], consent["claimed_by"]) == ("form", None, None)
    repeated_reply = stranger.post(path, json=answer_challenge(provider, token))
    problem(repeated_reply, 403, "challenge.failed")
    assert read_subscriber_count(client, list_id) == 1


@pytest.mark.parametrize("provider", PROVIDERS)
def test_invalid_challenge_token_is_rejected_and_adds_no_member(
    client: httpx2.Client, stranger: httpx2.Client, provider: str
) -> None:
    list_id = new_guarded_list(client, provider)
    invalid_tokens = [new_token("fail-"), new_token("hostname-")]
    invalid_tokens += ["nonsense", " ", "x" * 10_000, "é", "a\nb"]
    if provider == "recaptcha":
        invalid_tokens.append(new_token("low-score-"))
    for token in invalid_tokens:
        body = answer_challenge(provider, token)
        reply = stranger.post(f"/subscriptions/{list_id}", json=body)
        problem(reply, 403, "challenge.failed")
        assert find_member(client, list_id, body["email"]) is None


@pytest.mark.parametrize("provider", ["turnstile", "recaptcha"])
def test_challenge_token_for_another_action_is_rejected(
    client: httpx2.Client, stranger: httpx2.Client, provider: str
) -> None:
    path = f"/subscriptions/{new_guarded_list(client, provider)}"
    for body in (
        answer_challenge(provider, new_token("pass.login.")),
        answer_challenge(provider, new_token("pass-"), action="login"),
        # The API ignores the challenge action in the request body, and uses the token's action.
        answer_challenge(provider, new_token("pass.login."), action="login"),
    ):
        problem(stranger.post(path, json=body), 403, "challenge.failed")
    assert data(stranger.post(path, json=answer_challenge(provider, new_token("pass-")))) == 1


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    "kind", ["error-", "garbage-", pytest.param("slow-", marks=pytest.mark.tier("timing"))]
)
def test_sign_up_returns_503_when_the_challenge_provider_fails(
    stack: Stack, client: httpx2.Client, stranger: httpx2.Client, kind: str, provider: str
) -> None:
    list_id = new_guarded_list(client, provider)
    body = answer_challenge(provider, new_token(kind))
    reply = stranger.post(f"/subscriptions/{list_id}", json=body)
    problem(reply, 503, "challenge.unavailable")
    assert int(reply.headers["retry-after"]) > 0
    assert stack.query("SELECT 1 FROM users WHERE email = %s", body["email"]) == []


def test_sign_up_names_each_missing_challenge_field(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    path = f"/subscriptions/{new_guarded_list(client, 'turnstile')}"
    complete_answer = answer_challenge("turnstile", new_token("pass-"))
    for name in CHALLENGE_FIELDS:
        for body in (
            {key: value for key, value in complete_answer.items() if key != name},
            {**complete_answer, name: ""},
            {**complete_answer, name: None},
        ):
            error = problem(stranger.post(path, json=body), 422, "challenge.missing")
            assert [each["field"] for each in error["errors"]] == [f"body.{name}"]
    error = problem(stranger.post(path, json={"email": new_address()}), 422, "challenge.missing")
    assert [each["field"] for each in error["errors"]] == [
        f"body.{name}" for name in CHALLENGE_FIELDS
    ]
    # A request with a missing field doesn't use up the challenge token.
    assert data(stranger.post(path, json=complete_answer)) == 1


def test_sign_up_rejects_challenge_tokens_of_another_provider(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    list_id = new_guarded_list(client, "turnstile")
    for other_provider in ("hcaptcha", "recaptcha", "Turnstile", "unheard-of"):
        body = answer_challenge(other_provider, new_token("pass-"))
        reply = stranger.post(f"/subscriptions/{list_id}", json=body)
        error = problem(reply, 422, "challenge.provider_mismatch")
        assert [each["field"] for each in error["errors"]] == ["body.challenge-provider"]
        assert "turnstile" in error["message"]
    assert read_subscriber_count(client, list_id) == 0


def test_sign_up_with_an_invalid_address_does_not_use_up_the_challenge_token(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    path = f"/subscriptions/{new_guarded_list(client, 'turnstile')}"
    token = new_token("pass-")
    invalid_body = {**answer_challenge("turnstile", token), "email": "nobody"}
    problem(stranger.post(path, json=invalid_body), 422, "body.invalid")
    assert data(stranger.post(path, json=answer_challenge("turnstile", token))) == 1


def test_sign_up_of_a_known_address_requires_the_challenge_too(
    client: httpx2.Client, stranger: httpx2.Client, reader: Reader
) -> None:
    list_id = new_guarded_list(client, "turnstile")
    reader.joins(list_id)
    path = f"/subscriptions/{list_id}"
    problem(stranger.post(path, json={"email": reader.email}), 422, "challenge.missing")
    body = answer_challenge("turnstile", new_token("fail-"), email=reader.email)
    problem(stranger.post(path, json=body), 403, "challenge.failed")
    body = answer_challenge("turnstile", new_token("pass-"), email=reader.email)
    assert data(stranger.post(path, json=body)) == 1


def test_sign_up_with_a_challenge_stays_pending_if_the_list_requires_confirmation(
    client: httpx2.Client, stranger: httpx2.Client
) -> None:
    list_id = new_guarded_list(client, "hcaptcha", confirm_required=True)
    body = answer_challenge("hcaptcha", new_token("pass-"))
    assert data(stranger.post(f"/subscriptions/{list_id}", json=body)) == 1
    assert require_member(client, list_id, body["email"])["status"] == "pending"


def test_logged_in_person_joins_without_challenge_and_confirmation(
    client: httpx2.Client, reader: Reader
) -> None:
    list_id = new_guarded_list(client, "recaptcha", confirm_required=True)
    reader.joins(list_id)
    assert reader.read_status(list_id) == ("active", True)


PROVIDER_ERROR_CODE = "list.challenge_provider"


def test_list_with_challenge_requires_a_challenge_provider(
    client: httpx2.Client, list_id: int
) -> None:
    path = f"/lists/{list_id}"
    error = problem(client.patch(path, json={"challenge_enabled": True}), 422, PROVIDER_ERROR_CODE)
    assert fields_at_fault(error) == ["body.challenge_provider"]
    with_challenge = {"challenge_enabled": True, "challenge_provider": "turnstile"}
    assert (
        data(client.patch(path, json=with_challenge))["challenge_site_key"]
        == "sandbox-turnstile-site-key"
    )
    problem(client.patch(path, json={"challenge_provider": None}), 422, PROVIDER_ERROR_CODE)
    without_challenge = {"challenge_enabled": False, "challenge_provider": None}
    changed = data(client.patch(path, json=without_challenge))
    assert (changed["challenge_provider"], changed["challenge_site_key"]) == (None, None)


def test_list_with_challenge_requires_a_provider_that_is_configured(
    client_without_workers: httpx2.Client,
) -> None:
    """The test stack without workers has no challenge provider in its settings."""
    change = {"challenge_enabled": True, "challenge_provider": "recaptcha"}
    body = {"title": "T", "slug": new_slug(), **change}
    error = problem(client_without_workers.post("/lists", json=body), 422, PROVIDER_ERROR_CODE)
    assert "none" in error["message"]
    mailing_list = new_list(client_without_workers)
    problem(
        client_without_workers.patch(f"/lists/{mailing_list['id']}", json=change),
        422,
        PROVIDER_ERROR_CODE,
    )


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
    body = answer_challenge("recaptcha", new_token("pass-"))
    reply = client_without_workers.post(f"/subscriptions/{list_id}", json=body)
    problem(reply, 503, "challenge.not_configured")
    assert "retry-after" in reply.headers
    assert data(client_without_workers.patch(path, json={"challenge_enabled": False}))


TURNSTILE_FIELD = "cf-turnstile-response"
SITE_KEY = "sandbox-turnstile-site-key"
ACTIONS_BY_PATH = {"/register": "register", "/password/forgotten": "forgotten"}
MAIL_SUBJECTS_BY_PATH = {
    "/register": "You already have an account",
    "/password/forgotten": "Choose a new password",
}


@pytest.fixture(scope="module")
def stack_with_challenges(stack: Stack) -> Iterator[Stack]:
    """A second API process of the shared stack, which shows a challenge on account forms."""
    with stack.run_second_api(PRESSROOM_ACCOUNT_CHALLENGE="turnstile") as second_api:
        yield second_api


@pytest.fixture
def challenged_visitor(stack_with_challenges: Stack) -> Iterator[Visitor]:
    """A logged-out browser at an API process that shows a challenge on account forms."""
    with new_visitor(stack_with_challenges) as visitor:
        yield visitor


def account_mails(stack: Stack, email: str) -> list[tuple[object, ...]]:
    return stack.query("SELECT kind FROM account_mails WHERE email = %s", email)


@pytest.mark.parametrize("path", ACTIONS_BY_PATH)
def test_account_page_shows_the_challenge_widget_for_its_own_action(
    challenged_visitor: Visitor, path: str
) -> None:
    page_reply = challenged_visitor.get(path)
    for part in (
        f'data-sitekey="{SITE_KEY}"',
        f'data-action="{ACTIONS_BY_PATH[path]}"',
        "<noscript>",
    ):
        assert part in page_reply.text
    policy = _read_policy(page_reply)
    origin = "https://challenges.cloudflare.com"
    assert policy["script-src"] == policy["frame-src"] == origin
    assert policy["default-src"] == "'none'"
    assert policy["form-action"] == "'self'"
    assert "unsafe" not in page_reply.headers["content-security-policy"]


@pytest.mark.parametrize("path", ACTIONS_BY_PATH)
def test_challenge_token_on_an_account_page_sends_one_mail_and_cannot_be_reused(
    stack: Stack, challenged_visitor: Visitor, path: str
) -> None:
    email = new_account(stack)
    token = new_token(f"pass.{ACTIONS_BY_PATH[path]}.")
    reply = challenged_visitor.fill_in(path, email=email, **{TURNSTILE_FIELD: token})
    assert (reply.status_code, reply.headers["location"]) == (303, "?sent=yes")
    challenged_visitor.mailed(email, MAIL_SUBJECTS_BY_PATH[path])
    repeated_reply = challenged_visitor.fill_in(path, email=email, **{TURNSTILE_FIELD: token})
    assert repeated_reply.status_code == 403
    assert len(account_mails(stack, email)) == 1


@pytest.mark.parametrize("path", ACTIONS_BY_PATH)
def test_account_page_with_an_invalid_challenge_token_sends_no_mail_and_is_shown_again(
    stack: Stack, challenged_visitor: Visitor, path: str
) -> None:
    other_action = next(
        action for action in ACTIONS_BY_PATH.values() if action != ACTIONS_BY_PATH[path]
    )
    statuses_by_token = {
        "": 403,
        new_token("fail-"): 403,
        # A token that begins with ``pass-`` is valid only on a sign-up form. A token that begins
        # with ``pass.ACTION.`` is valid only on the page whose challenge has the action ``ACTION``.
        new_token("pass-"): 403,
        new_token(f"pass.{other_action}."): 403,
        new_token("hostname-"): 403,
        new_token("error-"): 503,
    }
    for token, status in statuses_by_token.items():
        email = new_address()
        reply = challenged_visitor.fill_in(path, email=email, **{TURNSTILE_FIELD: token})
        assert reply.status_code == status, token
        assert email in reply.text
        assert f'data-sitekey="{SITE_KEY}"' in reply.text
        assert account_mails(stack, email) == []


def test_account_page_without_a_challenge_has_no_script(stranger: httpx2.Client) -> None:
    page = stranger.get("/register")
    assert "<script" not in page.text
    assert "script-src" not in page.headers["content-security-policy"]


@pytest.mark.parametrize("provider", WIDGETS)
def test_content_security_policy_allows_only_the_challenge_widget_in_use(provider: str) -> None:
    widget = next(each for name, each in WIDGETS.items() if name == provider)
    policy = _read_policy(
        render_page("problem.html", other_sources=widget.policy, **_ERROR_PAGE_VALUES)
    )
    default_policy = _read_policy(render_page("problem.html", **_ERROR_PAGE_VALUES))
    allowed_sources = [source.replace("*.", "js.") for source in policy["script-src"].split()]
    assert any(widget.script.startswith(source) for source in allowed_sources)
    for name, sources in default_policy.items():
        assert policy[name].startswith(sources)
    assert set(policy) - set(default_policy) <= {"script-src", "frame-src", "connect-src"}


_ERROR_PAGE_VALUES: dict[str, Any] = {
    "heading": "H",
    "text": "T",
    "number": None,
    "next_page": None,
    "ask_path": None,
}


def _read_policy(reply: object) -> dict[str, str]:
    headers: httpx2.Headers = reply.headers  # type: ignore[attr-defined]
    parts = headers["content-security-policy"].split("; ")
    return {name: sources for name, _, sources in (part.partition(" ") for part in parts)}
