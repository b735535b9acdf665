"""Tests that processes count sign-up page views in memory, and write the counts to Postgres."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import date

import psycopg2
import pytest

from devstack.harness.stack import Stack
from services.subscriptions import lists, sign_up_views
from services.subscriptions.sign_up_views import ViewCounter
from storage.database import Statement

pytestmark = pytest.mark.stack

DAY = date(2026, 11, 29)
PROCESS_COUNT = 4
ROUND_COUNT = 10


def create_lists(stack: Stack, count: int) -> list[int]:
    owner = stack.create_owner()
    with stack.resources.unit_of_work() as uow:
        return [
            lists.create_list(
                uow, account_id=owner.account_id, title="A list", slug=f"v{number}-{owner.user_id}"
            ).id
            for number in range(count)
        ]


def read_views(stack: Stack, list_ids: Iterable[int]) -> list[int]:
    query = "SELECT coalesce(sum(seen), 0)::int FROM sign_up_views WHERE list_id = %s"
    return [int(str(stack.query(query, list_id)[0][0])) for list_id in list_ids]


def test_several_processes_count_each_view_once(stack: Stack) -> None:
    list_ids = create_lists(stack, 20)

    def count(number: int) -> None:
        counter = ViewCounter()
        # Half of the processes count views of the lists in reverse order, because processes that
        # write counts in different orders must not deadlock.
        ordered = list_ids if number % 2 else list_ids[::-1]
        for _ in range(ROUND_COUNT):
            for list_id in ordered:
                counter.count_view(list_id, DAY)
            counter.write_views(stack.resources.database)

    with ThreadPoolExecutor(PROCESS_COUNT) as threads:
        assert len([*threads.map(count, range(PROCESS_COUNT))]) == PROCESS_COUNT
    assert read_views(stack, list_ids) == [PROCESS_COUNT * ROUND_COUNT] * len(list_ids)


def test_process_counts_a_limited_number_of_lists_until_the_next_write(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sign_up_views, "MAX_COUNTED_LISTS", 2)
    list_ids = create_lists(stack, 3)
    counter = ViewCounter()
    for _ in range(2):
        for list_id in list_ids:
            counter.count_view(list_id, DAY)
    counter.write_views(stack.resources.database)
    assert read_views(stack, list_ids) == [2, 2, 0]
    counter.count_view(list_ids[2], DAY)
    counter.write_views(stack.resources.database)
    assert read_views(stack, list_ids) == [2, 2, 1]


def test_views_after_a_failed_write_are_counted(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    [list_id] = create_lists(stack, 1)
    database = stack.resources.database
    counter = ViewCounter()
    counter.count_view(list_id, DAY)
    with monkeypatch.context() as patch:
        patch.setattr(sign_up_views, "_ADD_VIEWS", Statement("SELECT 1 / 0"))
        with pytest.raises(psycopg2.Error):
            counter.write_views(database)
    counter.count_view(list_id, DAY)
    # The sign-up page views of an unknown list are dropped, but the views of other lists are
    # written to the database.
    counter.count_view(1, DAY)
    counter.write_views(database)
    assert read_views(stack, [list_id]) == [1]
