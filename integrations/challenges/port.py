from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class ChallengeProviderName(StrEnum):
    TURNSTILE = "turnstile"
    HCAPTCHA = "hcaptcha"
    RECAPTCHA = "recaptcha"


@dataclass(frozen=True)
class ChallengeResponse:
    """The token that the provider's widget gave to a browser, and that browser's IP address."""

    token: str
    action: str
    remote_ip: str | None = None


class Challenge(Protocol):
    site_key: str

    async def check(self, answer: ChallengeResponse) -> None:
        """Return when the provider vouches for the token, this once.

        Raises ``challenge.failed`` (forbidden) for a token that is wrong, used, too old, or made
        for another action or host, ``challenge.unavailable`` when the provider can't be asked:
        never a pass.
        """
