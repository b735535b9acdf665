"""Tests of filters with ``days_ago``, which counts back from the day on which a filter is used."""

from datetime import timedelta

import pytest

from core import clock
from models import BulkActionKind
from services.paging import PageRequest
from services.subscriptions import exports, lists, segments
from services.subscriptions.export_sheets import ExportKind
from services.subscriptions.exports import ExportOrder
from services.subscriptions.filters import member_filter, searching
from tests.support.lists.bulk_actions import BulkActions

JOINED_YESTERDAY = {"field": "joined_at", "is": {"days_ago": 1}}
ONE_DAY = timedelta(days=1)


@pytest.fixture
def joined_addresses(bulk_actions: BulkActions) -> list[str]:
    """The addresses of four members: one joined today, one yesterday, and two the day before."""
    addresses = bulk_actions.add(4)
    for days, address in zip((0, 1, 2, 2), addresses, strict=True):
        bulk_actions.stack.query(
            "UPDATE subscriptions SET joined_at = now() - %s * interval '1 day'"
            " WHERE list_id = %s AND email = %s",
            days,
            bulk_actions.list_id,
            address,
        )
    return addresses


def find_segment_members(bulk_actions: BulkActions, segment_id: int) -> list[str]:
    with bulk_actions.resources.unit_of_work() as uow:
        mailing_list = lists.get_list(uow, bulk_actions.list_id)
        criteria = segments.read_filter(uow, mailing_list, segment_id)
        page = searching.search_members(uow, mailing_list.id, criteria, PageRequest(10))
    return [row["email"] for row in page.page.rows]


def test_segment_counts_days_back_from_the_day_on_which_the_segment_is_used(
    bulk_actions: BulkActions, joined_addresses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with bulk_actions.resources.unit_of_work() as uow:
        mailing_list = lists.get_list(uow, bulk_actions.list_id)
        segment = segments.create_segment(uow, mailing_list, "New", JOINED_YESTERDAY)
        uow.session.flush()
        segment_id = segment.id
        assert member_filter.restore_names(uow, mailing_list, segment.filter) == [JOINED_YESTERDAY]
    assert find_segment_members(bulk_actions, segment_id) == [joined_addresses[1]]
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now + ONE_DAY)
    assert find_segment_members(bulk_actions, segment_id) == [joined_addresses[0]]


@pytest.mark.parametrize("kind", ["bulk action", "export"])
def test_unfinished_job_counts_days_back_from_the_day_on_which_it_began(
    bulk_actions: BulkActions, joined_addresses: list[str], kind: str
) -> None:
    if kind == "export":
        table = "exports"
        with bulk_actions.resources.unit_of_work() as uow:
            caller = bulk_actions.importing.caller(bulk_actions.owner)
            order = ExportOrder(ExportKind.MEMBERS, written=JOINED_YESTERDAY)
            job_id = exports.begin_export(uow, caller, bulk_actions.list_id, order).id
    else:
        table = "bulk_actions"
        job_id = bulk_actions.begin(BulkActionKind.REMOVE, written=JOINED_YESTERDAY)
    bulk_actions.stack.query(
        f"UPDATE {table} SET created_at = created_at - interval '1 day' WHERE list_id = %s",
        bulk_actions.list_id,
    )
    if kind == "export":
        exports.write_export(bulk_actions.resources, bulk_actions.importing.lease(job_id))
    result = bulk_actions.importing.work(job_id).result
    assert result is not None
    assert result["rows" if kind == "export" else "changed"] == len(joined_addresses) - 2
