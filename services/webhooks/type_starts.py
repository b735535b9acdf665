"""From where on an endpoint gets the events of each of its types.

That is its position, but for a type that it got later: an endpoint that is behind, or paused, still
gets what it missed of its other types, and none of the new one from before the change.
"""

from collections.abc import Collection

from sqlalchemy.orm import Session

from models import WebhookEndpoint
from services.feed.catalogue import FeedEventType
from services.feed.positions import FeedPosition, newest_position


def position_of(endpoint: WebhookEndpoint) -> FeedPosition:
    return FeedPosition(endpoint.place, endpoint.event_id)


def later_starts(endpoint: WebhookEndpoint) -> dict[str, FeedPosition]:
    """The types of which the endpoint gets nothing before a position of their own.

    That position may be behind the endpoint's own by now, and means nothing then.
    """
    return {kind: FeedPosition.of_cursor(cursor) for kind, cursor in endpoint.starts.items()}


def set_types(
    session: Session, endpoint: WebhookEndpoint, types: Collection[FeedEventType]
) -> None:
    """Give a locked endpoint these types; it gets what happens from now on of those that are new.

    One that was taken away and comes back is new.
    """
    now = newest_position(session).cursor
    kept = {kind: start for kind, start in endpoint.starts.items() if kind in types}
    added = {kind.value: now for kind in types if kind not in endpoint.types}
    endpoint.starts = kept | added
    endpoint.types = sorted(set(types))


def go_back(endpoint: WebhookEndpoint, to: FeedPosition) -> None:
    """Have a locked endpoint get all events after the position that are of its types."""
    own = min(position_of(endpoint), to)
    endpoint.place, endpoint.event_id = own.place, own.id
    starts = later_starts(endpoint).items()
    endpoint.starts = {kind: min(start, to).cursor for kind, start in starts}
