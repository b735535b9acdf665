"""Runs several actions on lists at the same time, and checks that the data stays consistent."""

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from devstack.harness.stack import Owner, Stack
from tests.support.lists.acting import ListActions, Person
from tests.support.lists.model import Reply
from tests.support.lists.observed import (
    People,
    observe,
    require_counts_are_true,
    require_opt_outs_hold,
    require_unbroken_history,
)

MAX_CONCURRENT_ACTIONS = 16

Action = Callable[[], Reply]


def deadlocks(stack: Stack) -> object:
    stack.query("SELECT pg_stat_force_next_flush()")
    [(count,)] = stack.query(
        "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    )
    return count


@contextmanager
def no_deadlock(stack: Stack) -> Iterator[None]:
    """Check that no deadlock occurs in Postgres inside the ``with`` block.

    Postgres resolves each deadlock after one second, so this check compares the number of deadlocks
    in Postgres's statistics before and after the block.
    """
    before = deadlocks(stack)
    yield
    assert deadlocks(stack) == before


def run_at_once(actions: list[Action]) -> list[Reply]:
    """Run actions in up to ``MAX_CONCURRENT_ACTIONS`` threads, and return the actions' replies."""
    barrier = threading.Barrier(min(MAX_CONCURRENT_ACTIONS, len(actions)))

    def begin(number: int, action: Action) -> Reply:
        if number < barrier.parties:
            barrier.wait(10)
        return action()

    with ThreadPoolExecutor(MAX_CONCURRENT_ACTIONS) as threads:
        return list(threads.map(begin, itertools.count(), actions))


def require_consistent(acting: ListActions, lists: list[int], *people: Person) -> None:
    known = People(
        [each.address for each in people],
        {each.user_id: each.address for each in people if each.user_id},
    )
    seen = observe(acting.resources, lists, known)
    require_opt_outs_hold(seen, known)
    require_counts_are_true(seen)
    require_unbroken_history(seen)


def shown_count(acting: ListActions, list_id: int, owner: Owner) -> int:
    headers = {"Authorization": f"Bearer {owner.key}"}
    reply = acting.client.get(f"/lists/{list_id}", headers=headers)
    return int(reply.json()["data"]["subscriber_count"])


def true_count(acting: ListActions, list_id: int) -> int:
    [(count,)] = acting.stack.query(
        "SELECT count(*) FROM subscriptions WHERE list_id = %s AND status = 'active'", list_id
    )
    return int(str(count))


def find_people(acting: ListActions, list_id: int) -> list[Person]:
    rows = acting.stack.query(
        "SELECT email, id FROM users WHERE id IN"
        " (SELECT user_id FROM subscriptions WHERE list_id = %s"
        " UNION SELECT user_id FROM opt_outs WHERE list_id = %s)",
        list_id,
        list_id,
    )
    return [Person(str(email), int(str(user_id))) for email, user_id in rows]
