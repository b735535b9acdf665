"""How callers learn that an operation will end."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from email.utils import format_datetime
from typing import Any

from fastapi import Depends, Request

# What the policy in docs/api.md promises.
MIN_NOTICE = timedelta(days=365)


@dataclass(frozen=True)
class Deprecation:
    """A route's dependency that tells of its end in the headers ``Deprecation`` (RFC 9745) and
    ``Sunset`` (RFC 8594) of each answer, and in the document."""

    since: date
    sunset: date
    instead: str

    def __post_init__(self) -> None:
        if self.sunset - self.since < MIN_NOTICE:
            raise ValueError(f"a deprecation lasts for {MIN_NOTICE.days} days at least")

    @property
    def sentence(self) -> str:
        return f"Deprecated since {self.since}; it ends on {self.sunset}. {self.instead}"

    async def __call__(self, request: Request) -> None:
        headers = request.scope["pressroom.headers"]
        told = [
            (b"deprecation", f"@{int(_midnight(self.since).timestamp())}".encode()),
            (b"sunset", format_datetime(_midnight(self.sunset), usegmt=True).encode()),
        ]
        headers.extend(each for each in told if each not in headers)

    # A refusal of the body is an answer of the route too.
    pass_before_body = __call__


def deprecated(*, since: date, sunset: date, instead: str) -> Any:
    """The dependency of a route that ends on ``sunset``; ``instead`` says what to call then."""
    return Depends(Deprecation(since, sunset, instead))


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
