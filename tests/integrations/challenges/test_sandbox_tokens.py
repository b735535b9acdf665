"""Each kind of token, over HTTP against the sandbox, for each provider."""

import asyncio

import httpx
import pytest

from devstack.sandbox.challenges import ChallengeStub
from devstack.sandbox.sandbox_settings import challenge_secret
from integrations.challenges.port import ChallengeProviderName, ChallengeResponse
from integrations.challenges.registry import Challenges
from tests.integrations.challenges.setting import (
    asking,
    check,
    of_sandbox,
    outcome,
    sandbox_path,
    token,
)

each_provider = pytest.mark.parametrize("provider", ChallengeProviderName)


@each_provider
def test_a_good_token_passes_once(sandbox: str, provider: ChallengeProviderName) -> None:
    given, good = of_sandbox(sandbox), token("pass-")
    assert check(given, provider, good, remote_ip="203.0.113.7") == "passed"
    assert check(given, provider, good) == "challenge.failed"


@each_provider
def test_of_twenty_calls_with_one_token_exactly_one_passes(
    sandbox: str, provider: ChallengeProviderName
) -> None:
    answer = ChallengeResponse(token("pass-"), "subscribe")

    async def all_at_once(challenges: Challenges) -> list[str]:
        challenge = challenges.challenge_for(provider)
        return list(await asyncio.gather(*(outcome(challenge.check(answer)) for _ in range(20))))

    outcomes = asking(of_sandbox(sandbox), all_at_once)
    assert sorted(outcomes) == ["challenge.failed"] * 19 + ["passed"]


@each_provider
@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("fail-", "challenge.failed"),
        ("anything else ", "challenge.failed"),
        ("hostname-", "challenge.failed"),
        ("error-", "challenge.unavailable"),
        ("garbage-", "challenge.unavailable"),
    ],
)
def test_what_is_no_good_token_never_passes(
    sandbox: str, provider: ChallengeProviderName, start: str, expected: str
) -> None:
    assert check(of_sandbox(sandbox), provider, token(start)) == expected


@each_provider
def test_a_host_name_counts_when_it_is_ours_or_settings_name_it(
    sandbox: str, provider: ChallengeProviderName
) -> None:
    ours = of_sandbox(sandbox, challenge_hostnames="")
    assert check(ours, provider, token("hostname-")) == "challenge.failed"
    assert check(ours, provider, token("pass-")) == "passed"
    there = of_sandbox(
        sandbox,
        challenge_hostnames="Elsewhere.Example, www.example.com",
        public_url="https://news.example",
    )
    assert check(there, provider, token("hostname-")) == "passed"
    assert check(there, provider, token("pass-")) == "challenge.failed"


@pytest.mark.parametrize(
    "provider", [ChallengeProviderName.TURNSTILE, ChallengeProviderName.RECAPTCHA]
)
def test_a_token_counts_only_for_the_action_it_was_made_for(
    sandbox: str, provider: ChallengeProviderName
) -> None:
    given = of_sandbox(sandbox)
    assert check(given, provider, token("pass.login.")) == "challenge.failed"
    assert check(given, provider, token("pass.login."), action="login") == "passed"
    assert check(given, provider, token("pass-"), action="Subscribe") == "challenge.failed"
    assert check(given, provider, token("pass-"), action="") == "challenge.failed"


def test_hcaptcha_has_no_actions(sandbox: str) -> None:
    given = of_sandbox(sandbox)
    assert (
        check(given, ChallengeProviderName.HCAPTCHA, token("pass-"), action="anything") == "passed"
    )


def test_turnstile_without_an_action_is_for_no_action(sandbox: str) -> None:
    given = of_sandbox(sandbox)
    assert check(given, ChallengeProviderName.TURNSTILE, token("pass..")) == "challenge.failed"
    assert check(given, ChallengeProviderName.TURNSTILE, token("pass.."), action="") == "passed"


def test_recaptcha_2_which_has_no_action_passes(sandbox: str) -> None:
    assert check(of_sandbox(sandbox), ChallengeProviderName.RECAPTCHA, token("pass..")) == "passed"


def test_a_low_score_fails(sandbox: str) -> None:
    given = of_sandbox(sandbox)
    assert check(given, ChallengeProviderName.RECAPTCHA, token("low-score-")) == "challenge.failed"


@each_provider
def test_a_wrong_secret_is_our_fault_and_passes_nobody(
    sandbox: str, provider: ChallengeProviderName
) -> None:
    given = of_sandbox(sandbox, **{f"{provider}_secret": "stale"})
    good = token("pass-")
    assert check(given, provider, good) == "challenge.unavailable"
    assert check(of_sandbox(sandbox), provider, good) == "passed"


def test_hcaptcha_refuses_a_site_key_of_another_account(sandbox: str) -> None:
    given = of_sandbox(sandbox, hcaptcha_site_key="another")
    assert check(given, ChallengeProviderName.HCAPTCHA, token("pass-")) == "challenge.unavailable"


@pytest.mark.parametrize(
    ("provider", "code"),
    [
        (ChallengeProviderName.TURNSTILE, "timeout-or-duplicate"),
        (ChallengeProviderName.HCAPTCHA, "already-seen-response"),
        (ChallengeProviderName.RECAPTCHA, "timeout-or-duplicate"),
    ],
)
def test_a_used_token_gets_the_provider_s_own_code(
    sandbox: str, provider: ChallengeProviderName, code: str
) -> None:
    form = {"secret": challenge_secret(provider), "response": token("pass-")}
    url = sandbox + sandbox_path(provider)
    assert httpx.post(url, data=form).json()["success"] is True
    assert httpx.post(url, data=form).json() == {"success": False, "error-codes": [code]}


@pytest.mark.parametrize(
    ("form", "code"),
    [
        ({}, "missing-input-secret"),
        ({"secret": "another", "response": "pass-x"}, "invalid-input-secret"),
        ({"secret": challenge_secret("turnstile")}, "missing-input-response"),
    ],
)
def test_the_sandbox_names_what_is_missing(sandbox: str, form: dict[str, str], code: str) -> None:
    reply = httpx.post(sandbox + sandbox_path(ChallengeProviderName.TURNSTILE), data=form)
    assert reply.json()["error-codes"] == [code]


def test_the_sandbox_remembers_a_bounded_number_of_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("devstack.sandbox.challenges.MAX_KEPT_TOKENS", 3)
    desk = ChallengeStub("turnstile")

    async def passes(token: str) -> bool:
        reply = await desk.verify(challenge_secret("turnstile"), token, "")
        return b'"success":true' in reply.body

    async def all_of(*tokens: str) -> list[bool]:
        return [await passes(each) for each in tokens]

    first, again = ["pass-1", "pass-2", "pass-3"], ["pass-1", "pass-4", "pass-4", "pass-1"]
    assert asyncio.run(all_of(*first, *again)) == [True] * 3 + [False, True, False, True]


def test_the_page_explains_every_token_and_names_every_path(sandbox: str) -> None:
    page = httpx.get(f"{sandbox}/challenges").text
    assert "{{" not in page
    assert all(start in page for start in ("pass-…", "fail-…"))
    assert all(sandbox_path(provider) in page for provider in ChallengeProviderName)
    assert 'href="/challenges"' in httpx.get(sandbox).text
