"""Verifies challenge tokens with chosen settings, from tests that aren't asynchronous."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from core.errors import DomainError
from core.settings import Settings
from devstack.sandbox.sandbox_settings import build_challenge_settings
from integrations.challenges.port import ChallengeProviderName, ChallengeResponse
from integrations.challenges.registry import Challenges
from tests.support.stack.given_settings import settings

T = TypeVar("T")


def settings_for_sandbox(url: str, **chosen: str) -> Settings:
    sandbox_settings = {
        name.removeprefix("PRESSROOM_").lower(): value
        for name, value in build_challenge_settings(url, {}).items()
    }
    return settings(**{**sandbox_settings, **chosen})


def settings_for_server(url: str, **chosen: str) -> Settings:
    """Return settings that make Pressroom use ``url`` for all three challenge providers."""
    urls = {f"{provider}_url": url for provider in ChallengeProviderName}
    return settings_for_sandbox(url, **{**urls, "challenge_hostnames": "", **chosen})


async def read_outcome(verification: Awaitable[None]) -> str:
    """Await a verification, and return `passed` or the code of the error."""
    try:
        await verification
    except DomainError as error:
        return error.code
    return "passed"


def ask_challenges(challenge_settings: Settings, ask: Callable[[Challenges], Awaitable[T]]) -> T:
    """Call ``ask``, and return its result."""

    async def run() -> T:
        challenges = Challenges(challenge_settings)
        try:
            return await ask(challenges)
        finally:
            await challenges.aclose()

    return asyncio.run(run())


def check_token(
    challenge_settings: Settings,
    provider: ChallengeProviderName,
    token: str,
    *,
    remote_ip: str | None = None,
) -> str:
    """Verify a token with one provider, and return `passed` or the code of the error."""
    response = ChallengeResponse(token, "subscribe", remote_ip)
    return ask_challenges(
        challenge_settings,
        lambda challenges: read_outcome(challenges.challenge_for(provider).check(response)),
    )


def check_repeatedly(challenge_settings: Settings, times: int) -> list[str]:
    """Verify a token several times with the same Turnstile client, and return the outcomes."""

    async def repeat(challenges: Challenges) -> list[str]:
        challenge = challenges.challenge_for(ChallengeProviderName.TURNSTILE)
        response = ChallengeResponse("t", "subscribe")
        return [await read_outcome(challenge.check(response)) for _ in range(times)]

    return ask_challenges(challenge_settings, repeat)
