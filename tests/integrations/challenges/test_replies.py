import gzip
import itertools
import json

import pytest
from structlog.testing import capture_logs

from core.settings import Settings
from devstack.sandbox.sandbox_settings import get_challenge_secret, get_challenge_site_key
from integrations.challenges.port import ChallengeProviderName, ChallengeResponse
from integrations.challenges.registry import Challenges
from tests.support.challenges.server import ChallengeServer
from tests.support.challenges.setting import (
    ask_challenges,
    check_repeatedly,
    check_token,
    read_outcome,
    settings_for_sandbox,
    settings_for_server,
)

_numbers = itertools.count()

for_each_provider = pytest.mark.parametrize("provider", ChallengeProviderName)
SCORED_REPLY = {"success": True, "score": 0.9, "action": "subscribe", "hostname": "localhost"}
# The reply of a CAPTCHA provider to a valid token. The reply has no score, because only version 3
# of reCAPTCHA sends a score.
PASSING_REPLY = {"success": True, "action": "subscribe"}
ALL_FAILED = ["challenge.failed"] * 3
ALL_UNAVAILABLE = ["challenge.unavailable"] * 3


def new_token(start: str) -> str:
    """Return an unused token with this beginning, for example `token("pass-")`."""
    return f"{start}{next(_numbers)}"


def check_everywhere(challenge_settings: Settings, token: str) -> list[str]:
    """Verify a token with each challenge provider, and return one outcome per provider."""

    async def check_each(challenges: Challenges) -> list[str]:
        response = ChallengeResponse(token, "subscribe")
        return [
            await read_outcome(challenges.challenge_for(name).check(response))
            for name in ChallengeProviderName
        ]

    return ask_challenges(challenge_settings, check_each)


@for_each_provider
def test_challenge_check_posts_secret_token_and_client_address(
    challenge_server: ChallengeServer, provider: ChallengeProviderName
) -> None:
    challenge_server.set_reply(PASSING_REPLY)
    settings = settings_for_server(challenge_server.url)
    assert check_token(settings, provider, "a b&c=d", remote_ip="2001:db8::1") == "passed"
    assert check_token(settings, provider, "t") == "passed"
    with_address, without_address = challenge_server.requests
    assert with_address.headers["Content-Type"] == "application/x-www-form-urlencoded"
    provider_fields = (
        {"sitekey": get_challenge_site_key(provider)}
        if provider == ChallengeProviderName.HCAPTCHA
        else {}
    )
    expected = {"secret": get_challenge_secret(provider), "response": "a b&c=d", **provider_fields}
    assert with_address.form == {**expected, "remoteip": "2001:db8::1"}
    assert without_address.form == {**expected, "response": "t"}


@pytest.mark.parametrize(
    "malformed_token", ["", "  \t ", "ümlaut", "line\nbreak", "nul\0", "\ud800"]
)
def test_malformed_challenge_token_fails_without_a_call(
    challenge_server: ChallengeServer, malformed_token: str
) -> None:
    assert (
        check_everywhere(settings_for_server(challenge_server.url), malformed_token) == ALL_FAILED
    )
    assert challenge_server.requests == []


@pytest.mark.parametrize(
    ("provider", "max_characters"),
    [
        (ChallengeProviderName.TURNSTILE, 2048),
        (ChallengeProviderName.HCAPTCHA, 8192),
        (ChallengeProviderName.RECAPTCHA, 8192),
    ],
)
def test_oversized_challenge_token_fails_without_a_call(
    challenge_server: ChallengeServer, provider: ChallengeProviderName, max_characters: int
) -> None:
    challenge_server.set_reply(PASSING_REPLY)
    settings = settings_for_server(challenge_server.url)
    assert check_token(settings, provider, "t" * (max_characters + 1)) == "challenge.failed"
    assert challenge_server.requests == []
    assert check_token(settings, provider, "t" * max_characters) == "passed"


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize(
    "code",
    [
        "missing-input-response",
        "invalid-input-response",
        "expired-input-response",
        "already-seen-response",
        "invalid-or-already-seen-response",
        "timeout-or-duplicate",
    ],
)
def test_error_code_about_the_token_fails_the_challenge(
    challenge_server: ChallengeServer, code: str, status: int
) -> None:
    settings = settings_for_server(challenge_server.url)
    challenge_server.set_reply({"success": False, "error-codes": [code]}, status)
    assert check_everywhere(settings, "t") == ALL_FAILED


@pytest.mark.parametrize(
    "codes",
    [
        ["missing-input-secret"],
        ["invalid-input-secret"],
        ["sitekey-secret-mismatch"],
        ["not-using-dummy-passcode"],
        ["internal-error"],
        ["bad-request"],
        ["never-heard-of"],
        ["invalid-input-response", "invalid-input-secret"],
        "internal-error",
        [["invalid-input-response"]],
        [7],
        {"invalid-input-response": 1},
    ],
)
def test_error_code_about_secret_or_provider_is_an_outage(
    challenge_server: ChallengeServer, codes: object
) -> None:
    challenge_server.set_reply({"success": False, "error-codes": codes})
    assert check_everywhere(settings_for_server(challenge_server.url), "t") == ALL_UNAVAILABLE


@pytest.mark.parametrize("success", ["true", 1, [True], {"true": True}, None, "false", 0])
def test_challenge_success_that_is_no_boolean_is_an_outage(
    challenge_server: ChallengeServer, success: object
) -> None:
    challenge_server.set_reply({**PASSING_REPLY, "success": success})
    assert check_everywhere(settings_for_server(challenge_server.url), "t") == ALL_UNAVAILABLE


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"true",
        b'["success"]',
        b"null",
        b"{}",
        b'{"success": true',
        b"\xff\xfe",
        b'{"success": true, "action": 7}',
        b'{"success": true, "action": "subscribe", "hostname": {}}',
        b"[" * 60_000,
    ],
)
def test_challenge_reply_without_verdict_is_an_outage(
    challenge_server: ChallengeServer, body: bytes
) -> None:
    challenge_server.body = body
    assert check_everywhere(settings_for_server(challenge_server.url), "t") == ALL_UNAVAILABLE


@pytest.mark.parametrize("status", [201, 204, 302, 307, 400, 401, 403, 404, 429, 500, 502, 503])
def test_challenge_verdict_with_unexpected_status_is_an_outage(
    challenge_server: ChallengeServer, status: int
) -> None:
    challenge_server.set_reply(PASSING_REPLY, status)
    assert check_everywhere(settings_for_server(challenge_server.url), "t") == ALL_UNAVAILABLE
    if status != 400:
        challenge_server.set_reply(
            {"success": False, "error-codes": ["invalid-input-response"]}, status
        )
        assert check_everywhere(settings_for_server(challenge_server.url), "t") == ALL_UNAVAILABLE


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (SCORED_REPLY, "passed"),
        ({**SCORED_REPLY, "score": 0.5}, "passed"),
        ({**SCORED_REPLY, "score": 1}, "passed"),
        ({**SCORED_REPLY, "score": 0.49}, "challenge.failed"),
        ({**SCORED_REPLY, "score": 0}, "challenge.failed"),
        ({**SCORED_REPLY, "score": True}, "challenge.unavailable"),
        ({**SCORED_REPLY, "score": "0.9"}, "challenge.unavailable"),
        ({**SCORED_REPLY, "action": ""}, "challenge.failed"),
        ({"success": True, "score": 0.9}, "challenge.failed"),
        ({"success": True, "action": "login"}, "challenge.failed"),
        ({"success": True}, "passed"),
    ],
)
def test_recaptcha_v3_requires_sufficient_score_and_matching_action(
    challenge_server: ChallengeServer, reply: object, expected: str
) -> None:
    challenge_server.set_reply(reply)
    assert (
        check_token(settings_for_server(challenge_server.url), ChallengeProviderName.RECAPTCHA, "t")
        == expected
    )


def test_hcaptcha_risk_score_is_ignored(challenge_server: ChallengeServer) -> None:
    challenge_server.set_reply({"success": True, "score": 0.1})
    assert (
        check_token(settings_for_server(challenge_server.url), ChallengeProviderName.HCAPTCHA, "t")
        == "passed"
    )


@pytest.mark.parametrize(
    "reply", [{"success": False, "error-codes": []}, {"success": True, "action": "login"}]
)
def test_challenge_fails_without_reason_or_with_another_action(
    challenge_server: ChallengeServer, reply: object
) -> None:
    challenge_server.set_reply(reply)
    assert check_everywhere(settings_for_server(challenge_server.url), "t") == ALL_FAILED


def test_turnstile_challenge_without_action_fails(challenge_server: ChallengeServer) -> None:
    challenge_server.set_reply({"success": True})
    assert (
        check_token(settings_for_server(challenge_server.url), ChallengeProviderName.TURNSTILE, "t")
        == "challenge.failed"
    )


@pytest.mark.parametrize(
    ("hostname", "expected"),
    [
        ("www.example.com", "passed"),
        ("WWW.Example.com", "passed"),
        ("example.com", "challenge.failed"),
        ("www.example.com.evil.test", "challenge.failed"),
        ("not-provided", "challenge.failed"),
        ("", "passed"),
        (None, "passed"),
    ],
)
def test_challenge_hostname_must_be_one_of_the_configured_ones(
    challenge_server: ChallengeServer, hostname: str | None, expected: str
) -> None:
    challenge_server.set_reply({**PASSING_REPLY, "hostname": hostname})
    settings = settings_for_server(challenge_server.url, challenge_hostnames="www.example.com")
    assert check_everywhere(settings, "t") == [expected] * 3


def test_challenge_reply_larger_than_64_kb_is_an_outage(challenge_server: ChallengeServer) -> None:
    reply = json.dumps(PASSING_REPLY).encode()
    challenge_server.body = reply.ljust(64 * 1024)
    assert check_everywhere(settings_for_server(challenge_server.url), "t") == ["passed"] * 3
    challenge_server.body = reply.ljust(64 * 1024 + 1)
    assert check_everywhere(settings_for_server(challenge_server.url), "t") == ALL_UNAVAILABLE


def test_compressed_challenge_reply_is_not_decompressed(challenge_server: ChallengeServer) -> None:
    challenge_server.body = gzip.compress(json.dumps(PASSING_REPLY).encode())
    challenge_server.headers = {"Content-Encoding": "gzip"}
    assert check_everywhere(settings_for_server(challenge_server.url), "t") == ALL_UNAVAILABLE
    assert challenge_server.requests[0].headers["Accept-Encoding"] == "identity"


def test_challenge_client_does_not_follow_redirects(
    challenge_server: ChallengeServer, sandbox: str
) -> None:
    valid_token = new_token("pass-")
    challenge_server.status = 307
    challenge_server.headers = {"Location": f"{sandbox}/challenges/turnstile/v0/siteverify"}
    assert (
        check_everywhere(settings_for_server(challenge_server.url), valid_token) == ALL_UNAVAILABLE
    )
    # The sandbox accepts each CAPTCHA token only once. If the client had followed the redirect to
    # the sandbox, the sandbox would now reject the token.
    assert (
        check_token(settings_for_sandbox(sandbox), ChallengeProviderName.TURNSTILE, valid_token)
        == "passed"
    )


def test_challenge_client_keeps_no_cookies(challenge_server: ChallengeServer) -> None:
    challenge_server.headers = {"Set-Cookie": "visitor=1; Path=/"}
    challenge_server.set_reply(PASSING_REPLY)
    assert check_repeatedly(settings_for_server(challenge_server.url), 2) == ["passed", "passed"]
    assert "Cookie" not in challenge_server.requests[1].headers


def test_challenge_log_has_the_reason_and_no_token_secret_or_address(
    challenge_server: ChallengeServer,
) -> None:
    codes = ["invalid-input-secret", "canary-token", "canary-secret"]
    challenge_server.set_reply({"success": False, "error-codes": codes})
    settings = settings_for_server(challenge_server.url, turnstile_secret="canary-secret")
    with capture_logs() as lines:
        check_token(
            settings, ChallengeProviderName.TURNSTILE, "canary-token", remote_ip="203.0.113.99"
        )
        challenge_server.set_reply({"success": True, "action": "canary-action"})
        check_token(
            settings, ChallengeProviderName.TURNSTILE, "canary-token", remote_ip="203.0.113.99"
        )
    assert [line["reason"] for line in lines] == [
        "invalid-input-secret, an unknown code",
        "another action",
    ]
    assert "canary" not in str(lines)
    assert "203.0.113.99" not in str(lines)
