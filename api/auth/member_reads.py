"""Limits on the members that a caller with a session can read.

A stolen session with an old login can't export members. Without limits, it would page through all
of them instead.
"""

from dataclasses import replace

from api.state import State
from services.access.caller import Caller
from services.paging import PageRequest
from services.security_events import EventType, record_hourly_event
from storage.redis.rate_counters import parse_limits

MAX_MEMBERS_OF_SESSION = 200
MAX_PAGES_AN_HOUR = 100
_PAGES_AN_HOUR = parse_limits(f"{MAX_PAGES_AN_HOUR}/hour")[0]


def limit_members_page(caller: Caller, page: PageRequest) -> PageRequest:
    """Reduce the size of the page if the caller uses a session. Keys and tokens have no limit."""
    if caller.session_id is None:
        return page
    return replace(page, limit=min(page.limit, MAX_MEMBERS_OF_SESSION))


def count_members_page(state: State, caller: Caller) -> None:
    """Count a page of members that a session reads, and record an event if an hour has too many."""
    if caller.session_id is None:
        return
    if state.rate_limiter.is_first_beyond(_PAGES_AN_HOUR, "member-pages", str(caller.user_id)):
        with state.resources.unit_of_work() as uow:
            record_hourly_event(
                uow, caller.user_id, EventType.MEMBERS_READ, pages=MAX_PAGES_AN_HOUR
            )
