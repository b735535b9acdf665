"""The port of challenges, which tell people from programs."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class ChallengeProviderName(StrEnum):
    TURNSTILE = "turnstile"
    HCAPTCHA = "hcaptcha"
    RECAPTCHA = "recaptcha"


class ChallengeAction(StrEnum):
    """The purpose of a challenge. A widget is shown for one of these, and no caller chooses."""

    SUBSCRIBE = "subscribe"
    REGISTER = "register"
    FORGOTTEN = "forgotten"


@dataclass(frozen=True)
class ChallengeWidget:
    """The things that a page of ours needs to show the provider's widget.

    Attributes:
        script: the URL of the provider's script.
        css_class: names the element that the script makes the widget of.
        field: the form's field into which the script writes the token.
        policy: what the page's content security policy must allow, by directive.
    """

    script: str
    css_class: str
    field: str
    policy: Mapping[str, str]


@dataclass(frozen=True)
class ChallengeResponse:
    """The token that the provider's widget gave to a browser, and that browser's IP address."""

    token: str
    action: str  # a ChallengeAction; providers may report any word
    remote_ip: str | None = None


class Challenge(Protocol):
    site_key: str

    async def check(self, answer: ChallengeResponse) -> None:
        """Return when the provider vouches for the token, this once.

        Raises ``challenge.failed`` (forbidden) for a token that is wrong, used, too old, or made
        for another action or host, ``challenge.unavailable`` when the provider can't be asked:
        never a pass.
        """
