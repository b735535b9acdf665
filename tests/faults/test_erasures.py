"""Erasures whose worker is killed in the middle of a batch."""

from collections.abc import Callable

import pytest

from core.ids import random_hash_id
from models import FINISHED
from services.erasure import marking
from services.people import accounts
from tests.faults.conftest import kill_all
from tests.faults.held_rows import await_waiter, held
from tests.importing import Importing
from tests.services.erasure.lives import fill, left
from tests.sizes import FULL, sized
from tests.stack import Running, Stack, eventually

ROWS = sized(6_000, 200_000)


@pytest.fixture(scope="module")
def erasing(make_stack: Callable[[str], Stack]) -> Importing:
    return Importing(make_stack("killed-erasures"))


def kill_in_the_middle_of(erasing: Importing, worker: Running, table: str, row_id: object) -> None:
    """Kill -9 while a batch that has written some of its rows waits for the next one."""
    with held(erasing.stack, table, row_id):
        await_waiter(erasing.stack, table)
        kill_all(worker)


def test_an_erasure_whose_worker_is_killed_goes_on_in_the_next_and_ends(
    erasing: Importing,
) -> None:
    stack, address = erasing.stack, f"{random_hash_id()}@example.com"
    with erasing.resources.unit_of_work() as uow:
        user_id = accounts.create_user(uow, email=address, name="Ada").id
    keeper = stack.new_owner()
    list_id = erasing.new_list(keeper)
    fill(stack, list_id=list_id, user_id=user_id, other_id=keeper.user_id, rows=ROWS)
    middle = f"ORDER BY id OFFSET {ROWS // 2} LIMIT 1"
    [(attachment,)] = stack.query(
        f"SELECT id FROM attachments WHERE user_id = %s {middle}", user_id
    )
    [(event,)] = stack.query(
        f"SELECT id FROM subscription_events WHERE actor_id = %s {middle}", user_id
    )
    job_id = marking.begin(erasing.resources, address)
    for table, row_id in (("attachments", attachment), ("subscription_events", event)):
        worker = stack.start_worker("upkeep", concurrency=2)
        kill_in_the_middle_of(erasing, worker, table, row_id)
    stack.start_worker("upkeep", concurrency=2)
    within = 3000 if FULL else 90
    eventually(lambda: erasing.job(job_id).status in FINISHED, within=within, what="the erasure")
    job = erasing.job(job_id)
    assert (job.status, job.error) == ("succeeded", None)
    assert job.result is not None
    assert (job.result["attachments"], job.result["jobs"]) == (ROWS, ROWS)
    assert left(stack, user_id) == {}
    [(counts,)] = stack.query("SELECT counts FROM erasures WHERE user_id = %s", user_id)
    assert isinstance(counts, dict)
    assert (counts["events"], counts["acts"], counts["idempotency"]) == (ROWS, ROWS, ROWS)
