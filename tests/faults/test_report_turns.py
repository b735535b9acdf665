"""Tests that reports about many strangers and lists neither delay others nor fill the worker."""

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from core.queues import Queue
from devstack.harness.polling import eventually
from devstack.harness.process_memory import measure_memory
from devstack.harness.running import Running
from devstack.harness.stack import Stack
from tests.support.http.replies import data
from tests.support.lists.subscribers import insert_members, new_address, new_list
from tests.support.senders.own_senders import new_sender
from tests.support.senders.posting import post, report
from tests.support.sizes import sized

pytestmark = [pytest.mark.stack, pytest.mark.tier("faults")]

LISTS = 1_000
REPORTS_PER_BODY = 1_000
BODIES = sized(10, 40)
MAX_GROWTH_BYTES = 100 * 1024 * 1024
_INSERT_LISTS = """
    INSERT INTO lists (id, user_id, title, slug)
    SELECT (random() * 9e15)::bigint + 1, %s, 'A list', 'list-' || gen_random_uuid()
    FROM generate_series(1, %s) RETURNING id
"""


def measure_worker(worker: Running) -> int:
    """Return the memory of the worker's largest process in bytes."""
    return max(measure_memory(pid) for pid in (worker.pid, *worker.children()))


def test_strangers_on_many_lists_delay_no_other_sender_and_fill_no_worker(
    make_stack: Callable[[str], Stack],
) -> None:
    stack = make_stack("turns")
    stack.start_api()
    owner = stack.create_owner()
    list_ids = [int(str(row[0])) for row in stack.query(_INSERT_LISTS, owner.user_id, LISTS)]
    with stack.client(owner.key) as client, stack.client(stack.create_owner().key) as other_client:
        sender = new_sender(client, list_ids=list_ids)
        other_sender, other_list_id, member = _create_member(stack, other_client)
        worker = stack.start_worker(Queue.MAINTENANCE)
        # Process a report first, so that the memory at the start includes all imported modules.
        data(post(client, sender, report("complained", email=new_address())))
        eventually(lambda: _count_reports(stack, sender["id"]) == 1, what="the first report")
        memory_before = measure_worker(worker)
        for _ in range(BODIES):
            strangers = (
                report("unsubscribed", email=new_address()) for _ in range(REPORTS_PER_BODY)
            )
            data(post(client, sender, *strangers))
        complaint = report("complained", email=member)
        data(post(other_client, other_sender, complaint))
        peak = 0

        def is_opted_out() -> bool:
            nonlocal peak
            peak = max(peak, measure_worker(worker))
            query = "SELECT 1 FROM opt_outs WHERE list_id = %s"
            return bool(stack.query(query, other_list_id))

        eventually(is_opted_out, what="the complaint", within=30)
        expected_count = 1 + BODIES * REPORTS_PER_BODY

        def has_processed_all() -> bool:
            nonlocal peak
            peak = max(peak, measure_worker(worker))
            return _count_reports(stack, sender["id"]) == expected_count

        eventually(has_processed_all, what="all reports", within=60 + 6 * BODIES)
        assert peak < memory_before + MAX_GROWTH_BYTES
    query = "SELECT count(*) FROM address_opt_outs WHERE cardinality(list_ids) = %s"
    assert stack.query(query, LISTS) == [(expected_count,)]


def _create_member(stack: Stack, client: httpx2.Client) -> tuple[dict[str, Any], int, str]:
    """Return a sender, its list, and the address of a member of the list."""
    list_id = int(new_list(client)["id"])
    email = new_address()
    insert_members(stack, list_id, [email])
    return new_sender(client, list_ids=[list_id]), list_id, email


def _count_reports(stack: Stack, sender_id: int) -> int:
    [(count,)] = stack.query("SELECT count(*) FROM sender_reports WHERE sender_id = %s", sender_id)
    return int(str(count))
