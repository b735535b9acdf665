from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import func, select

from devstack.harness.stack import Stack
from models import FeedEvent
from services.feed.catalogue import FeedEventType
from services.feed.reading import FEED_START, FeedPosition, find_place_before, next_events
from services.webhooks.deliveries import build_first_event_query
from storage.database import Statement
from tests.support.feed.following import scans

ROWS = 60_000
LIMIT = 51
OWNER, LARGE, SMALL = 11, 21, 22
RARE = FeedEventType.IMPORT_ENDED


@pytest.fixture(scope="module")
def stack_with_many_events(stack_without_processes: Stack) -> Stack:
    """A stack whose feed has 60,000 events of two owners.

    Only a few events have the type ``RARE``, and only a few belong to the list ``SMALL``.
    """
    stack_without_processes.query(
        "INSERT INTO feed_events (place, user_id, type, list_id) SELECT 1 + n / 200,"
        " CASE WHEN n %% 3 = 0 THEN 12 ELSE %s END,"
        " CASE WHEN n %% 10000 = 1 THEN %s ELSE 'subscription.created' END,"
        " CASE WHEN n %% 3 > 0 THEN CASE WHEN n %% 5000 = 2 THEN %s ELSE %s END END"
        " FROM generate_series(1, %s) AS n",
        *(OWNER, RARE, SMALL, LARGE, ROWS),
    )
    stack_without_processes.query("ANALYZE feed_events")
    return stack_without_processes


def rows_read(nodes: list[dict[str, Any]]) -> float:
    read: float = sum(
        node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0))
        for node in nodes
    )
    return read


@pytest.mark.parametrize(
    ("types", "list_id", "position"),
    [
        ([*FeedEventType], None, FEED_START),
        ([*FeedEventType], None, FeedPosition(150, 0)),
        ([RARE], None, FEED_START),
        ([RARE, FeedEventType.KEY_CREATED], None, FEED_START),
        ([*FeedEventType], LARGE, FEED_START),
        ([*FeedEventType], SMALL, FEED_START),
        ([RARE], SMALL, FEED_START),
    ],
    ids=["all", "half way", "rare type", "rare types", "large list", "small list", "nothing"],
)
def test_feed_page_reads_only_as_many_rows_as_its_limit_and_event_types(
    stack_with_many_events: Stack,
    types: Collection[FeedEventType],
    list_id: int | None,
    position: FeedPosition,
) -> None:
    query = next_events(OWNER, position, types=types, list_id=list_id, limit=LIMIT)
    nodes = scans(stack_with_many_events, Statement(query))
    assert {node["Node Type"] for node in nodes} <= {"Index Scan", "Index Only Scan"}
    assert rows_read(nodes) <= LIMIT + len(types)


@pytest.fixture(scope="module")
def stack_with_weeks_of_events(make_stack: Callable[[str], Stack]) -> Stack:
    """A stack whose feed has one event per minute for six weeks.

    Every ten consecutive events have the same place, as if one transaction had written them.
    """
    stack = make_stack("feed-of-weeks")
    stack.query(
        "INSERT INTO feed_events (place, user_id, type, occurred_at)"
        " SELECT 1 + n / 10, %s, %s, now() - make_interval(mins => %s - n)"
        " FROM generate_series(1, %s) AS n",
        *(OWNER, RARE, ROWS, ROWS),
    )
    stack.query("ANALYZE feed_events")
    return stack


@pytest.mark.parametrize("ago", [timedelta(hours=2), timedelta(minutes=ROWS // 2)])
def test_first_feed_event_since_a_time_is_found_without_scanning_earlier_events(
    stack_with_weeks_of_events: Stack, ago: timedelta
) -> None:
    since = datetime.now(UTC) - ago
    events = (FeedEvent.user_id == OWNER, FeedEvent.type == RARE)
    with stack_with_weeks_of_events.resources.unit_of_work() as uow:
        place = find_place_before(uow.session, since)
        event = uow.session.scalars(build_first_event_query(events, place, since)).one()
        expected = select(func.min(FeedEvent.id)).where(FeedEvent.occurred_at >= since)
        assert event.id == uow.session.scalar(expected)
    # Those of the hour before, in which a transaction may have been open.
    assert (
        0
        < rows_read(
            scans(
                stack_with_weeks_of_events, Statement(build_first_event_query(events, place, since))
            )
        )
        < 200
    )


def test_time_before_all_feed_events_maps_to_the_start_of_the_feed(
    stack_with_weeks_of_events: Stack,
) -> None:
    with stack_with_weeks_of_events.resources.unit_of_work() as uow:
        assert find_place_before(uow.session, datetime(1, 1, 1, tzinfo=UTC)) == FEED_START.place
