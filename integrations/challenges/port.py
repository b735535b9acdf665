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
    """The kind of form that a challenge protects."""

    SUBSCRIBE = "subscribe"
    REGISTER = "register"
    FORGOTTEN = "forgotten"


@dataclass(frozen=True)
class ChallengeWidget:
    """The data that a page needs to show a challenge provider's widget.

    Attributes:
        script: the URL of the challenge provider's script.
        css_class: the CSS class of the element that the script turns into the widget.
        field: the name of the form field into which the provider's script writes the token.
        policy: maps each directive of the content security policy to the sources that a page with
            the widget must allow.
    """

    script: str
    css_class: str
    field: str
    policy: Mapping[str, str]


@dataclass(frozen=True)
class ChallengeResponse:
    """The token that a challenge widget gave to a browser, and the browser's IP address.

    Attributes:
        action: the ``ChallengeAction`` value that the provider must report for the token.
    """

    token: str
    action: str
    remote_ip: str | None = None


class Challenge(Protocol):
    site_key: str

    async def check(self, answer: ChallengeResponse) -> None:
        """Raise an error unless the challenge provider accepts the token.

        A challenge token can be used only once. Raises ``challenge.failed`` (forbidden) if the
        challenge token is invalid, used, expired, or issued for a different action or host. Raises
        ``challenge.unavailable`` if the challenge provider is unreachable, because a form must not
        accept unchecked tokens during an outage.
        """
