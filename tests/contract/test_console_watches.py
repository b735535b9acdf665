"""Tests of the form on a segment's page with which the owner watches the segment."""

import pytest

from devstack.harness.stack import Stack
from tests.support.http.replies import data
from tests.support.lists.segments import new_segment
from tests.support.lists.subscribers import new_list
from tests.support.lists.watched_segments import WatchedSegment, put_member
from tests.support.people.consoles import OwnerAtConsole, forms_of, read_error, read_page


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
