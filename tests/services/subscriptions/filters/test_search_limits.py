"""The limits of a member search: how many members it reads for one page, and how long it runs."""

import pytest
from sqlalchemy import func, text

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
    by_index, _ = search_all_pages(random_list, VIP, None)
    stuck = text("SET LOCAL statement_timeout = 1; SELECT pg_sleep(60)")
    monkeypatch.setattr(searching, "_build_time_limit", lambda _seconds: stuck)
    by_looking, totals = search_all_pages(random_list, VIP, None)
    assert by_looking == by_index == list_matching_ids(random_list, VIP)
    # Pages end where so many were read, and lead on.
    assert len(totals) > len(by_looking) / 25 + 3
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
        with pytest.raises(DomainError) as caught:
            searching.search_members(uow, random_list.list_id, criteria, PageRequest(5))
    assert (caught.value.kind, caught.value.code) == (Kind.UNAVAILABLE, "filter.too_slow")
    assert caught.value.retry_after


def test_filter_with_contradictory_statuses_finds_no_members(random_list: RandomList) -> None:
    none = {"all": [{"field": "status", "is": "active"}, {"field": "status", "is": "removed"}]}
    with random_list.stack.resources.unit_of_work() as uow:
        criteria = member_filter.read_filter(uow, random_list.load(uow), none)
        assert criteria.list_statuses() == ()
        result = searching.search_members(uow, random_list.list_id, criteria, PageRequest(5))
    assert (result.page.rows, result.page.next_cursor, result.total) == ([], None, 0)
