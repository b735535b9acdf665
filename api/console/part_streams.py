"""Sends new HTML for a part of a page to the browser while a job runs, as server-sent events.

Whenever the part of the page changes, the stream sends an event ``part`` with the new HTML. The
event ``ended`` tells the browser that the HTML is final. The event stream ends if the user's
session ends. A browser that reconnects gets the current HTML.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass

from fastapi.responses import Response

from api.auth.page_sessions import find_page_session
from api.console.requests import ConsoleRequest
from api.limits.bulkheads import STREAMS
from api.middleware.request_rewriting import is_head
from api.waiting.event_streams import EventStream
from api.waiting.subscriber import CHECK_EVERY_SECONDS, watch_jobs
from core.errors import DomainError
from storage.unit_of_work import UnitOfWork

# How often an event stream checks the user's session, and sends a comment to keep the connection
# open.
_SESSION_CHECK_SECONDS = 15.0


@dataclass(frozen=True)
class LivePart:
    """The new HTML of a part of a page.

    ``is_last``: whether the HTML stays as it is until the user does something.
    """

    markup: str
    is_last: bool
    job_ids: Collection[int] = ()


async def stream_part(
    console: ConsoleRequest, read_part: Callable[[UnitOfWork], LivePart]
) -> Response:
    first_part = await console.state.in_unit_of_work(read_part)
    has_no_body = is_head(console.request.scope)
    events = () if has_no_body else _generate_events(console, first_part, read_part)
    return EventStream(console.state.streams, console.account_id, events)


async def _generate_events(
    console: ConsoleRequest, part: LivePart, read_part: Callable[[UnitOfWork], LivePart]
) -> AsyncIterator[str]:
    now = asyncio.get_running_loop().time
    sent_markup = ""
    checked_at = now()
    with watch_jobs(console.state.subscriber, part.job_ids) as may_have_changed:
        while True:
            if part.markup != sent_markup:
                sent_markup = part.markup
                yield _format_event("part", sent_markup)
            if part.is_last:
                yield _format_event("ended", "")
            if part.is_last or console.state.streams.closing.is_set():
                return
            await may_have_changed()
            if now() - checked_at >= _SESSION_CHECK_SECONDS - CHECK_EVERY_SECONDS:
                yield ": still here\n\n"
                checked_at = now()
                if not await STREAMS.run(_has_session, console):
                    return
            try:
                part = await STREAMS.run(console.state.transact, read_part)
            except DomainError:
                # The import or export was deleted, so end the event stream.
                return


def _format_event(name: str, text: str) -> str:
    # Replace carriage returns, because a carriage return would end a line of the event.
    lines = "".join(f"data: {line}\n" for line in text.replace("\r", " ").split("\n"))
    return f"event: {name}\n{lines}\n"


def _has_session(console: ConsoleRequest) -> bool:
    member = find_page_session(console.request, console.state)
    return member is not None and member.person_id == console.person_id
