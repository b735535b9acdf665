"""Writes events to an owner's feed, and reads the feed page by page."""

from collections.abc import Collection
from contextlib import closing
from typing import Any

import psycopg2

from core.ids import AccountId
from devstack.harness.stack import Stack
from models import FeedEvent
from services.feed import reading
from services.feed.catalogue import FeedEventType, announce_event
from services.feed.reading import FEED_START, FeedPosition
from storage.database import Statement
from storage.resources import Resources

EVENT_TYPE = FeedEventType.KEY_CREATED


def commit_event(resources: Resources, user_id: int, kind: FeedEventType = EVENT_TYPE) -> None:
    with resources.unit_of_work() as uow:
        announce_event(uow, AccountId(user_id), kind, count=1)


def read_events(
    resources: Resources,
    user_id: int,
    position: FeedPosition = FEED_START,
    *,
    types: Collection[FeedEventType] = (EVENT_TYPE,),
    limit: int = 100,
) -> list[FeedEvent]:
    with resources.unit_of_work() as uow:
        query = reading.next_events(AccountId(user_id), position, types=types, limit=limit)
        return list(uow.session.scalars(query))


def explain_scans(stack: Stack, statement: Statement, **values: object) -> list[dict[str, Any]]:
    """Run an SQL statement, and return the nodes of its plan that read the feed events."""
    with closing(psycopg2.connect(stack.owner_url)) as connection, connection.cursor() as cursor:
        explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement.text}"
        cursor.execute(explain, {**statement.values, **values})
        [([explanation],)] = cursor.fetchall()
    nodes = _list_nodes(explanation["Plan"])
    return [node for node in nodes if node.get("Relation Name", "").startswith("feed_ev")]


def _list_nodes(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [node, *(each for part in node.get("Plans", ()) for each in _list_nodes(part))]
