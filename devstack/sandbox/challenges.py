"""Bot challenges: siteverify as Turnstile, hCaptcha and reCAPTCHA answer it.

There is no widget. A token says in plain words what the provider answers to it; the page lists
the kinds of tokens from `TOKENS`.
"""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from typing import Annotated

from fastapi import APIRouter, Form
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response

from devstack.sandbox.sandbox_settings import (
    CHALLENGES_PREFIX,
    HOSTNAME,
    SITEVERIFY_PATHS,
    challenge_secret,
    challenge_site_key,
)

ACTION = "subscribe"
ELSEWHERE = "elsewhere.example"

TOKENS = (
    ("pass-…", f"passes once, for the action <code>{ACTION}</code> on <code>{HOSTNAME}</code>"),
    ("pass.action.…", "passes once, for the action that it names"),
    ("pass..…", "passes once, for no action: as from a widget without one, or from reCAPTCHA v2"),
    ("hostname-…", f"passes once, on <code>{ELSEWHERE}</code>"),
    ("low-score-…", "passes once, with the score 0.1 (reCAPTCHA only)"),
    ("slow-…", "passes once, after 10 seconds"),
    ("error-…", "status 500"),
    ("garbage-…", "a reply that is not JSON"),
    ("fail-…", "does not pass, and neither does any other text"),
)

_SLOW_SECONDS = 10.0
_MAX_KEPT_TOKENS = 10_000
_USED = {
    "turnstile": "timeout-or-duplicate",
    "hcaptcha": "already-seen-response",
    "recaptcha": "timeout-or-duplicate",
}

SiteVerifyReply = dict[str, object]


@dataclass
class ChallengeStub:
    """One provider's side of the protocol, with the tokens that it has seen."""

    provider: str
    _used: OrderedDict[str, None] = field(default_factory=OrderedDict)

    async def verify(self, secret: str, token: str, site_key: str) -> Response:
        if token.startswith("error-"):
            return PlainTextResponse("Internal Server Error", status_code=500)
        if token.startswith("garbage-"):
            return HTMLResponse("<!doctype html><title>Just a moment</title>")
        reply = self._reply(secret, token, site_key)
        if token.startswith("slow-"):
            await asyncio.sleep(_SLOW_SECONDS)
        return JSONResponse(reply)

    def _reply(self, secret: str, token: str, site_key: str) -> SiteVerifyReply:
        if not secret:
            return _failure("missing-input-secret")
        if secret != challenge_secret(self.provider):
            return _failure("invalid-input-secret")
        if site_key and site_key != challenge_site_key(self.provider):
            return _failure("sitekey-secret-mismatch")
        if not token:
            return _failure("missing-input-response")
        success = self._success(token)
        if success is None:
            return _failure("invalid-input-response")
        return success if self._is_first(token) else _failure(_USED[self.provider])

    def _is_first(self, token: str) -> bool:
        if token in self._used:
            return False
        self._used[token] = None
        if len(self._used) > _MAX_KEPT_TOKENS:
            self._used.popitem(last=False)
        return True

    def _success(self, token: str) -> SiteVerifyReply | None:
        """What the provider answers to a good token; None when the token isn't good."""
        if token.startswith("hostname-"):
            return self._passed(ACTION, hostname=ELSEWHERE)
        if token.startswith("low-score-") and self.provider == "recaptcha":
            return self._passed(ACTION, score=0.1)
        if token.startswith(("pass-", "slow-")):
            return self._passed(ACTION)
        match token.split(".", 2):
            case ["pass", action, _]:
                return self._passed(action)
        return None

    def _passed(
        self, action: str, *, hostname: str = HOSTNAME, score: float = 0.9
    ) -> SiteVerifyReply:
        solved = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        reply: SiteVerifyReply = {"success": True, "challenge_ts": solved, "hostname": hostname}
        if self.provider == "turnstile":
            reply |= {"error-codes": [], "action": action, "cdata": ""}
        if self.provider == "hcaptcha":
            reply |= {"credit": False}
        if self.provider == "recaptcha" and action:
            reply |= {"score": score, "action": action}
        return reply


def make_router() -> APIRouter:
    router = APIRouter()
    page = _page()

    @router.get("", response_class=HTMLResponse)
    async def explain() -> str:
        return page

    for provider, path in SITEVERIFY_PATHS.items():
        _add_siteverify(router, path, ChallengeStub(provider))
    return router


def _add_siteverify(router: APIRouter, path: str, stub: ChallengeStub) -> None:
    @router.post(path, response_class=JSONResponse)
    async def siteverify(
        secret: Annotated[str, Form()] = "",
        response: Annotated[str, Form()] = "",
        sitekey: Annotated[str, Form()] = "",
    ) -> Response:
        return await stub.verify(secret, response, sitekey)


def _failure(code: str) -> SiteVerifyReply:
    return {"success": False, "error-codes": [code]}


def _page() -> str:
    template = (files("devstack.sandbox") / "challenges.html").read_text(encoding="utf-8")
    tokens = "".join(
        f"<tr><td><code>{escape(token)}</code></td><td>{meaning}</td></tr>"
        for token, meaning in TOKENS
    )
    providers = "".join(
        f"<tr><td><code>{provider}</code></td><td><code>{CHALLENGES_PREFIX}{path}</code></td>"
        f"<td><code>{challenge_site_key(provider)}</code></td>"
        f"<td><code>{challenge_secret(provider)}</code></td></tr>"
        for provider, path in SITEVERIFY_PATHS.items()
    )
    return template.replace("{{ tokens }}", tokens).replace("{{ providers }}", providers)
