import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from random import Random

import psycopg2
import pytest

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from services.feed import reading
from services.feed.catalogue import FeedEventType
from services.feed.reading import FEED_START, FeedPosition
from tests.support.feed.following import KIND, follow, ids_in_order, read, tell, write

_WRITERS = 6
_TRANSACTIONS = 40


class Undone(Exception):
    pass


def _write_at_random(stack: Stack, user_id: int, seed: int) -> None:
    """Transactions of some length and some events, a fifth of which are undone."""
    dice = Random(seed)
    for _ in range(_TRANSACTIONS):
        with suppress(Undone), stack.resources.unit_of_work() as uow:
            for _ in range(dice.randint(1, 3)):
                write(uow, user_id, dice.choice([*FeedEventType]))
                time.sleep(dice.random() * 0.01)
            if dice.random() < 0.2:
                raise Undone


@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_feed_follower_sees_every_event_exactly_once_in_order_with_concurrent_writers(
    stack_without_processes: Stack, feed_owner_id: int, limit: int
) -> None:
    seen: list[int] = []
    pages = follow(stack_without_processes.resources, feed_owner_id, limit=limit)
    with ThreadPoolExecutor(_WRITERS) as pool:
        writers = [
            pool.submit(
                _write_at_random, stack_without_processes, feed_owner_id, 100 * limit + seed
            )
            for seed in range(_WRITERS)
        ]
        while not all(each.done() for each in writers):
            seen += next(pages)
        for each in writers:
            each.result()
    expected = ids_in_order(stack_without_processes, feed_owner_id)

    def caught_up() -> bool:
        while page := next(pages):
            seen.extend(page)
        return len(seen) >= len(expected)

    eventually(caught_up, what="the last event")
    assert next(pages) == []
    assert seen == expected
    # Else a reader by ids had done as well, and this had shown nothing.
    assert seen != sorted(seen)


def test_open_write_transaction_delays_later_feed_events_without_losing_any(
    stack_without_processes: Stack, feed_owner_id: int
) -> None:
    resources = stack_without_processes.resources
    tell(resources, feed_owner_id)
    [first] = _awaited(stack_without_processes, feed_owner_id, 1)
    with resources.unit_of_work() as slow:
        write(slow, feed_owner_id)
        tell(resources, feed_owner_id)
        time.sleep(0.1)
        assert [event.id for event in read(resources, feed_owner_id)] == [first]
    assert _awaited(stack_without_processes, feed_owner_id, 3) == ids_in_order(
        stack_without_processes, feed_owner_id
    )


def test_open_read_transaction_does_not_delay_feed_events(
    stack_without_processes: Stack, feed_owner_id: int
) -> None:
    with (
        closing(psycopg2.connect(stack_without_processes.owner_url)) as dump,
        dump.cursor() as cursor,
    ):
        dump.set_session(isolation_level="REPEATABLE READ")
        cursor.execute("SELECT count(*) FROM feed_events")
        tell(stack_without_processes.resources, feed_owner_id)
        _awaited(stack_without_processes, feed_owner_id, 1)


def test_rolled_back_transaction_leaves_no_feed_event(
    stack_without_processes: Stack, feed_owner_id: int
) -> None:
    resources = stack_without_processes.resources
    with suppress(Undone), resources.unit_of_work() as uow:
        write(uow, feed_owner_id)
        raise Undone
    tell(resources, feed_owner_id)
    assert len(_awaited(stack_without_processes, feed_owner_id, 1)) == 1
    assert len(ids_in_order(stack_without_processes, feed_owner_id)) == 1


def test_newest_feed_position_excludes_existing_events_and_includes_later_ones(
    stack_without_processes: Stack, feed_owner_id: int
) -> None:
    resources = stack_without_processes.resources
    tell(resources, feed_owner_id)
    _awaited(stack_without_processes, feed_owner_id, 1)
    with resources.unit_of_work() as slow:
        write(slow, feed_owner_id)
        with resources.unit_of_work() as uow:
            newest = reading.newest_position(uow.session)
        assert read(resources, feed_owner_id, newest) == []
    tell(resources, feed_owner_id)
    eventually(
        lambda: len(read(resources, feed_owner_id, newest)) == 2, what="the two that came later"
    )


def test_feed_cursors_stay_valid_and_event_ids_stay_new_after_a_restore(
    stack_without_processes: Stack, feed_owner_id: int
) -> None:
    """A busier cluster gave these places; its last cursors are of events that are not restored."""
    resources = stack_without_processes.resources
    far = 5 * 10**12
    [(old,)] = stack_without_processes.query(
        "INSERT INTO feed_events (user_id, type, place) VALUES (%s, %s, %s) RETURNING id",
        *(feed_owner_id, KIND, far),
    )
    assert isinstance(old, int)
    lost = FeedPosition(far + 1000, old + 1000)
    assert read(resources, feed_owner_id) == []
    with resources.unit_of_work() as uow:
        reading.raise_feed_places(uow)
    tell(resources, feed_owner_id)
    eventually(
        lambda: len(read(resources, feed_owner_id, lost)) == 1, what="the event after the restore"
    )
    [new] = read(resources, feed_owner_id, lost)
    assert new.id > lost.id
    assert [event.id for event in read(resources, feed_owner_id)] == [old, new.id]
    # A second restore of the same day is as good, and places stay exact in JavaScript.
    with resources.unit_of_work() as uow:
        reading.raise_feed_places(uow)
    tell(resources, feed_owner_id)
    position = FeedPosition.of_event(new)
    eventually(lambda: len(read(resources, feed_owner_id, position)) == 1, what="the next event")
    assert read(resources, feed_owner_id, position)[0].place < 2**53


def _awaited(stack: Stack, user_id: int, count: int) -> list[int]:
    """The ids that are read once there are so many: other tests' transactions may be open."""

    def found() -> list[int]:
        ids = [event.id for event in read(stack.resources, user_id, FEED_START)]
        return ids if len(ids) >= count else []

    seen = eventually(found, what=f"{count} events")
    assert isinstance(seen, list)
    return seen
