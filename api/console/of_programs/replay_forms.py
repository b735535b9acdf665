"""The form that says since when a webhook's events are sent again."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, time

from api.console.typed_forms import text_or_none, wrong_field

# The fields of the form, which stand in the page's URL too.
DAY, TIME = "day", "time"


def replay_moment(typed: Mapping[str, str]) -> datetime:
    """Since when; raises ``body.invalid``, as the form's fields are named."""
    return datetime.combine(_day(typed), _time(typed), UTC)


def _day(typed: Mapping[str, str]) -> date:
    try:
        return date.fromisoformat(typed.get(DAY, "").strip())
    except ValueError:
        raise wrong_field(DAY, "must be a day, such as 2026-11-22") from None


def _time(typed: Mapping[str, str]) -> time:
    written = text_or_none(typed, TIME)
    try:
        found = time() if written is None else time.fromisoformat(written)
    except ValueError:
        found = None
    if found is None or found.tzinfo is not None:
        raise wrong_field(TIME, "must be a time of the day, such as 14:30")
    return found
