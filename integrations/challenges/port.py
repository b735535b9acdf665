"""The interface of challenge providers, which distinguish people from programs."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class ChallengeProviderName(StrEnum):
    TURNSTILE = "turnstile"
    HCAPTCHA = "hcaptcha"
    RECAPTCHA = "recaptcha"


class ChallengeAction(StrEnum):
    """The form that a challenge protects. The server chooses the action for each form."""

    SUBSCRIBE = "subscribe"
    REGISTER = "register"
    FORGOTTEN = "forgotten"


@dataclass(frozen=True)
class ChallengeWidget:
    """The data that a page needs to show the provider's widget.

    Attributes:
        script: the URL of the provider's script.
        css_class: the CSS class of the element that the script turns into the widget.
        field: the form field into which the script writes the token.
        policy: maps directives of the content security policy to the sources that the page must
            allow.
    """

    script: str
    css_class: str
    field: str
    policy: Mapping[str, str]


@dataclass(frozen=True)
class ChallengeResponse:
    """The token that the provider's widget gave to a browser, and the browser's IP address.

    Attributes:
        action: the ``ChallengeAction`` of the form. The type is text, because a provider may report
            any text.
    """

    token: str
    action: str
    remote_ip: str | None = None


class Challenge(Protocol):
    site_key: str

    async def check(self, answer: ChallengeResponse) -> None:
        """Require that the provider accepts the token, which can be used only once.

        Raises ``challenge.failed`` (forbidden) if the token is wrong, used, too old, or made for
        another action or host. Raises ``challenge.unavailable`` if the provider is unreachable, so
        that an outage lets nobody through.
        """
