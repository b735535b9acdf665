"""The siteverify protocol, which the three providers share but for details.

A call is one POST of a form, and its reply one JSON object. The details are data: each provider has
a ``SiteVerifyProfile``.
Sources: developers.cloudflare.com/turnstile/get-started/server-side-validation, docs.hcaptcha.com,
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
from integrations.http_client import AsyncHttpClient, HttpBounds, HttpFailure, HttpReply, reason_of

_MIN_SCORE = 0.5
_SERVER = "challenge provider"
BOUNDS = HttpBounds(
    max_seconds=5.0, max_connect_seconds=2.0, max_reply_bytes=64 * 1024, provider=_SERVER
)
# As many slow answers in a row may come from a busy moment.
_TOLERATED_FAILURES = 2
# Some servers report a problem with status 400 and the usual object.
_READABLE = frozenset({HTTPStatus.OK, HTTPStatus.BAD_REQUEST})
_HEADERS = {"Accept": "application/json"}

# The codes of a token that is not, or no longer, good. Every other code is about our secret, our
# request or the provider's service, and no person in front of a widget can mend that.
_ABOUT_THE_TOKEN = {
    *("already-seen-response", "expired-input-response", "invalid-input-response"),
    *("invalid-or-already-seen-response", "missing-input-response", "timeout-or-duplicate"),
}
_ABOUT_US = {
    *("bad-request", "internal-error", "invalid-input-secret", "invalid-remoteip"),
    *("missing-input-secret", "missing-remoteip", "not-using-dummy-passcode"),
    "sitekey-secret-mismatch",
}

_log = get_logger(__name__)


@dataclass(frozen=True)
class SiteVerifyProfile:
    """The differences of one provider.

    Attributes:
        max_token_characters: Turnstile documents 2,048. The others promise no limit, and
            tokens of hCaptcha with more than 4,000 characters have been seen.
        reports_action: a reply without an action then means that the widget was shown without one.
        may_score: a reply without a score then comes from a version that knows no action either.
        sends_site_key: hCaptcha's secret is that of an account: without the site key it accepts
            tokens of all the account's sites.
    """

    provider: ChallengeProviderName
    max_token_characters: int
    reports_action: bool = False
    may_score: bool = False
    sends_site_key: bool = False


# Turnstile protects the action against changes, and its documentation asks to compare it. A widget
# without `data-action` reports an empty one: whatever that token was made for, it wasn't this.
TURNSTILE = SiteVerifyProfile(ChallengeProviderName.TURNSTILE, 2048, reports_action=True)
HCAPTCHA = SiteVerifyProfile(ChallengeProviderName.HCAPTCHA, 8192, sends_site_key=True)
# Version 3 reports a score, and its documentation asks to compare the action; 2 knows neither.
RECAPTCHA = SiteVerifyProfile(
    ChallengeProviderName.RECAPTCHA, 8192, reports_action=True, may_score=True
)


class _Refused(Exception):
    """The token is not good; the text is a reason for the log."""


class _Unanswered(Exception):
    """The provider didn't say whether the token is good; the text is a reason for the log."""


@dataclass
class SiteVerify:
    """Asks one provider about tokens. The caller closes the client, which all providers share."""

    client: AsyncHttpClient
    profile: SiteVerifyProfile
    url: str
    secret: SecretStr
    site_key: str
    # The host names of the pages on which a token may have been made.
    hostnames: Collection[str]
    breaker: Breaker = field(
        default_factory=lambda: Breaker(_SERVER, HttpFailure, tolerated=_TOLERATED_FAILURES)
    )

    async def check(self, answer: ChallengeResponse) -> None:
        try:
            form = self._form(answer)
            with self.breaker.protect():
                reply = await self.client.send("POST", self.url, data=form, headers=_HEADERS)
            self._judge(_read(reply), answer)
        except _Refused as refused:
            _log.info("challenge failed", provider=self.profile.provider, reason=str(refused))
            raise CHALLENGE_FAILED() from None
        except ServerFailed:
            raise CHALLENGE_UNAVAILABLE() from None
        except (_Unanswered, HttpFailure) as failure:
            reason = reason_of(failure) if isinstance(failure, HttpFailure) else str(failure)
            _log.warning("challenge unavailable", provider=self.profile.provider, reason=reason)
            raise CHALLENGE_UNAVAILABLE() from None

    def _form(self, answer: ChallengeResponse) -> dict[str, str]:
        """Refuses what no provider has made, without asking one."""
        token = answer.token
        if not token.strip():
            raise _Refused("blank token")
        if len(token) > self.profile.max_token_characters:
            raise _Refused("token too long")
        if not token.isascii() or not token.isprintable():
            raise _Refused("token of strange characters")
        form = {"secret": self.secret.get_secret_value(), "response": token}
        if answer.remote_ip:
            form["remoteip"] = answer.remote_ip
        if self.profile.sends_site_key:
            form["sitekey"] = self.site_key
        return form

    def _judge(self, reply: dict[str, object], answer: ChallengeResponse) -> None:
        score = reply.get("score") if self.profile.may_score else None
        is_action_due = self.profile.reports_action and (
            score is not None or not self.profile.may_score
        )
        action = _text(reply, "action")
        if (action or is_action_due) and action != answer.action:
            raise _Refused("another action" if action else "no action")
        hostname = _text(reply, "hostname").lower()
        if hostname and hostname not in self.hostnames:
            raise _Refused("another hostname")
        if score is None:
            return
        if isinstance(score, bool) or not isinstance(score, int | float):
            raise _Unanswered("score is no number")
        if score < _MIN_SCORE:
            raise _Refused("low score")


def _read(reply: HttpReply) -> dict[str, object]:
    """The reply's object, which says success, and with status 200 only."""
    status = reply.status
    if status not in _READABLE:
        raise _Unanswered(f"status {status}")
    try:
        verdict: object = orjson.loads(reply.body)
    except orjson.JSONDecodeError:
        raise _Unanswered(f"status {status}, not JSON") from None
    if not isinstance(verdict, dict) or not isinstance(verdict.get("success"), bool):
        raise _Unanswered(f"status {status}, not a verdict")
    if verdict["success"] and status != HTTPStatus.OK:
        raise _Unanswered(f"status {status}, yet success")
    if verdict["success"]:
        return verdict
    codes = verdict.get("error-codes")
    listed = codes if isinstance(codes, list) else [codes] if codes else []
    named = {code if isinstance(code, str) else "" for code in listed}
    known = sorted(named & (_ABOUT_THE_TOKEN | _ABOUT_US))
    # Unknown codes are not logged: they may hold anything.
    reason = ", ".join([*known, "an unknown code"] if len(known) < len(named) else known)
    if named <= _ABOUT_THE_TOKEN:
        raise _Refused(reason or "no reason given")
    raise _Unanswered(reason)


def _text(reply: dict[str, object], name: str) -> str:
    value = "" if reply.get(name) is None else reply[name]
    if not isinstance(value, str):
        raise _Unanswered(f"{name} is no text")
    return value


# The sources are developers.cloudflare.com/turnstile/get-started and
# /reference/content-security-policy, docs.hcaptcha.com, and /docs/display and /docs/faq of
# developers.google.com/recaptcha.
_CLOUDFLARE = "https://challenges.cloudflare.com"
_HCAPTCHA = "https://hcaptcha.com https://*.hcaptcha.com"
_GOOGLE = "https://www.google.com/recaptcha/"

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
    # This is version 2: the widget of version 3 needs a script of ours.
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
