import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from sqlalchemy import text

from core.errors import TransientError
from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from services.subscriptions.members.locks import (
    lock_list_for_chunk,
    lock_list_shared,
    lock_lists_shared,
)
from storage.unit_of_work import UnitOfWork

LIST_ID = 7
ATTEMPT_COUNT = 300
# How long it takes a busy machine to import a chunk of members.
CHUNK_SECONDS = 0.8
ACTION_COUNT = 5
HELD_LOCKS_QUERY = """
    SELECT a.query FROM pg_locks JOIN pg_stat_activity AS a USING (pid)
    WHERE locktype = 'advisory' AND a.datname = current_database()
"""


def test_lock_waits_that_time_out_leave_no_list_lock_behind(empty_stack: Stack) -> None:
    """Postgres may grant the lock at the same moment at which the wait times out."""

    def lock_repeatedly(lock: Callable[[UnitOfWork, int], None]) -> int:
        random_source = random.Random(ATTEMPT_COUNT)
        lock_count = 0
        for _ in range(ATTEMPT_COUNT):
            with suppress(TransientError), empty_stack.resources.unit_of_work() as uow:
                uow.session.execute(text("SET LOCAL lock_timeout = '2ms'"))
                lock(uow, LIST_ID)
                time.sleep(random_source.uniform(0, 0.003))
                lock_count += 1
        return lock_count

    locks: list[Callable[[UnitOfWork, int], None]] = [lock_lists_shared, lock_list_for_chunk] * 2
    with ThreadPoolExecutor(len(locks)) as pool:
        lock_counts = list(pool.map(lock_repeatedly, locks))
    assert empty_stack.query(HELD_LOCKS_QUERY) == []
    # Require that some attempts got the lock, and that others timed out.
    assert all(count > 0 for count in lock_counts)
    assert sum(lock_counts) < ATTEMPT_COUNT * len(locks)


def test_member_actions_get_the_list_lock_between_two_import_chunks(empty_stack: Stack) -> None:
    """Two threads import chunks without a pause, but no change of a member is rejected as busy."""
    stop = threading.Event()

    def apply_chunks() -> None:
        while not stop.is_set():
            with empty_stack.resources.unit_of_work() as uow:
                lock_list_for_chunk(uow, LIST_ID)
                stop.wait(CHUNK_SECONDS)

    with ThreadPoolExecutor(2) as pool:
        chunk_writers = [pool.submit(apply_chunks) for _ in range(2)]
        try:
            eventually(lambda: empty_stack.query(HELD_LOCKS_QUERY) != [], what="the first chunk")
            for _ in range(ACTION_COUNT):
                with empty_stack.resources.unit_of_work() as uow:
                    lock_list_shared(uow, LIST_ID)
        finally:
            stop.set()
        for writer in chunk_writers:
            writer.result()
