"""Merges whose worker is killed in the middle of a batch."""

from collections.abc import Callable

import pytest

from models import FINISHED
from services.mailing import member_figures
from tests.faults.conftest import kill_all
from tests.faults.held_rows import await_waiter, held
from tests.importing import Importing
from tests.merging import agree, job_of, make_due
from tests.services.merging.lives import Had, found, live, new_people, now, rows_of
from tests.sizes import FULL, sized
from tests.stack import Stack, eventually

LISTS = sized(50, 2_000)


@pytest.fixture(scope="module")
def merging(make_stack: Callable[[str], Stack]) -> Importing:
    return Importing(make_stack("killed-merges"))


def test_a_merge_whose_worker_is_killed_goes_on_in_the_next_and_ends(merging: Importing) -> None:
    stack = merging.stack
    keeper = stack.new_owner()
    user_id, other_id, _, other_email = new_people(merging)
    at = now(merging)
    list_ids = [merging.new_list(keeper) for _ in range(LISTS)]
    for number, each in enumerate(list_ids):
        # A third each: of the one record, of the other, of both, where one has left.
        if number % 3 != 0:
            live(merging, each, user_id, Had("active", created_at=at))
        if number % 3 != 1:
            has_left = number % 3 == 2 and number % 2 == 0
            no = frozenset({"list"}) if has_left else frozenset[str]()
            status = "unsubscribed" if has_left else "active"
            live(merging, each, other_id, Had(status, created_at=at, refused=no))
    middle = "SELECT id FROM {} WHERE user_id = %s ORDER BY {} OFFSET {} LIMIT 1"
    waits_at = [
        ("subscriptions", stack.query(middle.format("subscriptions", "list_id", 8), other_id)),
        ("subscriptions", stack.query(middle.format("subscriptions", "list_id", 28), other_id)),
    ]
    merge_id = agree(merging.resources, user_id, other_email)
    make_due(stack, merge_id)
    for table, [(row_id,)] in waits_at:
        worker = stack.start_worker("upkeep", concurrency=2)
        # A batch has written some of its rows.
        with held(stack, table, row_id):
            await_waiter(stack, table)
            kill_all(worker)
    job_id = job_of(merging.resources, merge_id)
    stack.start_worker("upkeep", concurrency=2)
    within = 3000 if FULL else 150
    eventually(lambda: merging.job(job_id).status in FINISHED, within=within, what="the merge")
    job = merging.job(job_id)
    assert (job.status, job.error, job.result) == ("succeeded", None, {"merged": True})
    assert rows_of(merging, other_id) == {}
    for number, each in enumerate(list_ids):
        [left] = found(merging, each)
        has_left = number % 3 == 2 and number % 2 == 0
        expected = (user_id, "unsubscribed" if has_left else "active")
        assert (left["user_id"], left["status"]) == expected
        assert merging.count(each) == (not has_left)
    [(counts,)] = stack.query("SELECT counts FROM account_merges WHERE id = %s", merge_id)
    assert isinstance(counts, dict)
    assert counts["lists"] == len([n for n in range(LISTS) if n % 3 != 1])
    assert member_figures.verify(stack.resources) == []
