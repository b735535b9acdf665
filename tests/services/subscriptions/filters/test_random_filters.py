"""Tests that random member filters find the same members in SQL as in plain Python."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, not_, select

from models import Subscription, SubscriptionStatus
from services.subscriptions.filters import member_filter, searching
from tests.support.lists import random_filters as written
from tests.support.lists.random_list import RandomList, list_matching_ids, search_all_pages
from tests.support.sizes import sized

Json = dict[str, Any]

pytestmark = pytest.mark.tier("fast", "properties")

examples = settings(
    max_examples=sized(150, 20_000, few=5),
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@examples
@given(data=st.data())
def test_random_member_filter_finds_exactly_the_matching_members(
    random_list: RandomList, data: st.DataObject
) -> None:
    require_matches(random_list, data.draw(written.filters(random_list.import_ids)))


@pytest.mark.parametrize("operator", ["is", "contains", "begins", "exists"])
def test_filter_by_origin_finds_quotes_backslashes_and_wildcards(
    random_list: RandomList, operator: str
) -> None:
    """The database index stores origins as JSON text, with escaped quotes and backslashes."""
    operands = (True,) if operator == "exists" else written.ORIGINS
    for name in ("utm_source", "landing"):
        for operand in operands:
            require_matches(random_list, {"field": name, operator: operand})


@pytest.mark.parametrize("state", ["none", "soft", "hard"])
def test_filter_by_bounces_finds_the_members_with_each_state(
    random_list: RandomList, state: str
) -> None:
    require_matches(random_list, {"field": "bounced", "is": state})
    require_matches(random_list, {"field": "bounced", "is_not": state})


@pytest.mark.parametrize("name", ["joined_at", "created_at", "updated_at", "paid_expiry"])
def test_filter_by_time_finds_the_members_up_to_each_day(
    random_list: RandomList, name: str
) -> None:
    for moment in written.MOMENTS:
        require_matches(random_list, {"field": name, "at_most": moment.isoformat()})


def require_matches(random_list: RandomList, filter_: Json) -> None:
    with random_list.stack.resources.unit_of_work() as uow:
        criteria = member_filter.read_filter(uow, random_list.load(uow), filter_)
        members = select(Subscription.id).where(Subscription.list_id == random_list.list_id)
        query = members.where(criteria.build_condition()).order_by(Subscription.id.desc())
        assert list(uow.session.scalars(query)) == list_matching_ids(random_list, filter_)
        indexed_condition = criteria.build_indexed_condition()
        if indexed_condition is not None:
            # Each member that matches the filter must also match ``indexed_condition``.
            missed_members = query.where(not_(func.coalesce(indexed_condition, False)))
            assert list(uow.session.scalars(missed_members)) == []


@settings(examples, max_examples=sized(60, 5_000, few=3))
@given(data=st.data())
def test_filtered_member_pages_list_each_match_exactly_once_despite_scan_limits(
    random_list: RandomList, data: st.DataObject
) -> None:
    filter_ = data.draw(written.filters(random_list.import_ids))
    status = data.draw(st.none() | st.sampled_from(SubscriptionStatus))
    scan_limit = data.draw(st.sampled_from((30, 100, 1_000)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searching, "MAX_SHORT_SCAN_MEMBERS", scan_limit)
        patch.setattr(searching, "MAX_LONG_SCAN_MEMBERS", 2 * scan_limit)
        ids, totals = search_all_pages(random_list, filter_, status)
    expected = list_matching_ids(random_list, filter_, status)
    assert ids == expected
    assert totals[0] in ({len(expected)} if scan_limit == 1_000 else {len(expected), None})
    assert set(totals[1:]) <= {None}
