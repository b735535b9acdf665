from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, not_, select

from models import Subscription, SubscriptionStatus
from services.paging import PageRequest
from services.subscriptions.filters import member_filter, searching
from tests.services.subscriptions.filters.conftest import Filled
from tests.support.lists import random_filters as written
from tests.support.lists.filter_oracle import is_meant, names_status
from tests.support.sizes import sized

Json = dict[str, Any]
LIMIT = 25

pytestmark = pytest.mark.tier("fast", "properties")

examples = settings(
    max_examples=sized(150, 20_000, few=5),
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def meant(filled: Filled, sent: Json, status: str | None = None) -> list[int]:
    """Ids of whom the filter means, newest first."""
    asked = {status} if status else None
    if asked is None and not names_status(sent):
        asked = {"active"}
    found = [
        member.id
        for member in filled.members
        if (asked is None or member.status in asked) and is_meant(sent, member)
    ]
    return sorted(found, reverse=True)


@examples
@given(data=st.data())
def test_a_filter_finds_whom_it_means_and_no_other(filled: Filled, data: st.DataObject) -> None:
    sent = data.draw(written.filters(filled.import_ids))
    with filled.stack.resources.unit_of_work() as uow:
        wanted = member_filter.read(uow, filled.of(uow), sent)
        of_list = select(Subscription.id).where(Subscription.list_id == filled.list_id)
        query = of_list.where(wanted.condition()).order_by(Subscription.id.desc())
        assert list(uow.session.scalars(query)) == meant(filled, sent)
        indexed = wanted.indexed()
        if indexed is not None:
            # What an index answers leaves out no member.
            missed = query.where(not_(func.coalesce(indexed, False)))
            assert list(uow.session.scalars(missed)) == []


@settings(examples, max_examples=sized(60, 5_000, few=3))
@given(data=st.data())
def test_pages_pass_everybody_once_wherever_the_looking_ends(
    filled: Filled, data: st.DataObject
) -> None:
    sent = data.draw(written.filters(filled.import_ids))
    status = data.draw(st.none() | st.sampled_from(SubscriptionStatus))
    near = data.draw(st.sampled_from((30, 100, 1_000)))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(searching, "MAX_NEAR_MEMBERS", near)
        patched.setattr(searching, "MAX_FAR_MEMBERS", 2 * near)
        found, totals = walked(filled, sent, status)
    expected = meant(filled, sent, status)
    assert found == expected
    assert totals[0] in ({len(expected)} if near == 1_000 else {len(expected), None})
    assert set(totals[1:]) <= {None}


def walked(
    filled: Filled, sent: Json, status: SubscriptionStatus | None
) -> tuple[list[int], list[int | None]]:
    """The ids of all pages, and their totals."""
    ids: list[int] = []
    totals: list[int | None] = []
    cursor: str | None = None
    while not totals or cursor is not None:
        with filled.stack.resources.unit_of_work() as uow:
            mailing_list = filled.of(uow)
            wanted = member_filter.read(uow, mailing_list, sent)
            asked = PageRequest(LIMIT, cursor=cursor)
            page = searching.search(uow, mailing_list.id, wanted, asked, status)
        assert len(page.page.rows) <= LIMIT
        ids += [row["id"] for row in page.page.rows]
        totals.append(page.total)
        cursor = page.page.next_cursor
        assert len(totals) <= len(filled.members) + 1
    return ids, totals
