"""The siteverify protocol, which the three providers share but for details.

A call is one POST of a form, and its reply one JSON object. The details are data: each provider has
a ``SiteVerifyProfile``.
Sources: developers.cloudflare.com/turnstile/get-started/server-side-validation, docs.hcaptcha.com,
developers.google.com/recaptcha/docs/verify and /docs/v3.
"""

from collections.abc import Collection
from dataclasses import dataclass
from http import HTTPStatus

import orjson
from pydantic import SecretStr

from core.errors import DomainError
from core.logging import get_logger
from core.refusals.mailing import CHALLENGE_FAILED, CHALLENGE_UNAVAILABLE
from integrations.challenges.port import ChallengeProviderName, ChallengeResponse
from integrations.http_client import (
    AsyncHttpClient,
    HttpBounds,
    HttpFailure,
    HttpReply,
    reason_of,
)

BOUNDS = HttpBounds(max_seconds=5.0, max_connect_seconds=2.0, max_reply_bytes=64 * 1024)
_RETRY_AFTER_SECONDS = 5
_MIN_SCORE = 0.5
# Some servers report a problem with status 400 and the usual object.
_READABLE = frozenset({HTTPStatus.OK, HTTPStatus.BAD_REQUEST})
_HEADERS = {"Accept": "application/json"}

# The codes of a token that is not, or no longer, good. Every other code is about our secret, our
# request or the provider's service, and no person in front of a widget can mend that.
_ABOUT_THE_TOKEN = frozenset(
    {
        "already-seen-response",
        "expired-input-response",
        "invalid-input-response",
        "invalid-or-already-seen-response",
        "missing-input-response",
        "timeout-or-duplicate",
    }
)
_ABOUT_US = frozenset(
    {
        "bad-request",
        "internal-error",
        "invalid-input-secret",
        "invalid-remoteip",
        "missing-input-secret",
        "missing-remoteip",
        "not-using-dummy-passcode",
        "sitekey-secret-mismatch",
    }
)

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


class SiteVerify:
    """Asks one provider about tokens. The caller closes the client, which all providers share."""

    def __init__(
        self,
        client: AsyncHttpClient,
        profile: SiteVerifyProfile,
        *,
        url: str,
        secret: SecretStr,
        site_key: str,
        hostnames: Collection[str] = (),
    ) -> None:
        self.site_key = site_key
        self._client = client
        self._profile = profile
        self._url = url
        self._secret = secret
        self._hostnames = hostnames

    async def check(self, answer: ChallengeResponse) -> None:
        try:
            self._require_likely(answer.token)
            form = self._form(answer)
            reply = await self._client.send("POST", self._url, data=form, headers=_HEADERS)
            self._judge(_read(reply), answer)
        except _Refused as refused:
            raise self._failed(str(refused)) from None
        except _Unanswered as unanswered:
            raise self._unavailable(str(unanswered)) from None
        except HttpFailure as failure:
            raise self._unavailable(reason_of(failure)) from None

    def _require_likely(self, token: str) -> None:
        """Refuse what no provider has made, without asking one."""
        if not token.strip():
            raise _Refused("blank token")
        if len(token) > self._profile.max_token_characters:
            raise _Refused("token too long")
        if not token.isascii() or not token.isprintable():
            raise _Refused("token of strange characters")

    def _form(self, answer: ChallengeResponse) -> dict[str, str]:
        form = {"secret": self._secret.get_secret_value(), "response": answer.token}
        if answer.remote_ip:
            form["remoteip"] = answer.remote_ip
        if self._profile.sends_site_key:
            form["sitekey"] = self.site_key
        return form

    def _judge(self, reply: dict[str, object], answer: ChallengeResponse) -> None:
        _require_success(reply)
        score = reply.get("score") if self._profile.may_score else None
        self._require_action(_text(reply, "action"), answer.action, is_scored=score is not None)
        hostname = _text(reply, "hostname").lower()
        if self._hostnames and hostname and hostname not in self._hostnames:
            raise _Refused("another hostname")
        if score is not None:
            _require_score(score)

    def _require_action(self, reported: str, expected: str, *, is_scored: bool) -> None:
        is_due = self._profile.reports_action and (is_scored or not self._profile.may_score)
        if (reported or is_due) and reported != expected:
            raise _Refused("another action" if reported else "no action")

    def _failed(self, reason: str) -> DomainError:
        _log.info("challenge failed", provider=self._profile.provider, reason=reason)
        return CHALLENGE_FAILED()

    def _unavailable(self, reason: str) -> DomainError:
        _log.warning("challenge unavailable", provider=self._profile.provider, reason=reason)
        return CHALLENGE_UNAVAILABLE()


def _read(reply: HttpReply) -> dict[str, object]:
    """The reply's object, which says success only with status 200."""
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
    return verdict


def _require_success(reply: dict[str, object]) -> None:
    if reply["success"] is True:
        return
    codes = reply.get("error-codes")
    listed = codes if isinstance(codes, list) else [codes] if codes else []
    named = {code if isinstance(code, str) else "" for code in listed}
    known = sorted(named & (_ABOUT_THE_TOKEN | _ABOUT_US))
    # Unknown codes are not logged: they may hold anything.
    reason = ", ".join([*known, "an unknown code"] if len(known) < len(named) else known)
    if named <= _ABOUT_THE_TOKEN:
        raise _Refused(reason or "no reason given")
    raise _Unanswered(reason)


def _require_score(score: object) -> None:
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise _Unanswered("score is no number")
    if score < _MIN_SCORE:
        raise _Refused("low score")


def _text(reply: dict[str, object], name: str) -> str:
    value = reply.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _Unanswered(f"{name} is no text")
    return value
