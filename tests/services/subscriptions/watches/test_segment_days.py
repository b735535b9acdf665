"""Tests of the days of watched segments, around changes of the clocks."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from services.subscriptions.watches.segment_days import find_day_start, find_segment_day

BERLIN = "Europe/Berlin"
NEW_YORK = "America/New_York"
# The clocks change at midnight.
SANTIAGO = "America/Santiago"
# The clocks change by half an hour.
LORD_HOWE = "Australia/Lord_Howe"


@pytest.mark.parametrize(
    ("zone", "day", "hour", "expected"),
    [
        (BERLIN, "2026-03-29", 0, "2026-03-28T23:00"),
        (BERLIN, "2026-03-29", 2, "2026-03-29T01:00"),
        (BERLIN, "2026-10-25", 0, "2026-10-24T22:00"),
        (BERLIN, "2026-10-25", 2, "2026-10-25T00:00"),
        (NEW_YORK, "2026-03-08", 0, "2026-03-08T05:00"),
        (NEW_YORK, "2026-03-08", 2, "2026-03-08T07:00"),
        (NEW_YORK, "2026-11-01", 0, "2026-11-01T04:00"),
        (NEW_YORK, "2026-11-01", 2, "2026-11-01T07:00"),
        (SANTIAGO, "2026-09-06", 0, "2026-09-06T04:00"),
        (SANTIAGO, "2026-09-06", 2, "2026-09-06T05:00"),
        (SANTIAGO, "2026-04-05", 0, "2026-04-05T04:00"),
        (SANTIAGO, "2026-04-05", 2, "2026-04-05T06:00"),
        (LORD_HOWE, "2026-10-04", 0, "2026-10-03T13:30"),
        (LORD_HOWE, "2026-10-04", 2, "2026-10-03T15:30"),
        (LORD_HOWE, "2026-04-05", 0, "2026-04-04T13:00"),
        (LORD_HOWE, "2026-04-05", 2, "2026-04-04T15:30"),
        # At 23:30, the clocks were advanced by a whole hour.
        ("America/Toronto", "1919-03-31", 0, "1919-03-31T04:30"),
        # Samoa skipped the whole day.
        ("Pacific/Apia", "2011-12-30", 0, "2011-12-30T10:00"),
    ],
)
def test_day_begins_at_the_hour_or_at_the_next_valid_time(
    zone: str, day: str, hour: int, expected: str
) -> None:
    start = find_day_start(date.fromisoformat(day), ZoneInfo(zone), hour)
    assert start == datetime.fromisoformat(expected).replace(tzinfo=UTC)


@pytest.mark.parametrize("zone", [BERLIN, NEW_YORK, SANTIAGO, LORD_HOWE])
@pytest.mark.parametrize("hour", [0, 2])
def test_each_day_of_a_year_lasts_from_its_start_to_the_next_start(zone: str, hour: int) -> None:
    for number in range(365):
        day = date(2026, 1, 1) + timedelta(days=number)
        start = find_day_start(day, ZoneInfo(zone), hour)
        assert find_segment_day(start, ZoneInfo(zone), hour) == day
        before = start - timedelta(seconds=1)
        assert find_segment_day(before, ZoneInfo(zone), hour) == day - timedelta(days=1)
