"""Formats numbers, times and API calls for pages of the console.

The module contains only labels that several areas of the console show.
"""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from core import clock
from core.settings.notations import PlanQuota
from services.subscriptions.members.departures import LeftReason, StatedReason

FILTER_MATCHES = {
    "all": "all of these",
    "any": "any of these",
    "none": "none of these",
    "not_all": "not all of these",
}
TIERS = {"free": "Free", "silver": "Silver", "gold": "Gold"}
SOURCES = {
    "challenge": "Sign-up form with CAPTCHA",
    "form": "Sign-up form",
    "login": "Subscribed while logged in",
    "import": "Imported",
    "transfer": "Moved from another list",
    "owner": "Added individually",
}
ORIGINS = {
    "utm_source": "Source",
    "utm_medium": "Medium",
    "utm_campaign": "Campaign",
    "utm_term": "Term",
    "utm_content": "Content",
    "referrer": "Came from website",
    "landing": "Signed up on page",
}
# Why members left: the ways of leaving, and the reasons that people chose.
LEFT_REASONS: Mapping[str, str] = {
    LeftReason.UNSUBSCRIBED.value: "unsubscribed",
    LeftReason.COMPLAINED.value: "complained",
    LeftReason.BOUNCED.value: "bounced",
    LeftReason.REMOVED.value: "removed",
    LeftReason.ERASED.value: "erased",
    LeftReason.TRANSFERRED.value: "moved to another list",
    StatedReason.TOO_MANY.value: "too many e-mails",
    StatedReason.OTHER_TOPICS.value: "other topics",
    StatedReason.NEVER_ASKED.value: "never signed up",
    StatedReason.ELSEWHERE.value: "reads it elsewhere",
    StatedReason.OTHER.value: "another reason",
}
QUOTAS: Mapping[PlanQuota, str] = {
    PlanQuota.MEMBERS: "Members",
    PlanQuota.LISTS: "Lists",
    PlanQuota.STORAGE_MB: "Storage (MB)",
    PlanQuota.KEYS: "API keys",
    PlanQuota.UNFINISHED_JOBS: "Jobs in progress",
    PlanQuota.COMPOSER_PER_DAY: "Composer calls today",
}

_KILOBYTE = 1_000
_MEGABYTE = 1_000_000
_MINUTE_SECONDS = 60
_HOUR_SECONDS = 3_600
_DAY_SECONDS = 86_400
# Times within 30 days of the current time are shown in the form "3 minutes ago". Times more than 30
# days away from the current time are shown as dates.
_MAX_DISTANCE_SECONDS = 30 * _DAY_SECONDS
# The units of durations, from the longest to the shortest. Each tuple contains the shortest
# duration in the unit, the unit's length in seconds, and its name.
_UNITS = (
    (2 * _DAY_SECONDS, _DAY_SECONDS, "day"),
    (_HOUR_SECONDS, _HOUR_SECONDS, "hour"),
    (_MINUTE_SECONDS, _MINUTE_SECONDS, "minute"),
)


def format_number(value: float) -> str:
    return f"{value:,}"


def format_sentence(text: str) -> str:
    """Return a text with a capital first letter and a full stop."""
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", "!")) else ".")


def format_file_size(size_bytes: int) -> str:
    """Format a file size, as in "33 KB" or "4.8 MB"."""
    if size_bytes < _MEGABYTE:
        return f"{max(1, round(size_bytes / _KILOBYTE))} KB"
    return f"{size_bytes / _MEGABYTE:,.1f} MB"


def format_field_value(value: str | bool | float) -> str:
    """Format the value of a member field, for example ``True`` as "Yes"."""
    if isinstance(value, bool):
        return "Yes" if value else "No"
    return value if isinstance(value, str) else f"{value:,}"


def format_credits(value: Decimal | float) -> str:
    """Format an amount of money or credits without trailing zeros, as in "2.5" or "1,000"."""
    return f"{value:,.4f}".rstrip("0").rstrip(".")


def format_status(value: str) -> str:
    """Format the name of a status for people, as in "Paid unclaimed" for ``paid_unclaimed``."""
    words = value.replace("_", " ")
    return words[:1].upper() + words[1:]


def format_change(value: int) -> str:
    """Format a difference between two numbers with its sign, as in "+1,234" or "0"."""
    # Replace the hyphen of a negative number with a minus sign, which is as wide as a plus sign.
    return f"{value:+,}".replace("-", "\N{MINUS SIGN}") if value else "0"


def format_count(value: int, noun: str, plural: str | None = None) -> str:
    """Format a number with its noun, as in "1 member" or "1,234 members"."""
    return f"{value:,} {noun if value == 1 else plural or noun + 's'}"


def format_share(count: int, total: int) -> str:
    """Format a share, rounded down so that 4.999 % isn't shown as 5 % next to a limit of 5 %."""
    if not count:
        return "0 %"
    tenths = 1_000 * count // total
    return f"{tenths / 10:g} %" if tenths else "< 0.1 %"


def format_day(value: date) -> str:
    return f"{value.day} {value:%b %Y}"


@dataclass(frozen=True)
class DisplayedMoment:
    """A time that a page shows relative to now, with the exact time in a tooltip.

    ``is_dated``: whether the page shows the date and the minute before the relative time.
    """

    at: datetime
    is_dated: bool = False

    def __html__(self) -> str:
        # The HTML needs no escaping, because it contains only formatted times.
        day = format_day(self.at)
        words = distance = format_distance(self.at, clock.now())
        if self.is_dated:
            words = f"{day}, {self.at:%H:%M} UTC"
            words += "" if distance == day else f" ({distance})"
        exact = f"{day}, {self.at:%H:%M:%S} UTC"
        return f'<time datetime="{clock.format_timestamp(self.at)}" title="{exact}">{words}</time>'


def display_moment(value: datetime) -> DisplayedMoment:
    return DisplayedMoment(value.astimezone(UTC))


def display_dated_moment(value: datetime) -> DisplayedMoment:
    return DisplayedMoment(value.astimezone(UTC), is_dated=True)


def format_distance(value: datetime, now: datetime) -> str:
    """Format a time relative to now, as in "just now", "3 minutes ago" or "in 2 days".

    A time more than 30 days from now is formatted as a date.
    """
    seconds = int((now - value).total_seconds())
    distance_seconds = abs(seconds)
    if distance_seconds < _MINUTE_SECONDS:
        return "just now" if seconds >= 0 else "in less than a minute"
    if distance_seconds > _MAX_DISTANCE_SECONDS:
        return format_day(value)
    if seconds > 0:
        return f"{format_duration(distance_seconds)} ago"
    # Round up future times, so that the page doesn't show "in 6 days" for a file that expires in
    # almost 7 days.
    unit_seconds = next(unit for min_seconds, unit, _ in _UNITS if distance_seconds >= min_seconds)
    return f"in {format_duration(-(-distance_seconds // unit_seconds) * unit_seconds)}"


def format_duration(seconds: float) -> str:
    """Format a duration in days, hours, minutes or seconds, as in "12 seconds" or "2 days"."""
    rounded_seconds = int(seconds)
    for min_seconds, unit_seconds, unit in _UNITS:
        if rounded_seconds >= min_seconds:
            return format_count(rounded_seconds // unit_seconds, unit)
    return format_count(rounded_seconds, "second")


def build_curl_call(
    base: str, method: str, path: str, body: Mapping[str, Any] | None = None, *options: str
) -> str:
    """Return a curl command that calls the API, to paste into a shell."""
    command = ["curl"]
    if method != "GET":
        command += ["--request", method]
    lines = [shlex.join([*command, base + path])]
    # Use a shell variable for the API key, so that the shell's history doesn't contain the key.
    lines.append('--header "Authorization: Bearer $PRESSROOM_KEY"')
    if body is not None:
        lines.append("--header 'Content-Type: application/json'")
        lines.append(f"--data {shlex.quote(json.dumps(body, ensure_ascii=False))}")
    lines += [shlex.join([option]) if " " not in option else option for option in options]
    return " \\\n  ".join(lines)
