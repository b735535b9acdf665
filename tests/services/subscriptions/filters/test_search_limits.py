"""Tests the limits of a member search: the members read per page, the duration and the memory."""

import gc

import pytest
from sqlalchemy import Select, func, text

from core.errors import DomainError, Kind
from services.paging import PageRequest
from services.subscriptions.filters import member_filter, searching
from services.subscriptions.filters.member_filter import MemberFilter
from tests.support.lists.random_list import RandomList, list_matching_ids, search_all_pages

VIP = {"field": "tag", "is": "vip"}


def test_member_search_falls_back_from_a_slow_index_to_a_limited_scan(
    random_list: RandomList, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "MAX_SHORT_SCAN_MEMBERS", 10)
    monkeypatch.setattr(searching, "MAX_LONG_SCAN_MEMBERS", 20)
    indexed_ids, _ = search_all_pages(random_list, VIP, None)
    slow_statement = text("SET LOCAL statement_timeout = 1; SELECT pg_sleep(60)")
    monkeypatch.setattr(searching, "_build_time_limit", lambda _seconds: slow_statement)
    scanned_ids, totals = search_all_pages(random_list, VIP, None)
    assert scanned_ids == indexed_ids == list_matching_ids(random_list, VIP)
    # Each page contains only the matches among at most 20 scanned members. With 25 matches on each
    # page, the search would return fewer pages.
    assert len(totals) > len(scanned_ids) / 25 + 3
    with random_list.stack.resources.unit_of_work() as uow:
        assert uow.session.scalar(text("SHOW statement_timeout")) == "10s"


def test_member_search_over_its_time_limit_is_rejected_as_too_slow(
    random_list: RandomList, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        MemberFilter, "build_condition", lambda *_, **__: func.pg_sleep(60).is_not(None)
    )
    with random_list.stack.resources.unit_of_work() as uow:
        criteria = member_filter.read_filter(uow, random_list.load(uow), VIP)
        uow.session.execute(text("SET LOCAL statement_timeout = '50ms'"))
        with pytest.raises(DomainError) as error:
            searching.search_members(uow, random_list.list_id, criteria, PageRequest(5))
    assert (error.value.kind, error.value.code) == (Kind.UNAVAILABLE, "filter.too_slow")
    assert error.value.retry_after


def test_filter_with_contradictory_statuses_finds_no_members(random_list: RandomList) -> None:
    contradictory_filter = {
        "all": [{"field": "status", "is": "active"}, {"field": "status", "is": "removed"}]
    }
    with random_list.stack.resources.unit_of_work() as uow:
        criteria = member_filter.read_filter(uow, random_list.load(uow), contradictory_filter)
        assert criteria.list_statuses() == ()
        result = searching.search_members(uow, random_list.list_id, criteria, PageRequest(5))
    assert (result.page.rows, result.page.next_cursor, result.total) == ([], None, 0)


def test_repeated_member_searches_keep_no_queries_in_memory(random_list: RandomList) -> None:
    def count_queries() -> int:
        gc.collect()
        return sum(type(each) is Select for each in gc.get_objects())

    # The first search fills the caches.
    search_all_pages(random_list, VIP, None)
    query_count = count_queries()
    for _ in range(3):
        search_all_pages(random_list, VIP, None)
    assert count_queries() == query_count
