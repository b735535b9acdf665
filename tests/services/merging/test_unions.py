"""Random pairs of records, merged by the product and by the rules in plain Python."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from services.mailing import member_figures
from services.merging import merge_stages, merged_lists
from tests.importing import Importing
from tests.merging import agree, merge
from tests.services.merging.lives import NOTHING, Had, found, live, new_people, refused, rows_of
from tests.sizes import FULL, sized
from tests.stack import Owner

_BEGINNING = datetime(2025, 1, 1, tzinfo=UTC)
_DAYS = st.integers(0, 300).map(lambda days: _BEGINNING + timedelta(days=days))
_EXPIRIES = st.sampled_from([None, _BEGINNING, _BEGINNING + timedelta(days=900)])
_TIERS = ("free", "silver", "gold")


@st.composite
def lives(draw: st.DrawFn) -> Had:
    status = draw(st.sampled_from([None, "active", "active", "pending", "unsubscribed", "removed"]))
    no = set(draw(st.sets(st.sampled_from(["list", "email"]))))
    if status == "active":
        no.discard("list")
    if status == "unsubscribed":
        no.add("list")
    return Had(
        status=status,
        tier=draw(st.sampled_from(_TIERS)),
        paid_expiry=draw(_EXPIRIES),
        email_enabled="email" not in no and draw(st.sampled_from([True, True, False])),
        name=draw(st.sampled_from([None, "Ada", "Bea"])),
        fields=tuple(draw(st.dictionaries(st.sampled_from("123"), st.sampled_from("xy"))).items()),
        tags=frozenset(draw(st.sets(st.integers(1, 5)))),
        created_at=draw(_DAYS),
        joined_at=draw(st.none() | _DAYS),
        refused=frozenset(no),
    )


def joined(had: Had) -> float:
    moment = had.joined_at or had.created_at
    assert moment is not None
    return moment.timestamp()


def after(own: Had, other: Had, own_email: str, other_email: str) -> dict[str, Any] | None:
    """The one record that the list has in the end."""
    there = [each for each in (own, other) if each.status is not None]
    if not there:
        return None
    no = own.refused | other.refused
    living = [each for each in there if each.status != "removed"] or there
    statuses = {each.status for each in living}
    wants_none = "list" in no or "unsubscribed" in statuses
    if "active" in statuses and not wants_none:
        status = "active"
    elif "pending" in statuses:
        status = "pending"
    else:
        status = "removed" if statuses == {"removed"} else "unsubscribed"
    names = [each.name for each in there if each.name]
    expiries = [each.paid_expiry for each in living if each.paid_expiry]
    for_ever = any(each.tier != "free" and not each.paid_expiry for each in living)
    values: dict[str, str] = {}
    for each in reversed(there):
        values |= dict(each.fields)
    return {
        "status": status,
        "email_enabled": "email" not in no and all(each.email_enabled for each in living),
        "tier": max((each.tier for each in living), key=_TIERS.index),
        "paid_expiry": None if for_ever or not expiries else max(expiries).timestamp(),
        "name": names[0] if names else None,
        "email": own_email if living[0] is own else other_email,
        "fields": values,
        "tags": sorted(set().union(*(each.tags for each in there))),
        "joined": min(map(joined, there)),
    }


BOTH = frozenset({"list", "email"})
MEMBER = Had(status="active", created_at=_BEGINNING)
PAIRS = st.lists(st.tuples(lives(), lives()), min_size=1, max_size=5)


@pytest.mark.both("properties")
def test_any_two_records_become_what_the_rules_say(
    quiet: Importing, keeper: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that a merge takes several batches.
    monkeypatch.setattr(merged_lists, "MAX_LISTS", 2)
    monkeypatch.setattr(merge_stages, "MAX_MOVED_ROWS", 2)

    @settings(
        max_examples=sized(12, 300, few=2),
        deadline=None,
        derandomize=not FULL,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(PAIRS)
    # The other record's first list has as many opt-outs as a batch has lists.
    @example([(NOTHING, Had(refused=BOTH)), (MEMBER, Had(refused=frozenset({"list"})))])
    def compare(pairs: list[tuple[Had, Had]]) -> None:
        user_id, other_id, own_email, other_email = new_people(quiet)
        # Batches come in the order of ids, which are random.
        list_ids = sorted(quiet.new_list(keeper) for _ in pairs)
        for list_id, (own, other) in zip(list_ids, pairs, strict=True):
            live(quiet, list_id, user_id, own)
            live(quiet, list_id, other_id, other)
        merge_id = agree(quiet.resources, user_id, other_email)
        assert merge(quiet.stack, merge_id).result == {"merged": True}
        for list_id, (own, other) in zip(list_ids, pairs, strict=True):
            expected = after(own, other, own_email, other_email)
            shown = found(quiet, list_id)
            assert shown == ([] if expected is None else [expected | {"user_id": user_id}])
            assert refused(quiet, list_id, user_id) == own.refused | other.refused
            active = [each for each in shown if each["status"] == "active"]
            assert quiet.count(list_id) == len(active)
        assert rows_of(quiet, other_id) == {}

    compare()
    assert member_figures.verify(quiet.resources) == []


def test_a_no_without_a_record_is_kept_too(quiet: Importing, keeper: Owner) -> None:
    user_id, other_id, _, other_email = new_people(quiet)
    list_id = quiet.new_list(keeper)
    live(quiet, list_id, user_id, NOTHING)
    live(quiet, list_id, other_id, Had(refused=frozenset({"list", "email"})))
    merge(quiet.stack, agree(quiet.resources, user_id, other_email))
    assert refused(quiet, list_id, user_id) == {"list", "email"}
    assert found(quiet, list_id) == []
