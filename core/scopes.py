from collections.abc import Iterable
from enum import StrEnum


class Scope(StrEnum):
    """What a credential may do. An API key without scopes has each of them but ``delivery``."""

    CREDIT_READ = "credit.read"
    CREDIT_FULL = "credit.full"
    COMPOSER = "composer"
    ATTACHMENT = "attachment"
    SUBSCRIPTION_READ = "subscription.read"
    SUBSCRIPTION_FULL = "subscription.full"
    DELIVERY = "delivery"
    WEBHOOK = "webhook"


_INCLUDED = {Scope.CREDIT_FULL: Scope.CREDIT_READ, Scope.SUBSCRIPTION_FULL: Scope.SUBSCRIPTION_READ}


def effective(granted: Iterable[Scope]) -> frozenset[Scope]:
    """Return the granted scopes and those that they include: ``credit.full`` reads too."""
    scopes = set(granted)
    return frozenset(scopes | {_INCLUDED[scope] for scope in scopes if scope in _INCLUDED})


EVERYTHING_OF_A_USER = frozenset(Scope) - {Scope.DELIVERY}

# The right that each scope gives a program, in the words of the page that asks a person to grant
# it. A person can't grant a scope that is missing here.
EXPLANATIONS = {
    Scope.CREDIT_READ: "See your credit balance and what it was spent on",
    Scope.CREDIT_FULL: "See your credits, spend them, and claim credits that were paid for",
    Scope.COMPOSER: "Write summaries, tags and posts for other networks with the composer",
    Scope.ATTACHMENT: "See, upload and delete your attachments, private ones too",
    Scope.SUBSCRIPTION_READ: "See your lists with their members, and what you subscribe to",
    Scope.SUBSCRIPTION_FULL: (
        "Change your lists, their members and what you subscribe to; import and export members"
    ),
}
GRANTABLE = frozenset(EXPLANATIONS)
# A key may have one more, which no other program's token has.
KEY_EXPLANATIONS = EXPLANATIONS | {
    Scope.WEBHOOK: "Have your events sent to a URL, of the types that its other scopes let it see"
}
