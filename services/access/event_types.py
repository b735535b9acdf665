"""The event types that a caller may see."""

from collections.abc import Collection

from core.errors import DomainError
from core.errors.access import AUTH_RESTRICTED_CREDENTIAL
from services.access.caller import Caller, require_permission, require_scope
from services.feed.catalogue import CATALOGUE, FeedEventType


def list_visible_types(
    caller: Caller, *, only: Collection[FeedEventType] = ()
) -> frozenset[FeedEventType]:
    """Return visible types, or raise an error for an invisible type in ``only``.

    If ``only`` is empty, the client requests all event types.
    """
    if only:
        for kind in only:
            _require_type(caller, kind)
        return frozenset(only)
    return frozenset(kind for kind in CATALOGUE if _is_visible(caller, kind))


def _is_visible(caller: Caller, kind: FeedEventType) -> bool:
    try:
        _require_type(caller, kind)
    except DomainError:
        return False
    return True


def _require_type(caller: Caller, kind: FeedEventType) -> None:
    entry = CATALOGUE[kind]
    if entry.scope is not None:
        require_scope(caller, entry.scope)
    elif not caller.unrestricted:
        raise AUTH_RESTRICTED_CREDENTIAL()
    require_permission(caller, entry.permission)
