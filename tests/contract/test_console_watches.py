"""Tests of the console's pages on which an owner watches segments, and sees their changes."""

import re
from datetime import UTC, date, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest

from devstack.harness.stack import Stack
from tests.support.http.replies import data
from tests.support.imports.bulk import build_address_file, import_members_file
from tests.support.lists.segments import VIP, new_field, new_segment
from tests.support.lists.subscribers import new_address, new_list, require_member
from tests.support.lists.watched_segments import (
    WatchedSegment,
    put_member,
    tag,
    watch_segment,
)
from tests.support.people.consoles import (
    OwnerAtConsole,
    forms_of,
    heading,
    read_error,
    read_page,
    rows_of,
)
from tests.support.people.erasure import erase


@pytest.fixture
def segment(stack: Stack, console: OwnerAtConsole) -> WatchedSegment:
    """A segment that isn't watched yet."""
    list_id = int(new_list(console.api)["id"])
    return WatchedSegment(stack, console.api, list_id, new_segment(console.api, list_id)["id"])


def find_form(console: OwnerAtConsole, segment: WatchedSegment) -> int:
    forms = forms_of(console.visitor.get(f"/console{segment.path}"))
    return [action for action, _ in forms].index(f"/console{segment.path}/watch")


def test_owner_watches_a_segment_and_sees_its_members(
    console: OwnerAtConsole, segment: WatchedSegment
) -> None:
    path = f"/console{segment.path}"
    form = find_form(console, segment)
    console.send(path, form, time_zone="Europe/Berlin", hour="7", imports="on")
    watch = segment.read_watch()
    assert (watch["time_zone"], watch["hour"], watch["imports"]) == ("Europe/Berlin", 7, True)
    put_member(segment, tags=["vip"])
    segment.compare()
    text = console.see(path)
    assert "Recorded members" in text
    assert "Working" in text
    console.send(path, form, ("imports",), hour="0")
    watch = segment.read_watch()
    assert (watch["time_zone"], watch["hour"], watch["imports"]) == ("Europe/Berlin", 0, False)
    console.send(path, form, stop="yes")
    items = data(console.api.get(f"/lists/{segment.list_id}/segments"))["items"]
    assert [each["watch"] for each in items] == [None]


def test_form_names_an_unknown_time_zone(console: OwnerAtConsole, segment: WatchedSegment) -> None:
    path = f"/console{segment.path}"
    reply = console.send(path, find_form(console, segment), time_zone="Berlin")
    text = read_page(reply, 422)
    assert "IANA" in read_error(text, "time_zone")
    assert 'value="Berlin"' in text


def test_page_explains_why_the_watch_is_paused(
    stack: Stack, console: OwnerAtConsole, segment: WatchedSegment
) -> None:
    segment.change(watch={})
    stack.query(
        "UPDATE segment_watches SET pause_reason = 'quota_full', due_at = now() + interval '1 day'"
        " WHERE segment_id = %s",
        segment.id,
    )
    assert "The storage of your plan is used up." in console.see(f"/console{segment.path}")


@pytest.fixture
def watched(stack: Stack, console: OwnerAtConsole) -> WatchedSegment:
    return watch_segment(stack, console.api, int(new_list(console.api)["id"]))


def age_member(segment: WatchedSegment, email: str, days: int) -> None:
    segment.stack.query(
        "UPDATE subscriptions SET created_at = now() - %s * interval '1 day'"
        " WHERE list_id = %s AND email = %s",
        days,
        segment.list_id,
        email,
    )


def add_member(segment: WatchedSegment, days: int, **values: Any) -> None:
    """Create a member without an import, who joined this many days ago."""
    age_member(segment, put_member(segment, **values), days)


def read_preview(console: OwnerAtConsole, segment: WatchedSegment) -> str:
    """Return the text with the exact count. Without ``count``, a slow machine counts too few."""
    text = console.see(f"/console{segment.path}", count="entries")
    found = re.search(r'<p class="total" id="entries".*?>(.*?)</p>', text, re.DOTALL)
    return " ".join(re.sub("<[^>]+>", "", found[1]).split()) if found else ""


def test_form_counts_members_who_would_have_entered_by_a_date(
    console: OwnerAtConsole, segment: WatchedSegment
) -> None:
    segment.change(filter={"field": "joined_at", "at_most": {"days_ago": 30}})
    for days in (29, 30, 36, 37):
        add_member(segment, days)
    assert read_preview(console, segment) == "2 members would have entered in the last 7 days."
    segment.change(watch={})
    assert read_preview(console, segment) == ""


def test_form_counts_the_birthdays_of_each_of_the_last_days(
    console: OwnerAtConsole, segment: WatchedSegment
) -> None:
    new_field(console.api, "birthday", "date")
    today = datetime.now(UTC).date()
    for days in (-1, 0, 3, 6, 7):
        day = today - timedelta(days=days)
        birthday = date(1996, day.month, day.day).isoformat()
        add_member(segment, 20, fields={"birthday": birthday})
    # This member joined after the birthday.
    day = today - timedelta(days=5)
    add_member(segment, 2, fields={"birthday": date(1996, day.month, day.day).isoformat()})
    segment.change(filter={"field": "fields.birthday", "anniversary": 0})
    assert read_preview(console, segment) == "3 members would have entered in the last 7 days."


def test_form_counts_new_members_but_neither_imported_nor_older_ones(
    console: OwnerAtConsole, segment: WatchedSegment
) -> None:
    segment.change(filter={"field": "email", "exists": True})
    for days in (0, 6, 7):
        add_member(segment, days)
    put_member(segment, email_enabled=True)
    import_members_file(console.api, segment.list_id, build_address_file(new_address()))
    assert read_preview(console, segment) == "3 members would have entered in the last 7 days."


def test_form_shows_no_number_for_a_large_filter_with_dates(
    console: OwnerAtConsole, segment: WatchedSegment
) -> None:
    is_named = {"field": "name", "in": [f"Ada {number}" for number in range(50)]}
    is_old = {"field": "joined_at", "at_most": {"days_ago": 30}}
    for written, is_counted in ((is_named, True), ({"any": [is_named, is_old]}, False)):
        segment.change(filter=written)
        assert bool(read_preview(console, segment)) == is_counted


def test_page_lists_changes_newest_first_without_a_link_to_erased_people(
    stack: Stack, console: OwnerAtConsole, watched: WatchedSegment
) -> None:
    path = f"/console{watched.path}"
    assert "No changes yet" in console.see(f"{path}/changes")
    ada, ben = [put_member(watched, tags=["vip"]) for _ in range(2)]
    watched.compare()
    tag(watched, ada, has_tag=False)
    watched.compare()
    erase(stack.resources, ben)
    text = console.see(f"{path}/changes")
    today = datetime.now(UTC).date()
    assert [row[:3] for row in rows_of(text)[1:]] == [
        [ada, "Left", "1"],
        ["Deleted member", "Entered", "1"],
        [ada, "Entered", "1"],
    ]
    assert {row[3] for row in rows_of(text)[1:]} == {f"{today.day} {today:%b %Y}"}
    user_id = require_member(console.api, watched.list_id, ada)["user_id"]
    assert text.count(f"/lists/{watched.list_id}/members/") == 2
    assert f'/lists/{watched.list_id}/members/{user_id}"' in text
    assert f'{path}/changes"' in console.see(path)


def test_list_of_changes_has_pages(console: OwnerAtConsole, watched: WatchedSegment) -> None:
    email = put_member(watched)
    watched.stack.query(
        "INSERT INTO segment_changes (watch_id, user_id, change, entry, day)"
        " SELECT %s, %s, 'entered', number, CURRENT_DATE FROM generate_series(1, 51) AS number",
        watched.find_watch_id(),
        require_member(console.api, watched.list_id, email)["user_id"],
    )
    path = f"/console{watched.path}/changes"
    text = console.see(path)
    assert [row[2] for row in rows_of(text)[1:]] == [str(51 - number) for number in range(50)]
    cursor = re.search(r"cursor=(\d+)", text)
    assert cursor
    text = console.see(path, cursor=cursor[1])
    assert [row[2] for row in rows_of(text)[1:]] == ["1"]
    assert "Next page" not in text


def test_changed_filter_of_a_watched_segment_must_be_confirmed(
    console: OwnerAtConsole, watched: WatchedSegment
) -> None:
    path = f"/console{watched.path}"
    assert "the watch restarts" in console.see(path)
    console.do(path, name="Best readers")
    reply = console.send(path, **{"name": "Patrons", "value.0.0": "patron"})
    text = read_page(reply)
    assert heading(text) == "Change the filter of Best readers?"
    assert read_segment(watched)["filter"] == VIP
    [(action, values)] = forms_of(reply)
    assert action == path
    reply = console.visitor.client.post(action, data=values)
    assert reply.status_code == 303
    changed = read_segment(watched)
    assert (changed["name"], changed["filter"]) == ("Patrons", {"field": "tag", "is": "patron"})


def test_changed_filter_of_an_unwatched_segment_needs_no_confirmation(
    console: OwnerAtConsole, segment: WatchedSegment
) -> None:
    path = f"/console{segment.path}"
    assert "the watch restarts" not in console.see(path)
    console.do(path, **{"value.0.0": "patron"})
    assert read_segment(segment)["filter"] == {"field": "tag", "is": "patron"}


def read_segment(segment: WatchedSegment) -> dict[str, Any]:
    return dict(data(segment.client.get(segment.path)))


def test_bulk_tag_that_a_watched_segment_uses_must_be_confirmed(
    console: OwnerAtConsole, watched: WatchedSegment
) -> None:
    new_segment(console.api, watched.list_id, name="Not watched")
    email = put_member(watched)
    put_member(watched)
    path = f"/console/lists/{watched.list_id}/bulk-actions/new?q={quote(email)}"
    reply = console.send(path, action="tag", tag_name="VIP")
    text = read_page(reply)
    assert heading(text) == "Add the tag VIP?"
    assert "“<bdi>VIPs</bdi>”" in text
    assert "Not watched" not in text
    assert data(console.api.get("/jobs"))["items"] == []
    [(action, values)] = forms_of(reply)
    assert action == path
    reply = console.visitor.client.post(action, data=values)
    assert reply.status_code == 303
    watched_page = console.visitor.client.get(reply.headers["location"])
    assert "Add the tag “vip”" in watched_page.text
    [job] = data(console.api.get("/jobs"))["items"]
    assert job["kind"] == "members.bulk"


@pytest.mark.parametrize(
    ("action", "tag_name"), [("tag", "patron"), ("tag", "new"), ("untag", "vip")]
)
def test_other_bulk_actions_need_no_confirmation(
    console: OwnerAtConsole, watched: WatchedSegment, action: str, tag_name: str
) -> None:
    new_segment(console.api, watched.list_id, {"field": "tag", "is": "patron"}, "Patrons")
    path = f"/console/lists/{watched.list_id}/bulk-actions/new"
    put_member(watched)
    assert console.send(path, action=action, tag_name=tag_name).status_code == 303


def test_lists_and_deletions_name_watched_segments(
    stack: Stack, console: OwnerAtConsole, watched: WatchedSegment
) -> None:
    new_segment(console.api, watched.list_id, name="Not watched")
    path = f"/console/lists/{watched.list_id}"

    def list_names() -> list[str]:
        return [row[0] for row in rows_of(console.see(f"{path}/segments"))[1:]]

    assert list_names() == ["Not watched", "VIPs Watched"]
    [tag_id] = [each["id"] for each in data(console.api.get(f"{path[8:]}/tags"))["items"]]
    text = console.see(f"{path}/tags/{tag_id}/delete")
    assert "“<bdi>VIPs</bdi>”" in text
    assert "Not watched" not in text
    assert "Pressroom stops watching the segment" in console.see(f"{path}/segments/{watched.id}")
    stack.query(
        "UPDATE segment_watches SET pause_reason = 'quota_full', due_at = now() + interval '1 day'"
        " WHERE segment_id = %s",
        watched.id,
    )
    assert list_names() == ["Not watched", "VIPs Paused"]
