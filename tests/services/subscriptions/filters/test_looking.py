import pytest
from sqlalchemy import func, text

from core.errors import DomainError, Kind
from services.paging import PageRequest
from services.subscriptions.filters import member_filter, searching
from services.subscriptions.filters.member_filter import MemberFilter
from tests.services.subscriptions.filters.conftest import Filled
from tests.services.subscriptions.filters.test_meaning import meant, walked

VIP = {"field": "tag", "is": "vip"}


def test_an_index_that_finds_too_much_is_given_up(
    filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "MAX_NEAR_MEMBERS", 10)
    monkeypatch.setattr(searching, "MAX_FAR_MEMBERS", 20)
    by_index, _ = walked(filled, VIP, None)
    stuck = text("SET LOCAL statement_timeout = 1; SELECT pg_sleep(60)")
    monkeypatch.setattr(searching, "_BRIEFLY", stuck)
    by_looking, totals = walked(filled, VIP, None)
    assert by_looking == by_index == meant(filled, VIP)
    # Pages end where so many were read, and lead on.
    assert len(totals) > len(by_looking) / 25 + 3
    with filled.stack.resources.unit_of_work() as uow:
        assert uow.session.scalar(text("SHOW statement_timeout")) == "10s"


def test_a_search_that_takes_too_long_is_refused(
    filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemberFilter, "condition", lambda *_, **__: func.pg_sleep(60).is_not(None))
    with filled.stack.resources.unit_of_work() as uow:
        wanted = member_filter.read(uow, filled.of(uow), VIP)
        uow.session.execute(text("SET LOCAL statement_timeout = '50ms'"))
        with pytest.raises(DomainError) as caught:
            searching.search(uow, filled.list_id, wanted, PageRequest(5))
    assert (caught.value.kind, caught.value.code) == (Kind.UNAVAILABLE, "filter.too_slow")
    assert caught.value.retry_after


def test_a_filter_that_no_status_meets_asks_nothing(filled: Filled) -> None:
    none = {"all": [{"field": "status", "is": "active"}, {"field": "status", "is": "removed"}]}
    with filled.stack.resources.unit_of_work() as uow:
        wanted = member_filter.read(uow, filled.of(uow), none)
        assert wanted.statuses() == ()
        found = searching.search(uow, filled.list_id, wanted, PageRequest(5))
    assert (found.page.rows, found.page.next_cursor, found.total) == ([], None, 0)
