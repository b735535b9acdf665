"""Limits and counts the pages of members that are read with a session.

Exporting all members requires a recent login. If a user's sessions read more than
``MAX_PAGES_PER_HOUR`` pages in an hour, a security event is recorded, because a session may have
been stolen. Every route and page that shows members' addresses counts as a page of members, even if
it shows only one member.
"""

from dataclasses import replace

from api.state import State
from services.access.caller import Caller
from services.paging import PageRequest
from services.security_events import EventType, record_hourly_event
from storage.redis.rate_counters import parse_limits

MAX_MEMBERS_PER_SESSION_PAGE = 200
MAX_PAGES_PER_HOUR = 100
_PAGES_PER_HOUR_LIMIT = parse_limits(f"{MAX_PAGES_PER_HOUR}/hour")[0]


def limit_members_page(caller: Caller, page: PageRequest) -> PageRequest:
    if caller.session_id is None:
        return page
    return replace(page, limit=min(page.limit, MAX_MEMBERS_PER_SESSION_PAGE))


def count_members_page(state: State, caller: Caller) -> None:
    if caller.session_id is None:
        return
    if state.rate_limiter.has_just_exceeded(
        _PAGES_PER_HOUR_LIMIT, "member-pages", str(caller.person_id)
    ):
        with state.resources.unit_of_work() as uow:
            record_hourly_event(
                uow, caller.account_id, EventType.MEMBERS_READ, pages=MAX_PAGES_PER_HOUR
            )
