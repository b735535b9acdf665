from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import func, select

from core.ids import AccountId
from devstack.harness.stack import Stack
from models import FeedEvent
from services.feed.catalogue import FeedEventType
from services.feed.reading import FEED_START, FeedPosition, find_place_before, next_events
from services.webhooks.deliveries import build_first_event_query
from storage.database import Statement
from tests.support.feed.following import explain_scans

EVENT_COUNT = 60_000
PAGE_LIMIT = 51
OWNER_ID = 11
LARGE_LIST_ID = 21
SMALL_LIST_ID = 22
RARE_TYPE = FeedEventType.IMPORT_ENDED


@pytest.fixture(scope="module")
def stack_with_many_events(stack_without_processes: Stack) -> Stack:
    """A test stack with 60,000 events of two owners in the event feed.

    Only a few events have the type ``RARE_TYPE`` or belong to the list ``SMALL_LIST_ID``.
    """
    stack_without_processes.query(
        "INSERT INTO feed_events (place, user_id, type, list_id) SELECT 1 + n / 200,"
        " CASE WHEN n %% 3 = 0 THEN 12 ELSE %s END,"
        " CASE WHEN n %% 10000 = 1 THEN %s ELSE 'subscription.created' END,"
        " CASE WHEN n %% 3 > 0 THEN CASE WHEN n %% 5000 = 2 THEN %s ELSE %s END END"
        " FROM generate_series(1, %s) AS n",
        *(OWNER_ID, RARE_TYPE, SMALL_LIST_ID, LARGE_LIST_ID, EVENT_COUNT),
    )
    stack_without_processes.query("ANALYZE feed_events")
    return stack_without_processes


def count_rows_read(nodes: list[dict[str, Any]]) -> float:
    row_count: float = sum(
        node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0))
        for node in nodes
    )
    return row_count


@pytest.mark.parametrize(
    ("types", "list_id", "position"),
    [
        ([*FeedEventType], None, FEED_START),
        ([*FeedEventType], None, FeedPosition(150, 0)),
        ([RARE_TYPE], None, FEED_START),
        ([RARE_TYPE, FeedEventType.KEY_CREATED], None, FEED_START),
        ([*FeedEventType], LARGE_LIST_ID, FEED_START),
        ([*FeedEventType], SMALL_LIST_ID, FEED_START),
        ([RARE_TYPE], SMALL_LIST_ID, FEED_START),
    ],
    ids=["all", "half way", "rare type", "rare types", "large list", "small list", "nothing"],
)
def test_feed_page_reads_only_as_many_rows_as_its_limit_and_event_types(
    stack_with_many_events: Stack,
    types: Collection[FeedEventType],
    list_id: int | None,
    position: FeedPosition,
) -> None:
    query = next_events(
        AccountId(OWNER_ID), position, types=types, list_id=list_id, limit=PAGE_LIMIT
    )
    nodes = explain_scans(stack_with_many_events, Statement(query))
    assert {node["Node Type"] for node in nodes} <= {"Index Scan", "Index Only Scan"}
    assert count_rows_read(nodes) <= PAGE_LIMIT + len(types)


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
        *(OWNER_ID, RARE_TYPE, EVENT_COUNT, EVENT_COUNT),
    )
    stack.query("ANALYZE feed_events")
    return stack


@pytest.mark.parametrize("age", [timedelta(hours=2), timedelta(minutes=EVENT_COUNT // 2)])
def test_first_feed_event_since_a_time_is_found_without_scanning_earlier_events(
    stack_with_weeks_of_events: Stack, age: timedelta
) -> None:
    since = datetime.now(UTC) - age
    events = (FeedEvent.user_id == OWNER_ID, FeedEvent.type == RARE_TYPE)
    with stack_with_weeks_of_events.resources.unit_of_work() as uow:
        place = find_place_before(uow.session, since)
        event = uow.session.scalars(build_first_event_query(events, place, since)).one()
        expected = select(func.min(FeedEvent.id)).where(FeedEvent.occurred_at >= since)
        assert event.id == uow.session.scalar(expected)
    # In the feed, two events can be in the wrong order if their times are less than an hour apart.
    # To find the first event after the time ``since``, the query also reads the events of the hour
    # before ``since``.
    query = build_first_event_query(events, place, since)
    nodes = explain_scans(stack_with_weeks_of_events, Statement(query))
    assert 0 < count_rows_read(nodes) < 200


def test_time_before_all_feed_events_maps_to_the_start_of_the_feed(
    stack_with_weeks_of_events: Stack,
) -> None:
    with stack_with_weeks_of_events.resources.unit_of_work() as uow:
        assert find_place_before(uow.session, datetime(1, 1, 1, tzinfo=UTC)) == FEED_START.place
