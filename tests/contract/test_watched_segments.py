"""Tests of watched segments: their settings, comparisons, events and changes."""

from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from typing import Any

import httpx2
import pytest

from devstack.harness.stack import Stack
from tests.support.http.replies import data, problem
from tests.support.lists.segments import VIP, new_segment, set_member
from tests.support.lists.subscribers import Reader, new_list, require_member
from tests.support.lists.watched_segments import Watch, put_member, tag, watch_segment
from tests.support.people.erasure import erase
from tests.support.stack.maintenance import run_maintenance


def test_watch_has_defaults_and_changes_one_setting_at_a_time(watch: Watch) -> None:
    segment = watch()
    read = segment.read_watch()
    assert read.pop("compared_at") is not None
    expected = {"time_zone": "UTC", "hour": 0, "imports": False, "state": "working", "reason": None}
    assert read == {**expected, "members": 0}
    changed = segment.change(watch={"time_zone": "Europe/Berlin", "hour": 7})
    assert changed["watch"] == {**segment.read_watch(), "time_zone": "Europe/Berlin", "hour": 7}
    assert segment.change(watch={"imports": True})["watch"] == {
        **segment.read_watch(),
        "time_zone": "Europe/Berlin",
        "imports": True,
    }
    [listed] = data(segment.client.get(f"/lists/{segment.list_id}/segments"))["items"]
    assert listed["watch"] == segment.read_watch()


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"time_zone": "Berlin"}, "segment.time_zone"),
        ({"time_zone": "../etc"}, "segment.time_zone"),
        ({"hour": 24}, "body.invalid"),
        ({"hour": -1}, "body.invalid"),
    ],
)
def test_watch_refuses_invalid_settings(
    client: httpx2.Client, list_id: int, settings: dict[str, Any], code: str
) -> None:
    segment_id = new_segment(client, list_id)["id"]
    path = f"/lists/{list_id}/segments/{segment_id}"
    problem(client.patch(path, json={"watch": settings}), 422, code)
    assert data(client.get(path))["watch"] is None


def test_account_watches_at_most_20_segments(client: httpx2.Client, list_id: int) -> None:
    other_id = new_list(client)["id"]
    for number in range(21):
        path_list = other_id if number % 2 else list_id
        segment_id = new_segment(client, path_list, name=f"S{number}")["id"]
        reply = client.patch(f"/lists/{path_list}/segments/{segment_id}", json={"watch": {}})
        if number < 20:
            data(reply)
    problem(reply, 409, "segment.too_many_watched")


def test_worker_compares_a_new_watch_by_itself(stack: Stack, watch: Watch) -> None:
    segment = watch()
    email = put_member(segment, tags=["vip"])
    segment.change(watch={})
    run_maintenance(stack, "segments.compare")
    [event] = segment.list_events(1)
    member = require_member(segment.client, segment.list_id, email)
    assert event["type"] == "segment.entered"
    assert event["list_id"] == segment.list_id
    assert event["subject"]["kind"] == "subscription"
    assert event["data"] == {
        "segment_id": segment.id,
        "segment": "VIPs",
        "user_id": member["user_id"],
        "entry": 1,
        "day": datetime.now(UTC).date().isoformat(),
        "status": "active",
        "email_enabled": True,
        "email": email,
        "name": None,
    }


def test_leaving_member_causes_an_exit(watch: Watch, make_reader: Callable[[], Reader]) -> None:
    segment = watch({"field": "email", "exists": True})
    reader = make_reader().joins(segment.list_id)
    segment.compare()
    assert segment.read_watch()["members"] == 1
    reader.leaves(segment.list_id)
    segment.compare()
    entered, left = segment.list_events(2)
    assert (entered["type"], left["type"]) == ("segment.entered", "segment.left")
    assert (left["data"]["status"], left["data"]["email"]) == ("unsubscribed", reader.email)
    assert segment.read_watch()["members"] == 0


def test_changes_are_listed_with_current_names_oldest_first(watch: Watch) -> None:
    segment = watch()
    email = put_member(segment, tags=["vip"], name="Ada")
    segment.compare()
    set_member(segment.client, segment.list_id, email, name="Ada L.")
    tag(segment, email, has_tag=False)
    segment.compare()
    first, second = segment.list_changes()
    assert (first["change"], first["entry"], first["name"]) == ("entered", 1, "Ada L.")
    assert (second["change"], second["email"]) == ("left", email)
    path = f"{segment.path}/changes"
    page = data(segment.client.get(path, params={"limit": 1}))
    assert page["items"] == [first]
    cursor = page["pagination"]["next_cursor"]
    page = data(segment.client.get(path, params={"limit": 1, "cursor": cursor}))
    assert (page["items"], page["pagination"]["next_cursor"]) == ([second], None)


def test_five_returns_on_one_day_cause_one_event_of_each_type(watch: Watch) -> None:
    segment = watch()
    email = put_member(segment)
    for _ in range(5):
        for has_tag in (True, False):
            tag(segment, email, has_tag=has_tag)
            segment.compare()
    assert segment.list_happenings() == [("entered", 1), ("left", 1)]
    tag(segment, email)
    segment.compare()
    assert segment.read_watch()["members"] == 0
    segment.compare_after(days=1)
    assert segment.list_happenings() == [("entered", 1), ("left", 1), ("entered", 2)]
    segment.compare_after(days=2)
    assert len(segment.list_events()) == 3


def test_missing_exit_follows_on_the_next_day(watch: Watch) -> None:
    segment = watch()
    email = put_member(segment, tags=["vip"])
    segment.compare()
    tag(segment, email, has_tag=False)
    segment.compare()
    segment.compare_after(days=1)
    tag(segment, email)
    segment.compare_after(days=1, minutes=15)
    tag(segment, email, has_tag=False)
    segment.compare_after(days=1, minutes=30)
    tag(segment, email)
    segment.compare_after(days=1, minutes=45)
    tag(segment, email, has_tag=False)
    segment.compare_after(days=1, minutes=60)
    assert segment.list_happenings() == [("entered", 1), ("left", 1), ("entered", 2), ("left", 2)]


RECORDS = "SELECT 1 FROM segment_members WHERE user_id = %s"


def test_erasure_deletes_the_records_and_the_names_but_causes_no_exit(
    stack: Stack, watch: Watch, make_reader: Callable[[], Reader]
) -> None:
    segment = watch({"field": "email", "exists": True})
    reader = make_reader().joins(segment.list_id)
    segment.compare()
    assert len(stack.query(RECORDS, reader.user_id)) == 1
    erase(stack.resources, reader.email)
    assert stack.query(RECORDS, reader.user_id) == []
    assert segment.read_watch()["members"] == 0
    segment.compare()
    [change] = segment.list_changes()
    assert (change["change"], change["email"], change["name"]) == ("entered", None, None)
    assert segment.list_happenings() == [("entered", 1)]


def test_comparison_during_an_erasure_causes_no_event(
    stack: Stack, watch: Watch, make_reader: Callable[[], Reader]
) -> None:
    segment = watch({"field": "email", "exists": True})
    entered, entering = make_reader().joins(segment.list_id), make_reader()
    segment.compare()
    entering.joins(segment.list_id)
    for person in (entered, entering):
        stack.query("UPDATE users SET erased_at = now() WHERE id = %s", person.user_id)
    stack.query("UPDATE subscriptions SET status = 'removed' WHERE user_id = %s", entered.user_id)
    segment.compare()
    assert segment.list_happenings() == [("entered", 1)]
    assert segment.read_watch()["members"] == 0
    assert stack.query(RECORDS, entered.user_id) == []


def test_upkeep_deletes_the_records_of_erased_people(
    stack: Stack, watch: Watch, make_reader: Callable[[], Reader]
) -> None:
    segment = watch({"field": "email", "exists": True})
    reader = make_reader().joins(segment.list_id)
    segment.compare()
    stack.query("UPDATE users SET erased_at = now() WHERE id = %s", reader.user_id)
    run_maintenance(stack, "segments.upkeep")
    assert stack.query(RECORDS, reader.user_id) == []
    assert segment.read_watch()["members"] == 0


def test_stopped_watch_forgets_its_members(stack: Stack, watch: Watch) -> None:
    segment = watch()
    email = put_member(segment, tags=["vip"])
    segment.compare()
    watch_id = segment.find_watch_id()
    used = data(segment.client.get("/users/me"))["quotas"]["storage_mb"]["used"]
    assert segment.change(watch=None)["watch"] is None
    assert segment.list_changes() == []
    run_maintenance(stack, "segments.upkeep")
    for table in ("segment_members", "segment_changes"):
        assert stack.query(f"SELECT 1 FROM {table} WHERE watch_id = %s", watch_id) == []
    assert data(segment.client.get("/users/me"))["quotas"]["storage_mb"]["used"] <= used
    segment.change(watch={})
    segment.compare()
    tag(segment, email, has_tag=False)
    segment.compare()
    assert segment.list_happenings() == [("entered", 1), ("left", 1)]


def test_deleted_segment_and_archived_list_end_the_watch(stack: Stack, watch: Watch) -> None:
    segment = watch()
    data(segment.client.delete(segment.path))
    assert stack.query("SELECT 1 FROM segment_watches WHERE segment_id = %s", segment.id) == []
    other = watch()
    data(other.client.delete(f"/lists/{other.list_id}"))
    run_maintenance(stack, "segments.upkeep")
    assert stack.query("SELECT 1 FROM segment_watches WHERE segment_id = %s", other.id) == []


def test_transfer_is_an_exit_on_one_list_and_an_entry_on_the_other(
    stack: Stack, client: httpx2.Client, list_id: int
) -> None:
    everyone = {"field": "email", "exists": True}
    source = watch_segment(stack, client, list_id, everyone)
    target = watch_segment(stack, client, new_list(client)["id"], everyone)
    email = put_member(source)
    source.compare()
    user_id = require_member(client, list_id, email)["user_id"]
    path = f"/subscriptions/{list_id}/members/{user_id}/transfer"
    data(client.post(path, params={"dst_list_id": target.list_id}))
    source.compare()
    target.compare()
    assert source.list_happenings() == [("entered", 1), ("left", 1)]
    assert target.list_happenings() == [("entered", 1)]


def test_relative_date_counts_from_the_segments_day(watch: Watch) -> None:
    segment = watch({"field": "joined_at", "at_most": {"days_ago": 2}})
    put_member(segment)
    segment.compare_after(days=1)
    assert segment.list_events() == []
    now = segment.compare_after(days=2)
    [event] = segment.list_events()
    assert event["data"]["day"] == now.date().isoformat()


def test_segment_is_compared_when_its_day_begins(watch: Watch) -> None:
    segment = watch({"field": "joined_at", "is": {"days_ago": 1}}, hour=5)
    put_member(segment)
    tomorrow = datetime.now(UTC).date() + timedelta(days=1)
    day_start = datetime.combine(tomorrow, time(5), UTC)
    segment.compare(day_start - timedelta(minutes=1))
    segment.compare(day_start - timedelta(seconds=1))
    assert segment.list_events() == []
    segment.compare(day_start)
    [event] = segment.list_events()
    assert event["data"]["day"] == tomorrow.isoformat()


def test_day_follows_the_time_zone(watch: Watch) -> None:
    segment = watch(time_zone="Pacific/Kiritimati", hour=2)
    put_member(segment, tags=["vip"])
    segment.compare()
    [event] = segment.list_events()
    # The local time is 14 hours ahead of UTC, and the day begins at 2.
    assert event["data"]["day"] == (datetime.now(UTC) + timedelta(hours=12)).date().isoformat()


def test_retired_field_pauses_the_watch_with_one_mail(stack: Stack, watch: Watch) -> None:
    segment = watch()
    field = data(
        segment.client.post("/fields", json={"key": "city", "label": "City", "type": "text"})
    )
    segment.change(filter={"field": "fields.city", "is": "Rome"})
    segment.compare()
    data(segment.client.delete(f"/fields/{field['id']}"))
    segment.compare()
    segment.compare()
    read = segment.read_watch()
    assert (read["state"], read["reason"]) == ("paused", "field_retired")
    rows = stack.query(
        "SELECT m.detail FROM account_mails AS m JOIN lists AS l ON l.user_id = m.user_id"
        " WHERE l.id = %s AND m.kind = 'segment_paused'",
        segment.list_id,
    )
    assert len(rows) == 1
    assert "“VIPs”" in str(rows[0][0])
    segment.change(filter=VIP)
    segment.compare()
    assert segment.read_watch()["state"] == "working"


def test_full_quota_pauses_the_watch_and_it_continues_afterwards(
    stack: Stack, watch: Watch
) -> None:
    segment = watch()
    put_member(segment, tags=["vip"])
    owner_id = "(SELECT user_id FROM lists WHERE id = %s)"
    change = f"UPDATE storage_uses SET bytes = bytes + %s WHERE user_id = {owner_id}"
    stack.query(change, 2**40, segment.list_id)
    stack.query(f"UPDATE users SET plan = 'free' WHERE id = {owner_id}", segment.list_id)
    segment.compare()
    read = segment.read_watch()
    assert (read["state"], read["reason"], read["members"]) == ("paused", "quota_full", 0)
    assert segment.list_events() == []
    stack.query(change, -(2**40), segment.list_id)
    segment.compare_after(minutes=70)
    assert segment.list_happenings() == [("entered", 1)]
    assert segment.read_watch()["state"] == "working"


def test_slow_filter_pauses_the_watch(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    segment = watch()
    put_member(segment, tags=["vip"])
    monkeypatch.setattr("services.subscriptions.watches.comparing.MAX_CPU_SECONDS", 1e-9)
    segment.compare()
    assert (segment.read_watch()["reason"], segment.list_events()) == ("too_slow", [])


def test_recorded_members_count_100_bytes_each(stack: Stack, watch: Watch) -> None:
    segment = watch()
    query = "SELECT bytes FROM storage_uses AS s JOIN lists AS l USING (user_id) WHERE l.id = %s"
    [(before,)] = stack.query(query, segment.list_id)
    put_member(segment, tags=["vip"])
    segment.compare()
    assert stack.query(query, segment.list_id) == [(int(str(before)) + 100,)]
    segment.change(watch=None)
    assert stack.query(query, segment.list_id) == [(before,)]


def test_missed_days_are_compared_in_order(watch: Watch) -> None:
    field = {"field": "joined_at", "is": {"days_ago": 2}}
    segment = watch(field)
    put_member(segment)
    today = datetime.now(UTC).date()
    segment.compare_after(days=4)
    days = [(each["type"], each["data"]["day"]) for each in segment.list_events()]
    assert days == [
        ("segment.entered", str(today + timedelta(days=2))),
        ("segment.left", str(today + timedelta(days=3))),
    ]


def test_days_before_the_last_three_missed_days_are_skipped(watch: Watch) -> None:
    segment = watch({"field": "joined_at", "is": {"days_ago": 1}})
    put_member(segment)
    segment.compare_after(days=5)
    assert segment.list_events() == []
