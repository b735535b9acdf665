"""Calculates the days of watched segments, which begin at an hour in a time zone."""

from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

_DAY = timedelta(days=1)
_SECOND = timedelta(seconds=1)


@cache
def list_time_zones() -> frozenset[str]:
    """Return the IANA names of all time zones. Read them once, because reading takes a while."""
    return frozenset(available_timezones())


def find_segment_day(now: datetime, zone: ZoneInfo, hour: int) -> date:
    """Return the segment's day that has begun last."""
    day = now.astimezone(zone).date() + _DAY
    while find_day_start(day, zone, hour) > now:
        day -= _DAY
    return day


def find_day_start(day: date, zone: ZoneInfo, hour: int) -> datetime:
    """Return the moment in UTC at which a segment's day begins.

    If clock changes skip the hour, the day begins at the next valid time. If the hour occurs twice,
    the day begins at its first occurrence.
    """
    local = datetime.combine(day, time(hour))
    first = local.replace(tzinfo=zone).astimezone(UTC)
    if first.astimezone(zone).replace(tzinfo=None) == local:
        return first
    # The clocks change between two moments, which interpret the hour with the new and the old UTC
    # offset. Find the change by bisection.
    before = local.replace(tzinfo=zone, fold=1).astimezone(UTC) - _SECOND
    after = first
    while after - before > _SECOND:
        middle = before + (after - before) // 2
        middle = middle.replace(microsecond=0)
        if middle.astimezone(zone).replace(tzinfo=None) >= local:
            after = middle
        else:
            before = middle
    return after
