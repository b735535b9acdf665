from collections.abc import Iterable
from enum import StrEnum


class Scope(StrEnum):
    """What a credential may do. A key without scopes has all of its user's but ``delivery``."""

    CREDIT_READ = "credit.read"
    CREDIT_FULL = "credit.full"
    COMPOSER = "composer"
    ATTACHMENT = "attachment"
    SUBSCRIPTION_READ = "subscription.read"
    SUBSCRIPTION_FULL = "subscription.full"
    DELIVERY = "delivery"


_INCLUDED = {
    Scope.CREDIT_FULL: Scope.CREDIT_READ,
    Scope.SUBSCRIPTION_FULL: Scope.SUBSCRIPTION_READ,
}


def effective(granted: Iterable[Scope]) -> frozenset[Scope]:
    """The scopes granted and those they include: ``credit.full`` reads too."""
    scopes = set(granted)
    return frozenset(scopes | {_INCLUDED[scope] for scope in scopes if scope in _INCLUDED})


EVERYTHING_OF_A_USER = frozenset(Scope) - {Scope.DELIVERY}
