"""Numbers, moments and calls as the console shows them."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from core import clock

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_MAX_RELATIVE_SECONDS = 30 * _DAY
# From this many seconds on, told in this unit.
_UNITS = ((2 * _DAY, _DAY, "day"), (_HOUR, _HOUR, "hour"), (_MINUTE, _MINUTE, "minute"))


def number(value: float) -> str:
    return f"{value:,}"


def amount(value: Decimal | float) -> str:
    """Of money or credits: "2.5", "1,000"."""
    return f"{value:,.4f}".rstrip("0").rstrip(".")


def signed(value: int) -> str:
    """With its sign, as a change is told: "+1,234", "0"."""
    # A minus sign, which is as wide as the plus.
    return f"{value:+,}".replace("-", "\N{MINUS SIGN}") if value else "0"


def counted(value: int, noun: str, plural: str | None = None) -> str:
    """A number of things: "1 member", "1,234 members"."""
    return f"{value:,} {noun if value == 1 else plural or noun + 's'}"


def day(value: date) -> str:
    return f"{value.day} {value:%b %Y}"


@dataclass(frozen=True)
class ShownMoment:
    """How long ago it was, or how long it takes until then; the exact moment shows at hover."""

    at: datetime

    def __html__(self) -> str:
        # Made of digits and words of ours alone, so a template need not escape it.
        exact = f"{day(self.at)}, {self.at:%H:%M:%S} UTC"
        words = relative(self.at, clock.now())
        return f'<time datetime="{clock.iso(self.at)}" title="{exact}">{words}</time>'


def moment(value: datetime) -> ShownMoment:
    return ShownMoment(value.astimezone(UTC))


def relative(value: datetime, now: datetime) -> str:
    """In words: "just now", "3 minutes ago", "in 2 days"; the day, where it is far away."""
    seconds = int((now - value).total_seconds())
    distance = abs(seconds)
    if distance < _MINUTE:
        return "just now" if seconds >= 0 else "in less than a minute"
    if distance > _MAX_RELATIVE_SECONDS:
        return day(value)
    for beginning, unit_seconds, unit in _UNITS:
        if distance >= beginning:
            words = counted(distance // unit_seconds, unit)
            return f"{words} ago" if seconds > 0 else f"in {words}"
    raise AssertionError("every distance has a unit")


def duration(seconds: float) -> str:
    """In words: "12 seconds", "3 minutes", "2 days"."""
    whole = int(seconds)
    for beginning, unit_seconds, unit in _UNITS:
        if whole >= beginning:
            return counted(whole // unit_seconds, unit)
    return counted(whole, "second")


def curl_call(
    base: str, method: str, path: str, body: Mapping[str, Any] | None = None, *more: str
) -> str:
    """The call of the API that does what a page does, for a shell.

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
