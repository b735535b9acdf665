"""The scopes of credentials, and the explanations that people see before they grant a scope."""

from collections.abc import Iterable
from enum import StrEnum


class Scope(StrEnum):
    """A permission of a credential. An API key without scopes has all except ``delivery``."""

    CREDIT_READ = "credit.read"
    CREDIT_FULL = "credit.full"
    COMPOSER = "composer"
    ATTACHMENT = "attachment"
    SUBSCRIPTION_READ = "subscription.read"
    SUBSCRIPTION_FULL = "subscription.full"
    DELIVERY = "delivery"
    WEBHOOK = "webhook"
    SENDER = "sender"


USER_SCOPES = frozenset(Scope) - {Scope.DELIVERY}

# The explanations that a person reads before granting scopes to a program. A scope without an
# explanation can't be granted to a program.
SCOPE_EXPLANATIONS = {
    Scope.CREDIT_READ: "See your credit balance and what it was spent on",
    Scope.CREDIT_FULL: "See your credits, spend them, and claim credits that were paid for",
    Scope.COMPOSER: "Write summaries, tags and posts for other networks with the composer",
    Scope.ATTACHMENT: "See, upload and delete your attachments, private ones too",
    Scope.SUBSCRIPTION_READ: "See your lists with their members, and what you subscribe to",
    Scope.SUBSCRIPTION_FULL: (
        "Change your lists, their members and what you subscribe to; import and export members"
    ),
}
GRANTABLE_SCOPES = frozenset(SCOPE_EXPLANATIONS)
# Explains each scope that a user can give to an API key. Users can give the scopes ``webhook`` and
# ``sender`` to API keys, but not to OAuth tokens.
KEY_SCOPE_EXPLANATIONS = SCOPE_EXPLANATIONS | {
    Scope.WEBHOOK: "Send your events to a URL, but only types that the other permissions allow",
    Scope.SENDER: "Report bounces, complaints and unsubscriptions of your lists",
}
_INCLUDED_SCOPES = {
    Scope.CREDIT_FULL: Scope.CREDIT_READ,
    Scope.SUBSCRIPTION_FULL: Scope.SUBSCRIPTION_READ,
}


def list_known_scopes(names: Iterable[str]) -> list[Scope]:
    """Omit names that only a newer release knows."""
    known_names = frozenset(Scope)
    return [Scope(name) for name in names if name in known_names]


def expand_scopes(granted: Iterable[Scope]) -> frozenset[Scope]:
    """Add the included scopes, such as ``credit.read`` for ``credit.full``."""
    scopes = set(granted)
    included = {_INCLUDED_SCOPES[scope] for scope in scopes if scope in _INCLUDED_SCOPES}
    return frozenset(scopes | included)
