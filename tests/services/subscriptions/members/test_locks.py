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

LIST = 7
TIMES = 300
# As long as a chunk of an import takes on a busy machine.
CHUNK_SECONDS = 0.8
ACTIONS = 5
HELD = """
    SELECT a.query FROM pg_locks JOIN pg_stat_activity AS a USING (pid)
    WHERE locktype = 'advisory' AND a.datname = current_database()
"""


def test_lock_waits_that_time_out_leave_no_list_lock_behind(empty_stack: Stack) -> None:
    """Also where Postgres grants the lock at the very moment at which the wait ends."""

    def come_and_go(lock: Callable[[UnitOfWork, int], None]) -> int:
        chance = random.Random(TIMES)
        done = 0
        for _ in range(TIMES):
            with suppress(TransientError), empty_stack.resources.unit_of_work() as uow:
                uow.session.execute(text("SET LOCAL lock_timeout = '2ms'"))
                lock(uow, LIST)
                time.sleep(chance.uniform(0, 0.003))
                done += 1
        return done

    locks: list[Callable[[UnitOfWork, int], None]] = [lock_lists_shared, lock_list_for_chunk] * 2
    with ThreadPoolExecutor(len(locks)) as pool:
        done = list(pool.map(come_and_go, locks))
    assert empty_stack.query(HELD) == []
    # Some came in, and some waited in vain.
    assert all(count > 0 for count in done)
    assert sum(done) < TIMES * len(locks)


def test_member_actions_get_the_list_lock_between_two_import_chunks(empty_stack: Stack) -> None:
    """Chunks follow one another without a pause, two at a time: nobody is refused for that."""
    done = threading.Event()

    def apply_chunks() -> None:
        while not done.is_set():
            with empty_stack.resources.unit_of_work() as uow:
                lock_list_for_chunk(uow, LIST)
                done.wait(CHUNK_SECONDS)

    with ThreadPoolExecutor(2) as pool:
        importing = [pool.submit(apply_chunks) for _ in range(2)]
        try:
            eventually(lambda: empty_stack.query(HELD) != [], what="the first chunk")
            for _ in range(ACTIONS):
                with empty_stack.resources.unit_of_work() as uow:
                    lock_list_shared(uow, LIST)
        finally:
            done.set()
        for each in importing:
            each.result()
