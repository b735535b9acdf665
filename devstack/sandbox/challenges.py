"""Stands in for the siteverify calls of Turnstile, hCaptcha and reCAPTCHA.

There is no widget. The text of a token decides whether the token passes.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Form
from fastapi.responses import HTMLResponse, JSONResponse, Response

from devstack.sandbox import render
from devstack.sandbox import sandbox_settings as at
from devstack.sandbox.sandbox_settings import SITEVERIFY_PATHS, challenge_secret

ACTION = "subscribe"

SiteVerifyReply = dict[str, object]
# A function that responds to the secret, the token and the site key of a call.
SiteVerify = Callable[[str, str, str], Awaitable[Response]]


@dataclass
class ChallengeStub:
    """A stand-in for one provider, which remembers the tokens that were used."""

    provider: str
    _used: set[str] = field(default_factory=set)

    async def verify(self, secret: str, token: str, _site_key: str) -> Response:
        return JSONResponse(self.reply(secret, token))

    def reply(self, secret: str, token: str) -> SiteVerifyReply:
        if secret != challenge_secret(self.provider):
            return failure("invalid-input-secret" if secret else "missing-input-secret")
        if not token.startswith("pass-"):
            return failure("invalid-input-response" if token else "missing-input-response")
        if token in self._used:
            is_hcaptcha = self.provider == "hcaptcha"
            return failure("already-seen-response" if is_hcaptcha else "timeout-or-duplicate")
        self._used.add(token)
        solved = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        own: dict[str, SiteVerifyReply] = {
            "turnstile": {"error-codes": [], "action": ACTION, "cdata": ""},
            "hcaptcha": {"credit": False},
            "recaptcha": {"score": 0.9, "action": ACTION},
        }
        common = {"success": True, "challenge_ts": solved, "hostname": at.HOSTNAME}
        return common | own[self.provider]


def failure(code: str) -> SiteVerifyReply:
    return {"success": False, "error-codes": [code]}


def make_router(
    verifier: Callable[[str], SiteVerify] = lambda provider: ChallengeStub(provider).verify,
) -> APIRouter:
    """Return the routes.

    ``create_verifier`` returns the function that verifies tokens of a provider.
    """
    router = APIRouter()

    @router.get("", response_class=HTMLResponse)
    async def explain() -> str:
        rows = [
            (name, at.CHALLENGES_PREFIX + path, at.challenge_site_key(name), challenge_secret(name))
            for name, path in SITEVERIFY_PATHS.items()
        ]
        return render("challenges.html", providers=rows, action=ACTION, hostname=at.HOSTNAME)

    def add(path: str, verify: SiteVerify) -> None:
        @router.post(path, response_class=JSONResponse)
        async def siteverify(
            secret: Annotated[str, Form()] = "",
            response: Annotated[str, Form()] = "",
            sitekey: Annotated[str, Form()] = "",
        ) -> Response:
            return await verify(secret, response, sitekey)

    for provider, path in SITEVERIFY_PATHS.items():
        add(path, verifier(provider))
    return router
