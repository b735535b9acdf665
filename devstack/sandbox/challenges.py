"""Simulates the siteverify APIs of Turnstile, hCaptcha and reCAPTCHA.

The sandbox has no challenge widget for web pages. A challenge token is valid only once, and only if
it begins with ``pass-``.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Form
from fastapi.responses import HTMLResponse, JSONResponse, Response

from devstack.sandbox import render, sandbox_settings
from devstack.sandbox.sandbox_settings import SITEVERIFY_PATHS, get_challenge_secret

ACTION = "subscribe"

SiteVerifyReply = dict[str, object]
# A function that answers a siteverify call. The function's parameters are the secret, the token and
# the site key.
SiteVerify = Callable[[str, str, str], Awaitable[Response]]


@dataclass
class ChallengeStub:
    provider: str
    _used: set[str] = field(default_factory=set)

    async def verify(self, secret: str, token: str, _site_key: str) -> Response:
        return JSONResponse(self.build_reply(secret, token))

    def build_reply(self, secret: str, token: str) -> SiteVerifyReply:
        if secret != get_challenge_secret(self.provider):
            return build_failure("invalid-input-secret" if secret else "missing-input-secret")
        if not token.startswith("pass-"):
            return build_failure("invalid-input-response" if token else "missing-input-response")
        if token in self._used:
            is_hcaptcha = self.provider == "hcaptcha"
            return build_failure("already-seen-response" if is_hcaptcha else "timeout-or-duplicate")
        self._used.add(token)
        solved_at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        provider_fields: dict[str, SiteVerifyReply] = {
            "turnstile": {"error-codes": [], "action": ACTION, "cdata": ""},
            "hcaptcha": {"credit": False},
            "recaptcha": {"score": 0.9, "action": ACTION},
        }
        common = {"success": True, "challenge_ts": solved_at, "hostname": sandbox_settings.HOSTNAME}
        return common | provider_fields[self.provider]


def build_failure(code: str) -> SiteVerifyReply:
    return {"success": False, "error-codes": [code]}


def build_router(
    create_verifier: Callable[[str], SiteVerify] = lambda provider: ChallengeStub(provider).verify,
) -> APIRouter:
    """Return the routes.

    ``create_verifier`` returns the function that verifies a provider's challenge tokens.
    """
    router = APIRouter()

    @router.get("", response_class=HTMLResponse)
    async def explain() -> str:
        rows = [
            (
                name,
                sandbox_settings.CHALLENGES_PREFIX + path,
                sandbox_settings.get_challenge_site_key(name),
                get_challenge_secret(name),
            )
            for name, path in SITEVERIFY_PATHS.items()
        ]
        return render(
            "challenges.html", providers=rows, action=ACTION, hostname=sandbox_settings.HOSTNAME
        )

    def add_route(path: str, verify: SiteVerify) -> None:
        @router.post(path, response_class=JSONResponse)
        async def siteverify(
            secret: Annotated[str, Form()] = "",
            response: Annotated[str, Form()] = "",
            sitekey: Annotated[str, Form()] = "",
        ) -> Response:
            return await verify(secret, response, sitekey)

    for provider, path in SITEVERIFY_PATHS.items():
        add_route(path, create_verifier(provider))
    return router
