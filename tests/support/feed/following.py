"""What a reader of the feed does in tests: go on after the last event that it saw."""

from collections.abc import Collection, Iterator
from contextlib import closing
from typing import Any

import psycopg2

from devstack.harness.stack import Stack
from models import FeedEvent
from services.feed import reading
from services.feed.catalogue import FeedEventType, announce_event
from services.feed.reading import FEED_START, FeedPosition
from storage.database import Statement
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

KIND = FeedEventType.KEY_CREATED


def tell(resources: Resources, user_id: int, kind: FeedEventType = KIND) -> None:
    """One event, in a transaction of its own."""
    with resources.unit_of_work() as uow:
        announce_event(uow, user_id, kind, count=1)


def read(
    resources: Resources,
    user_id: int,
    position: FeedPosition = FEED_START,
    *,
    types: Collection[FeedEventType] = (KIND,),
    limit: int = 100,
) -> list[FeedEvent]:
    with resources.unit_of_work() as uow:
        query = reading.next_events(user_id, position, types=types, limit=limit)
        return list(uow.session.scalars(query))


def follow(resources: Resources, user_id: int, *, limit: int) -> Iterator[list[int]]:
    """The ids of one page after the other, for ever; an empty page where there is no next event."""
    position = FEED_START
    while True:
        page = read(resources, user_id, position, types=[*FeedEventType], limit=limit)
        if page:
            position = FeedPosition.of_event(page[-1])
        yield [event.id for event in page]


def write(uow: UnitOfWork, user_id: int, kind: FeedEventType = KIND) -> None:
    """Write the row now, and leave the transaction open."""
    announce_event(uow, user_id, kind, count=1)
    uow.session.flush()


def ids_in_order(stack: Stack, user_id: int) -> list[object]:
    query = "SELECT id FROM feed_events WHERE user_id = %s ORDER BY place, id"
    return [row_id for (row_id,) in stack.query(query, user_id)]


def scans(stack: Stack, statement: Statement, **values: object) -> list[dict[str, Any]]:
    """How a statement, which is run for that, reads the table of events."""
    with closing(psycopg2.connect(stack.owner_url)) as connection, connection.cursor() as cursor:
        explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement.text}"
        cursor.execute(explain, {**statement.values, **values})
        [([found],)] = cursor.fetchall()
    named = [(node.get("Relation Name", ""), node) for node in _nodes(found["Plan"])]
    return [node for name, node in named if name.startswith("feed_ev")]


def _nodes(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [node, *(each for part in node.get("Plans", ()) for each in _nodes(part))]
