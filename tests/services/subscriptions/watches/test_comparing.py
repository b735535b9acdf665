"""Tests of comparisons with many differences, of crashes, and of concurrent comparisons."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from devstack.harness.stack import Stack
from services.subscriptions.watches.comparing import MAX_SINGLE_EVENTS
from services.subscriptions.watches.difference import Difference
from tests.support.http.replies import data
from tests.support.imports.bulk import await_job, build_address_file, build_addresses, upload
from tests.support.lists.segments import ALL_MEMBERS_FILTER
from tests.support.lists.subscribers import insert_members, new_list
from tests.support.lists.watched_segments import WatchedSegment, watch_segment
from tests.support.sizes import sized

pytestmark = pytest.mark.stack

COMPARING = "services.subscriptions.watches.comparing"
MANY = MAX_SINGLE_EVENTS + 1


@pytest.fixture
def segment(stack: Stack, client: httpx2.Client) -> WatchedSegment:
    """A watched segment of all members, without members."""
    return watch_segment(stack, client, int(new_list(client)["id"]), ALL_MEMBERS_FILTER)


def count_changes(segment: WatchedSegment) -> Counter[Any]:
    """Count the changes of each member, and check that no page repeats or misses a change."""
    rows = segment.stack.query(
        "SELECT user_id, change FROM segment_changes WHERE watch_id = %s", segment.find_watch_id()
    )
    return Counter(rows)


def test_more_than_10000_changes_cause_one_event(segment: WatchedSegment) -> None:
    insert_members(segment.stack, segment.list_id, build_addresses(MANY))
    segment.compare()
    [event] = segment.list_events(1)
    assert (event["type"], event["subject"]) == (
        "segment.many",
        {"kind": "segment", "id": segment.id},
    )
    assert (event["data"]["entered"], event["data"]["left"]) == (MANY, 0)
    assert segment.read_watch()["members"] == MANY
    assert len(segment.list_changes(limit=1000)) == 1000
    assert list(count_changes(segment).values()) == [1] * MANY


def test_10000_changes_cause_an_event_each(segment: WatchedSegment) -> None:
    insert_members(segment.stack, segment.list_id, build_addresses(MAX_SINGLE_EVENTS))
    segment.compare()
    happenings = Counter(segment.list_happenings())
    assert happenings == {("entered", 1): MAX_SINGLE_EVENTS}


@pytest.mark.tier("fast", "faults")
@pytest.mark.parametrize("imports", [False, True])
def test_large_import_causes_at_most_one_event(segment: WatchedSegment, imports: bool) -> None:
    count = sized(MANY, 1_000_000)
    segment.change(watch={"imports": imports})
    file = build_address_file(*build_addresses(count))
    job = data(upload(segment.client, segment.list_id, file), 200, 202)
    assert await_job(segment.client, job["id"], within=3600)["status"] == "succeeded"
    segment.compare()
    assert segment.read_watch()["members"] == count
    assert [kind for kind, _ in segment.list_happenings()] == (["many"] if imports else [])


def test_many_changes_are_counted_once_after_crashes(
    segment: WatchedSegment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{COMPARING}.MAX_SINGLE_EVENTS", 100)
    monkeypatch.setattr(f"{COMPARING}.MAX_WRITE_ROWS", 50)
    insert_members(segment.stack, segment.list_id, build_addresses(500))
    write_range = Difference.write_range
    calls = 0

    def crash_at_every_third_call(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        written = write_range(*arguments, **options)
        if calls % 3 == 0:
            raise RuntimeError("crash before the commit")
        return written

    monkeypatch.setattr(Difference, "write_range", crash_at_every_third_call)
    crashes = 0
    while segment.read_watch()["members"] < 500 or not segment.list_events():
        try:
            segment.compare()
        except RuntimeError:
            crashes += 1
    assert crashes > 2
    [event] = segment.list_events()
    assert (event["data"]["entered"], event["data"]["left"]) == (500, 0)
    assert list(count_changes(segment).values()) == [1] * 500


def test_changed_filter_ends_the_comparison_in_progress(
    segment: WatchedSegment, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert_members(segment.stack, segment.list_id, build_addresses(3))
    write_ids = Difference.write_ids

    def find_and_change_filter(*arguments: Any) -> Any:
        monkeypatch.setattr(Difference, "find_differences", find_differences)
        differences = find_differences(*arguments)
        segment.change(filter={"not": ALL_MEMBERS_FILTER})
        return differences

    find_differences = Difference.find_differences
    monkeypatch.setattr(Difference, "find_differences", find_and_change_filter)
    segment.compare()
    assert (segment.read_watch()["members"], segment.list_events()) == (0, [])
    assert Difference.write_ids is write_ids
    segment.compare()
    assert (segment.read_watch()["members"], segment.list_events()) == (0, [])


def test_concurrent_comparisons_cause_each_event_once(segment: WatchedSegment) -> None:
    insert_members(segment.stack, segment.list_id, build_addresses(2_000))
    with ThreadPoolExecutor(4) as threads:
        for attempt in [threads.submit(segment.compare) for _ in range(4)]:
            attempt.result()
    assert Counter(segment.list_happenings()) == {("entered", 1): 2_000}


def test_statement_limit_makes_batches_smaller(
    segment: WatchedSegment, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert_members(segment.stack, segment.list_id, build_addresses(300))
    find_in_range = Difference.find_differences
    ranges: list[int] = []

    def find_slowly(self: Difference, uow: Any, after: int, upto: int) -> Any:
        members = self.read_members(uow, after, upto)
        ranges.append(members)
        if members > 150:
            uow.session.connection().exec_driver_sql("SELECT pg_sleep(10)")
        return find_in_range(self, uow, after, upto)

    monkeypatch.setattr(Difference, "find_differences", find_slowly)
    monkeypatch.setattr(f"{COMPARING}.MAX_READ_ROWS", 400)
    segment.compare()
    assert ranges[0] == 300
    assert max(ranges[1:]) <= 100
    assert len(segment.list_events()) == 300


def test_statement_limit_makes_written_batches_smaller(
    segment: WatchedSegment, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert_members(segment.stack, segment.list_id, build_addresses(300))
    write_ids = Difference.write_ids
    batches: list[int] = []

    def write_slowly(self: Difference, uow: Any, ids: Any) -> Any:
        batches.append(len(ids))
        if len(ids) > 150:
            uow.session.connection().exec_driver_sql("SELECT pg_sleep(10)")
        return write_ids(self, uow, ids)

    monkeypatch.setattr(Difference, "write_ids", write_slowly)
    monkeypatch.setattr(f"{COMPARING}.MAX_READ_ROWS", 400)
    segment.compare()
    assert batches == [300, 100, 100, 100]
    assert Counter(segment.list_happenings()) == {("entered", 1): 300}


def test_largest_entry_number_is_kept(segment: WatchedSegment) -> None:
    insert_members(segment.stack, segment.list_id, build_addresses(1))
    segment.compare()
    segment.stack.query(
        "UPDATE segment_members SET entry = 32767, is_in = false WHERE watch_id = %s",
        segment.find_watch_id(),
    )
    segment.compare_after(days=1)
    assert segment.list_happenings() == [("entered", 1), ("entered", 32767)]
