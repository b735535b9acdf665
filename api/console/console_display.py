"""Numbers, moments and calls as the console shows them, and words that several areas use."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from core import clock
from core.settings.notations import PlanQuota

FILTER_MATCHES = {
    "all": "all of these",
    "any": "any of these",
    "none": "none of these",
    "not_all": "not all of these",
}
TIERS = {"free": "Free", "silver": "Silver", "gold": "Gold"}
SOURCES = {
    "challenge": "By a sign-up form with a challenge",
    "form": "By a sign-up form",
    "login": "Subscribed while logged in",
    "import": "Imported",
    "transfer": "Moved from another list",
    "owner": "Added one by one",
}
QUOTAS: Mapping[PlanQuota, str] = {
    PlanQuota.MEMBERS: "Members",
    PlanQuota.LISTS: "Lists",
    PlanQuota.STORAGE_MB: "Megabytes stored",
    PlanQuota.KEYS: "API keys",
    PlanQuota.UNFINISHED_JOBS: "Jobs under way",
    PlanQuota.COMPOSER_PER_DAY: "Composer calls today",
}

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_MAX_RELATIVE_SECONDS = 30 * _DAY
# Each unit from its first number of seconds on.
_UNITS = ((2 * _DAY, _DAY, "day"), (_HOUR, _HOUR, "hour"), (_MINUTE, _MINUTE, "minute"))


def number(value: float) -> str:
    return f"{value:,}"


def field_value(value: str | bool | float) -> str:
    """Write the value of a member's field."""
    if isinstance(value, bool):
        return "Yes" if value else "No"
    return value if isinstance(value, str) else f"{value:,}"


def credits_text(value: Decimal | float) -> str:
    """Write money or credits with as many decimals as it has: "2.5", "1,000"."""
    return f"{value:,.4f}".rstrip("0").rstrip(".")


def signed(value: int) -> str:
    """Write a change with its sign: "+1,234", "0"."""
    # A minus sign, which is as wide as the plus.
    return f"{value:+,}".replace("-", "\N{MINUS SIGN}") if value else "0"


def counted(value: int, noun: str, plural: str | None = None) -> str:
    """Write a number of things: "1 member", "1,234 members"."""
    return f"{value:,} {noun if value == 1 else plural or noun + 's'}"


def day(value: date) -> str:
    return f"{value.day} {value:%b %Y}"


@dataclass(frozen=True)
class ShownMoment:
    """A moment by its distance from now; the exact moment shows at hover."""

    at: datetime

    def __html__(self) -> str:
        # Made of digits and words of ours alone, so a template need not escape it.
        exact = f"{day(self.at)}, {self.at:%H:%M:%S} UTC"
        words = relative(self.at, clock.now())
        return f'<time datetime="{clock.iso(self.at)}" title="{exact}">{words}</time>'


def moment(value: datetime) -> ShownMoment:
    return ShownMoment(value.astimezone(UTC))


def relative(value: datetime, now: datetime) -> str:
    """Write the distance: "just now", "3 minutes ago", "in 2 days"; the day, if it is far away."""
    seconds = int((now - value).total_seconds())
    distance = abs(seconds)
    if distance < _MINUTE:
        return "just now" if seconds >= 0 else "in less than a minute"
    if distance > _MAX_RELATIVE_SECONDS:
        return day(value)
    return f"{duration(distance)} ago" if seconds > 0 else f"in {duration(distance)}"


def duration(seconds: float) -> str:
    """Write a duration: "12 seconds", "3 minutes", "2 days"."""
    whole = int(seconds)
    for beginning, unit_seconds, unit in _UNITS:
        if whole >= beginning:
            return counted(whole // unit_seconds, unit)
    return counted(whole, "second")


def curl_call(
    base: str, method: str, path: str, body: Mapping[str, Any] | None = None, *more: str
) -> str:
    """Return the call of the API that does what a page does, for a shell.

    ``more``: further arguments of curl, such as ``--form file=@members.csv``.
    """
    words = ["curl"]
    if method != "GET":
        words += ["--request", method]
    lines = [shlex.join([*words, base + path])]
    # The shell puts the key in, so that it is in no history of the shell.
    lines.append('--header "Authorization: Bearer $PRESSROOM_KEY"')
    if body is not None:
        lines.append("--header 'Content-Type: application/json'")
        lines.append(f"--data {shlex.quote(json.dumps(body, ensure_ascii=False))}")
    lines += [shlex.join([each]) if " " not in each else each for each in more]
    return " \\\n  ".join(lines)
