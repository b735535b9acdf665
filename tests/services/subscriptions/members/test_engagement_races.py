"""Tests that a refusal and reports that arrive at the same time leave nothing recorded."""

from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from core import clock
from core.ids import PersonId
from devstack.harness.stack import Stack
from services.engagement import answers, upkeep
from services.subscriptions.members.opt_out_checks import compute_address_digest
from tests.support.lists.measured_lists import MeasuredList, new_measured_list
from tests.support.senders.posting import post, settle
from tests.support.stack.held_rows import await_waiter, uncommitted
from tests.support.stack.maintenance import run_maintenance

_HOLD_COUNTS = """
INSERT INTO sender_counts (sender_id, hour, outcome, count)
VALUES (%s, date_trunc('hour', now()), 'applied', 0)
"""
_LEAVE_ROW_BEHIND = """
INSERT INTO member_engagement (list_id, user_id, measured_since) VALUES (%s, %s, CURRENT_DATE)
"""


@pytest.fixture
def measured(stack: Stack, client: httpx2.Client) -> MeasuredList:
    return new_measured_list(stack, client)


def count_rows(measured: MeasuredList, user_id: int) -> int:
    query = "SELECT 1 FROM member_engagement WHERE list_id = %s AND user_id = %s"
    return len(measured.stack.query(query, measured.id, user_id))


def test_refusal_during_a_batch_of_reports_hides_and_later_deletes_what_the_batch_records(
    measured: MeasuredList, stranger: httpx2.Client
) -> None:
    user_id = measured.add_member()
    with uncommitted(measured.stack, _HOLD_COUNTS, measured.sender["id"]):
        post(measured.client, measured.sender, measured.build_report("opened", user_id))
        # The batch has recorded the open, and hasn't ended.
        await_waiter(measured.stack, "INSERT INTO sender_counts")
        measured.answer(stranger, user_id, enabled=False)
        assert measured.read_member(user_id)["engagement_choice"]["answer"] == "no"
    settle(measured.stack, measured.sender)
    assert measured.read_engagement(user_id) is None
    run_maintenance(measured.stack, "maintenance.engagement")
    assert (count_rows(measured, user_id), measured.count_marks(user_id)) == (0, 0)


def test_unchanged_list_is_checked_once_a_day(measured: MeasuredList) -> None:
    user_id = measured.add_member()
    measured.stack.query(_LEAVE_ROW_BEHIND, measured.id, user_id + 1)
    measured.stack.query(
        "UPDATE lists SET updated_at = now() - interval '2 days' WHERE id = %s", measured.id
    )
    now = clock.now()
    for hour in range(24):
        upkeep.delete_unmeasured(measured.stack.resources, now.replace(hour=hour))
        has_row = count_rows(measured, user_id + 1) == 1
        assert has_row == (hour < measured.id % 24)


def test_batch_of_reports_that_waits_for_a_refusal_records_nothing(measured: MeasuredList) -> None:
    user_id = measured.add_member()
    measured.report_event("opened", user_id, 1)
    resources = measured.stack.resources
    digest = compute_address_digest(resources.keyring, measured.read_member(user_id)["email"])
    with ThreadPoolExecutor(1) as thread:
        with resources.unit_of_work() as uow:
            answers.refuse(uow, measured.id, PersonId(user_id), digest)
            report = measured.build_report("opened", user_id, 2)
            thread.submit(post, measured.client, measured.sender, report)
            await_waiter(measured.stack, "INSERT INTO member_engagement")
        settle(measured.stack, measured.sender)
    assert (count_rows(measured, user_id), measured.count_marks(user_id)) == (0, 0)
