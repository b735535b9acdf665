"""The siteverify protocol of Turnstile, hCaptcha and reCAPTCHA.

The siteverify protocol is documented at docs.hcaptcha.com,
developers.cloudflare.com/turnstile/get-started/server-side-validation, and
developers.google.com/recaptcha/docs/verify and /docs/v3.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from http import HTTPStatus

import orjson
from pydantic import SecretStr

from core.calls.breaker import Breaker
from core.errors import ServerFailed
from core.errors.mailing import CHALLENGE_FAILED, CHALLENGE_UNAVAILABLE
from core.logging import get_logger
from integrations.challenges.port import ChallengeProviderName, ChallengeResponse, ChallengeWidget
from integrations.http_client import (
    AsyncHttpClient,
    HttpBounds,
    HttpFailure,
    HttpReply,
    describe_failure,
)

_log = get_logger(__name__)

_MIN_SCORE = 0.5
_SERVER = "challenge provider"
BOUNDS = HttpBounds(
    max_seconds=5.0, max_connect_seconds=2.0, max_reply_bytes=64 * 1024, provider=_SERVER
)
# Tolerate two failures in a row, because a challenge provider that is briefly overloaded answers a
# few requests too slowly.
_TOLERATED_FAILURES = 2
# The HTTP statuses of a challenge provider's verdicts. A response with any other status isn't a
# verdict, but an error of the provider. Some challenge providers report an invalid token with
# status 400.
_READABLE_STATUSES = frozenset({HTTPStatus.OK, HTTPStatus.BAD_REQUEST})
_HEADERS = {"Accept": "application/json"}

# The error codes for an invalid, used or expired token.
_TOKEN_ERRORS = {
    "already-seen-response",
    "expired-input-response",
    "invalid-input-response",
    "invalid-or-already-seen-response",
    "missing-input-response",
    "timeout-or-duplicate",
}
_INSTALLATION_ERRORS = {
    "bad-request",
    "internal-error",
    "invalid-input-secret",
    "invalid-remoteip",
    "missing-input-secret",
    "missing-remoteip",
    "not-using-dummy-passcode",
    "sitekey-secret-mismatch",
}

_CLOUDFLARE = "https://challenges.cloudflare.com"
_HCAPTCHA = "https://hcaptcha.com https://*.hcaptcha.com"
_GOOGLE = "https://www.google.com/recaptcha/"

# The widgets are documented at docs.hcaptcha.com, developers.cloudflare.com/turnstile/get-started
# and /reference/content-security-policy, and developers.google.com/recaptcha/docs/display and
# /docs/faq.
WIDGETS = {
    ChallengeProviderName.TURNSTILE: ChallengeWidget(
        script=f"{_CLOUDFLARE}/turnstile/v0/api.js",
        css_class="cf-turnstile",
        field="cf-turnstile-response",
        policy={"script-src": _CLOUDFLARE, "frame-src": _CLOUDFLARE},
    ),
    ChallengeProviderName.HCAPTCHA: ChallengeWidget(
        script="https://js.hcaptcha.com/1/api.js",
        css_class="h-captcha",
        field="h-captcha-response",
        policy=dict.fromkeys(("script-src", "frame-src", "style-src", "connect-src"), _HCAPTCHA),
    ),
    # Use version 2 of reCAPTCHA, because version 3 requires more JavaScript on the page.
    ChallengeProviderName.RECAPTCHA: ChallengeWidget(
        script=f"{_GOOGLE}api.js",
        css_class="g-recaptcha",
        field="g-recaptcha-response",
        policy={
            "script-src": f"{_GOOGLE} https://www.gstatic.com/recaptcha/",
            "frame-src": f"{_GOOGLE} https://recaptcha.google.com/recaptcha/",
        },
    ),
}


@dataclass(frozen=True)
class SiteVerifyProfile:
    """How a challenge provider implements the siteverify protocol.

    Attributes:
        max_token_characters: Turnstile documents a limit of 2,048 characters per token. hCaptcha
            and reCAPTCHA document no limit, and hCaptcha has sent tokens of more than 4,000
            characters.
        may_score: whether replies can contain a score, which rates how probably the visitor is
            human. A reply without a score comes from reCAPTCHA version 2, which reports no action.
        sends_site_key: whether requests contain the site key. Without the site key, hCaptcha
            accepts a token from any site of the account.
    """

    provider: ChallengeProviderName
    max_token_characters: int
    reports_action: bool = False
    may_score: bool = False
    sends_site_key: bool = False


# The Turnstile documentation recommends checking the reported action. A Turnstile widget without
# `data-action` reports an empty action, which is never accepted.
TURNSTILE = SiteVerifyProfile(ChallengeProviderName.TURNSTILE, 2048, reports_action=True)
HCAPTCHA = SiteVerifyProfile(ChallengeProviderName.HCAPTCHA, 8192, sends_site_key=True)
# Only version 3 of reCAPTCHA reports a score and an action.
RECAPTCHA = SiteVerifyProfile(
    ChallengeProviderName.RECAPTCHA, 8192, reports_action=True, may_score=True
)


class _TokenRejected(Exception):
    """The exception's message states why the token was rejected."""


class _VerdictMissing(Exception):
    """The challenge provider didn't report whether a token is valid."""


@dataclass
class SiteVerify:
    """``hostnames`` are the hosts on which a challenge may be solved. ``Challenges`` closes
    ``client``.
    """

    client: AsyncHttpClient
    profile: SiteVerifyProfile
    url: str
    secret: SecretStr
    site_key: str
    hostnames: Collection[str]
    breaker: Breaker = field(
        default_factory=lambda: Breaker(_SERVER, HttpFailure, tolerated=_TOLERATED_FAILURES)
    )

    async def check(self, answer: ChallengeResponse) -> None:
        try:
            form = self._build_form(answer)
            with self.breaker.protect():
                reply = await self.client.send("POST", self.url, data=form, headers=_HEADERS)
            self._check_verdict(_parse_verdict(reply), answer)
        except _TokenRejected as refused:
            _log.info("challenge failed", provider=self.profile.provider, reason=str(refused))
            raise CHALLENGE_FAILED() from None
        except ServerFailed:
            raise CHALLENGE_UNAVAILABLE() from None
        except (_VerdictMissing, HttpFailure) as failure:
            reason = describe_failure(failure) if isinstance(failure, HttpFailure) else str(failure)
            _log.warning("challenge unavailable", provider=self.profile.provider, reason=reason)
            raise CHALLENGE_UNAVAILABLE() from None

    def _build_form(self, answer: ChallengeResponse) -> dict[str, str]:
        """Raise ``_TokenRejected`` for an obviously invalid token."""
        token = answer.token
        if not token.strip():
            raise _TokenRejected("blank token")
        if len(token) > self.profile.max_token_characters:
            raise _TokenRejected("token too long")
        if not token.isascii() or not token.isprintable():
            raise _TokenRejected("token of strange characters")
        form = {"secret": self.secret.get_secret_value(), "response": token}
        if answer.remote_ip:
            form["remoteip"] = answer.remote_ip
        if self.profile.sends_site_key:
            form["sitekey"] = self.site_key
        return form

    def _check_verdict(self, verdict: dict[str, object], answer: ChallengeResponse) -> None:
        score = verdict.get("score") if self.profile.may_score else None
        is_action_required = self.profile.reports_action and (
            score is not None or not self.profile.may_score
        )
        action = _get_text(verdict, "action")
        if (action or is_action_required) and action != answer.action:
            raise _TokenRejected("another action" if action else "no action")
        hostname = _get_text(verdict, "hostname").lower()
        if hostname and hostname not in self.hostnames:
            raise _TokenRejected("another hostname")
        if score is None:
            return
        if isinstance(score, bool) or not isinstance(score, int | float):
            raise _VerdictMissing("score is no number")
        if score < _MIN_SCORE:
            raise _TokenRejected("low score")


def _parse_verdict(reply: HttpReply) -> dict[str, object]:
    status = reply.status
    if status not in _READABLE_STATUSES:
        raise _VerdictMissing(f"status {status}")
    try:
        verdict: object = orjson.loads(reply.body)
    except orjson.JSONDecodeError:
        raise _VerdictMissing(f"status {status}, not JSON") from None
    if not isinstance(verdict, dict) or not isinstance(verdict.get("success"), bool):
        raise _VerdictMissing(f"status {status}, not a verdict")
    if verdict["success"] and status != HTTPStatus.OK:
        raise _VerdictMissing(f"status {status}, yet success")
    if verdict["success"]:
        return verdict
    codes = verdict.get("error-codes")
    code_list = codes if isinstance(codes, list) else [codes] if codes else []
    reported = {code if isinstance(code, str) else "" for code in code_list}
    known = sorted(reported & (_TOKEN_ERRORS | _INSTALLATION_ERRORS))
    # Don't log unknown error codes, because they may contain any text.
    reason = ", ".join([*known, "an unknown code"] if len(known) < len(reported) else known)
    if reported <= _TOKEN_ERRORS:
        raise _TokenRejected(reason or "no reason given")
    raise _VerdictMissing(reason)


def _get_text(verdict: dict[str, object], name: str) -> str:
    value = "" if verdict.get(name) is None else verdict[name]
    if not isinstance(value, str):
        raise _VerdictMissing(f"{name} is no text")
    return value
