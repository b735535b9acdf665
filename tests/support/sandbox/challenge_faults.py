"""Makes the sandbox accept additional CAPTCHA tokens.

The beginning of a CAPTCHA token determines how the sandbox replies:

```
pass.action.…   passes once, for this action
pass..…         passes once, without an action, like a token of reCAPTCHA v2
hostname-…      passes once, for another host name
low-score-…     passes once, with the score 0.1 (reCAPTCHA only)
slow-…          passes once, after 10 seconds
error-…         status 500
garbage-…       a reply that is not JSON
```
"""

import asyncio

from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response

from devstack.sandbox.challenges import ChallengeStub, SiteVerifyReply, build_failure
from devstack.sandbox.sandbox_settings import get_challenge_secret, get_challenge_site_key

ELSEWHERE = "elsewhere.example"
_SLOW_SECONDS = 10.0


class FaultyChallenge:
    """The sandbox's stub of one CAPTCHA provider, which also accepts tokens such as ``slow-…``."""

    def __init__(self, provider: str) -> None:
        self._stub = ChallengeStub(provider)

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
        provider = self._stub.provider
        is_ours = secret == get_challenge_secret(provider)
        if is_ours and site_key and site_key != get_challenge_site_key(provider):
            return build_failure("sitekey-secret-mismatch")
        if token.startswith(("hostname-", "slow-", "pass.")) or (
            token.startswith("low-score-") and provider == "recaptcha"
        ):
            reply = self._stub.build_reply(secret, f"pass-{token}")
            return _change_reply(token, provider, reply) if reply["success"] else reply
        return self._stub.build_reply(secret, token)


def _change_reply(token: str, provider: str, reply: SiteVerifyReply) -> SiteVerifyReply:
    match token.split(".", 2):
        case ["pass", "", _] if provider == "recaptcha":
            return {name: reply[name] for name in reply.keys() - {"action", "score"}}
        case ["pass", action, _] if provider != "hcaptcha":
            return reply | {"action": action}
    if token.startswith("hostname-"):
        return reply | {"hostname": ELSEWHERE}
    return reply | {"score": 0.1} if token.startswith("low-score-") else reply
