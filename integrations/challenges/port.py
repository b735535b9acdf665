"""The interface of challenge providers (CAPTCHA services), which distinguish people from bots."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class ChallengeProviderName(StrEnum):
    TURNSTILE = "turnstile"
    HCAPTCHA = "hcaptcha"
    RECAPTCHA = "recaptcha"


class ChallengeAction(StrEnum):
    SUBSCRIBE = "subscribe"
    REGISTER = "register"
    FORGOTTEN = "forgotten"


@dataclass(frozen=True)
class ChallengeWidget:
    """The data for showing a challenge provider's widget on a page.

    Attributes:
        field: the form field into which the provider's script writes the token.
        policy: the sources that a page with the widget must allow, keyed by directive of the
            content security policy.
    """

    script: str
    css_class: str
    field: str
    policy: Mapping[str, str]


@dataclass(frozen=True)
class ChallengeResponse:
    """The token from a challenge widget, and the IP address of the browser.

    Attributes:
        action: the ``ChallengeAction`` that the provider must report for the token.
    """

    token: str
    action: str
    remote_ip: str | None = None


class Challenge(Protocol):
    site_key: str

    async def check(self, answer: ChallengeResponse) -> None:
        """Raise ``challenge.failed`` if the token is invalid, used, expired, or issued for a
        different action or host.

        Raises ``challenge.unavailable`` if the challenge provider is unreachable, because unchecked
        tokens must not be accepted.
        """
