"""Parts of pages that follow a job, sent to the browser whenever they look different."""

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

# A comment keeps the stream open, and the session is looked up anew.
_QUIET_SECONDS = 15.0


@dataclass(frozen=True)
class LivePart:
    """A part of a page as it is now.

    Attributes:
        is_last: it does not change by itself any more.
        job_ids: the jobs that it follows.
    """

    markup: str
    is_last: bool
    job_ids: Collection[int] = ()


def part_stream(console: ConsoleRequest, first: LivePart, look: Callable[[], LivePart]) -> Response:
    """Send server-sent events ``part``, each the whole part, and ``ended`` after the last one.

    A browser that comes back after a lost connection gets the part as it is then. The stream ends
    with the session.
    """
    events = () if is_head(console.request.scope) else _events(console, first, look)
    return EventStream(console.state.streams, console.user_id, events)


async def _events(
    console: ConsoleRequest, part: LivePart, look: Callable[[], LivePart]
) -> AsyncIterator[str]:
    now = asyncio.get_running_loop().time
    sent, checked_at = "", now()
    with watch_jobs(console.state.subscriber, part.job_ids) as may_have_changed:
        while True:
            if part.markup != sent:
                sent = part.markup
                yield _event("part", sent)
            if part.is_last:
                yield _event("ended", "")
            if part.is_last or console.state.streams.closing.is_set():
                return
            await may_have_changed()
            if now() - checked_at >= _QUIET_SECONDS - CHECK_EVERY_SECONDS:
                yield ": still here\n\n"
                checked_at = now()
                if not await STREAMS.run(_is_still_in, console):
                    return
            try:
                part = await STREAMS.run(look)
            except DomainError:
                # It is gone, as the page says when it is opened again.
                return


def _event(name: str, text: str) -> str:
    # A return in what an owner typed would end a line too.
    lines = "".join(f"data: {line}\n" for line in text.replace("\r", " ").split("\n"))
    return f"event: {name}\n{lines}\n"


def _is_still_in(console: ConsoleRequest) -> bool:
    found = find_page_session(console.request, console.state)
    return found is not None and found.user_id == console.user_id
