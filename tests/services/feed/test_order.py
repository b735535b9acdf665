import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from random import Random

import psycopg2
import pytest

from core.ids import AccountId
from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from services.feed import reading
from services.feed.catalogue import FeedEventType, announce_event
from services.feed.reading import FEED_START, FeedPosition
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork
from tests.support.feed.following import EVENT_TYPE, commit_event, read_events

_WRITER_COUNT = 6
_TRANSACTION_COUNT = 40


def follow(resources: Resources, user_id: int, *, limit: int) -> Iterator[list[int]]:
    """Read an owner's feed page by page, and yield a list of the event ids of each page.

    The iterator never ends: at the end of the feed, it yields empty lists.
    """
    position = FEED_START
    while True:
        page = read_events(resources, user_id, position, types=[*FeedEventType], limit=limit)
        if page:
            position = FeedPosition.of_event(page[-1])
        yield [event.id for event in page]


def write_open_event(uow: UnitOfWork, user_id: int, kind: FeedEventType = EVENT_TYPE) -> None:
    """Write an event to a user's feed, and leave the transaction open."""
    announce_event(uow, AccountId(user_id), kind, count=1)
    uow.session.flush()


def ids_in_order(stack: Stack, user_id: int) -> list[object]:
    query = "SELECT id FROM feed_events WHERE user_id = %s ORDER BY place, id"
    return [row_id for (row_id,) in stack.query(query, user_id)]


class RolledBack(Exception):
    pass


def _write_at_random(stack: Stack, user_id: int, seed: int) -> None:
    """Write events in transactions of random length, and roll back a fifth of the transactions."""
    random_source = Random(seed)
    for _ in range(_TRANSACTION_COUNT):
        with suppress(RolledBack), stack.resources.unit_of_work() as uow:
            for _ in range(random_source.randint(1, 3)):
                write_open_event(uow, user_id, random_source.choice([*FeedEventType]))
                time.sleep(random_source.random() * 0.01)
            if random_source.random() < 0.2:
                raise RolledBack


@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_feed_follower_sees_every_event_exactly_once_in_order_with_concurrent_writers(
    stack_without_processes: Stack, feed_owner_id: int, limit: int
) -> None:
    event_ids: list[int] = []
    pages = follow(stack_without_processes.resources, feed_owner_id, limit=limit)
    with ThreadPoolExecutor(_WRITER_COUNT) as pool:
        writers = [
            pool.submit(
                _write_at_random, stack_without_processes, feed_owner_id, 100 * limit + seed
            )
            for seed in range(_WRITER_COUNT)
        ]
        while not all(writer.done() for writer in writers):
            event_ids += next(pages)
        for writer in writers:
            writer.result()
    expected = ids_in_order(stack_without_processes, feed_owner_id)

    def has_caught_up() -> bool:
        while page := next(pages):
            event_ids.extend(page)
        return len(event_ids) >= len(expected)

    eventually(has_caught_up, what="the last event")
    assert next(pages) == []
    assert event_ids == expected
    # The event ids must not be in ascending order, because otherwise the test wouldn't notice a
    # feed that is sorted by id.
    assert event_ids != sorted(event_ids)


def test_open_write_transaction_delays_later_feed_events_without_losing_any(
    stack_without_processes: Stack, feed_owner_id: int
) -> None:
    resources = stack_without_processes.resources
    commit_event(resources, feed_owner_id)
    [first] = _wait_for_ids(stack_without_processes, feed_owner_id, 1)
    with resources.unit_of_work() as slow_uow:
        write_open_event(slow_uow, feed_owner_id)
        commit_event(resources, feed_owner_id)
        time.sleep(0.1)
        assert [event.id for event in read_events(resources, feed_owner_id)] == [first]
    assert _wait_for_ids(stack_without_processes, feed_owner_id, 3) == ids_in_order(
        stack_without_processes, feed_owner_id
    )


def test_open_read_transaction_does_not_delay_feed_events(
    stack_without_processes: Stack, feed_owner_id: int
) -> None:
    with (
        closing(psycopg2.connect(stack_without_processes.owner_url)) as connection,
        connection.cursor() as cursor,
    ):
        connection.set_session(isolation_level="REPEATABLE READ")
        cursor.execute("SELECT count(*) FROM feed_events")
        commit_event(stack_without_processes.resources, feed_owner_id)
        _wait_for_ids(stack_without_processes, feed_owner_id, 1)


def test_rolled_back_transaction_leaves_no_feed_event(
    stack_without_processes: Stack, feed_owner_id: int
) -> None:
    resources = stack_without_processes.resources
    with suppress(RolledBack), resources.unit_of_work() as uow:
        write_open_event(uow, feed_owner_id)
        raise RolledBack
    commit_event(resources, feed_owner_id)
    assert len(_wait_for_ids(stack_without_processes, feed_owner_id, 1)) == 1
    assert len(ids_in_order(stack_without_processes, feed_owner_id)) == 1


def test_newest_feed_position_excludes_existing_events_and_includes_later_ones(
    stack_without_processes: Stack, feed_owner_id: int
) -> None:
    resources = stack_without_processes.resources
    commit_event(resources, feed_owner_id)
    _wait_for_ids(stack_without_processes, feed_owner_id, 1)
    with resources.unit_of_work() as slow_uow:
        write_open_event(slow_uow, feed_owner_id)
        with resources.unit_of_work() as uow:
            newest_position = reading.newest_position(uow.session)
        assert read_events(resources, feed_owner_id, newest_position) == []
    commit_event(resources, feed_owner_id)
    eventually(
        lambda: len(read_events(resources, feed_owner_id, newest_position)) == 2,
        what="the two later events",
    )


def test_feed_cursors_stay_valid_and_event_ids_stay_new_after_a_restore(
    stack_without_processes: Stack, feed_owner_id: int
) -> None:
    """A backup of one database cluster is restored into a new cluster.

    The new cluster begins with low transaction numbers. If the restore didn't raise the feed
    positions of new events, the feed would return the new events before the events from the backup.
    The last events of the old cluster are lost, but an API client still has a cursor that points to
    a lost event.
    """
    resources = stack_without_processes.resources
    old_place = 5 * 10**12
    [(restored_id,)] = stack_without_processes.query(
        "INSERT INTO feed_events (user_id, type, place) VALUES (%s, %s, %s) RETURNING id",
        *(feed_owner_id, EVENT_TYPE, old_place),
    )
    assert isinstance(restored_id, int)
    lost_position = FeedPosition(old_place + 1000, restored_id + 1000)
    assert read_events(resources, feed_owner_id) == []
    with resources.unit_of_work() as uow:
        reading.raise_feed_places(uow)
    commit_event(resources, feed_owner_id)
    eventually(
        lambda: len(read_events(resources, feed_owner_id, lost_position)) == 1,
        what="the event after the restore",
    )
    [new_event] = read_events(resources, feed_owner_id, lost_position)
    assert new_event.id > lost_position.id
    assert [event.id for event in read_events(resources, feed_owner_id)] == [
        restored_id,
        new_event.id,
    ]
    # A second restore on the same day raises the feed positions of new events again. A feed
    # position must stay below 2**53, because JavaScript can't represent all larger integers
    # exactly.
    with resources.unit_of_work() as uow:
        reading.raise_feed_places(uow)
    commit_event(resources, feed_owner_id)
    position = FeedPosition.of_event(new_event)
    eventually(
        lambda: len(read_events(resources, feed_owner_id, position)) == 1, what="the next event"
    )
    assert read_events(resources, feed_owner_id, position)[0].place < 2**53


def _wait_for_ids(stack: Stack, user_id: int, count: int) -> list[int]:
    """Wait until the feed contains at least ``count`` events, and return the ids of its events.

    The events may appear late, because the feed waits for other tests' open transactions.
    """

    def read_if_complete() -> list[int]:
        ids = [event.id for event in read_events(stack.resources, user_id, FEED_START)]
        return ids if len(ids) >= count else []

    event_ids = eventually(read_if_complete, what=f"{count} events")
    assert isinstance(event_ids, list)
    return event_ids
