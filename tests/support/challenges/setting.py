"""Challenges under given settings, asked from ordinary tests."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import TypeVar

from core.errors import DomainError
from core.settings import Settings
from devstack.sandbox.sandbox_settings import build_challenge_settings
from integrations.challenges.port import ChallengeProviderName, ChallengeResponse
from integrations.challenges.registry import Challenges
from tests.support.stack.given_settings import settings

T = TypeVar("T")
_numbers = itertools.count()


def of_sandbox(url: str, **chosen: str) -> Settings:
    names = {
        name.removeprefix("PRESSROOM_").lower(): value
        for name, value in build_challenge_settings(url, {}).items()
    }
    return settings(**{**names, **chosen})


def of_server(url: str, **chosen: str) -> Settings:
    """All three providers at one URL, host names unchecked."""
    urls = {f"{provider}_url": url for provider in ChallengeProviderName}
    return of_sandbox(url, **{**urls, "challenge_hostnames": "", **chosen})


def token(start: str) -> str:
    """A token that nobody has used: `token("pass-")`."""
    return f"{start}{next(_numbers)}"


async def outcome(work: Awaitable[None]) -> str:
    """`passed`, or the code of the error."""
    try:
        await work
    except DomainError as error:
        return error.code
    return "passed"


def asking(given: Settings, ask: Callable[[Challenges], Awaitable[T]]) -> T:
    async def run() -> T:
        challenges = Challenges(given)
        try:
            return await ask(challenges)
        finally:
            await challenges.aclose()

    return asyncio.run(run())


def check(
    given: Settings, provider: ChallengeProviderName, token: str, *, remote_ip: str | None = None
) -> str:
    answer = ChallengeResponse(token, "subscribe", remote_ip)
    return asking(given, lambda all_: outcome(all_.challenge_for(provider).check(answer)))


def check_repeatedly(given: Settings, times: int) -> list[str]:
    """What one client of Turnstile makes of a token each time."""

    async def repeat(challenges: Challenges) -> list[str]:
        challenge = challenges.challenge_for(ChallengeProviderName.TURNSTILE)
        answer = ChallengeResponse("t", "subscribe")
        return [await outcome(challenge.check(answer)) for _ in range(times)]

    return asking(given, repeat)


def check_everywhere(given: Settings, token: str) -> list[str]:
    """What each of the three providers makes of it, in their order."""

    async def each(challenges: Challenges) -> list[str]:
        answer = ChallengeResponse(token, "subscribe")
        return [
            await outcome(challenges.challenge_for(name).check(answer))
            for name in ChallengeProviderName
        ]

    return asking(given, each)
