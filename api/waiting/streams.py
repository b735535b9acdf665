"""Answers that are read while they are sent, such as files: a caller may read few of them slowly.

Each slow reader holds a connection to the object storage, or an open query.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Iterator
from contextlib import ExitStack, contextmanager

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from api.limits.body_budgets import holder_of_address
from api.waiting.disconnects import CallerDisconnected
from api.waiting.open_counts import counted
from core.errors import jobs, requests
from core.logging import get_logger

log = get_logger(__name__)

# Bytes read by then are not counted: a cache or a mail provider reads for many people at once.
MAX_QUICK_SECONDS = 10.0
MAX_SLOW_DOWNLOADS_OF_A_CALLER = 32


class SlowDownloads:
    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    async def watched(
        self, address: str | None, content: AsyncIterator[bytes]
    ) -> AsyncGenerator[bytes]:
        """Yield the content; cut off a caller who reads too many slowly already."""
        caller = holder_of_address(address)
        clock = asyncio.get_running_loop().time
        began, is_slow = clock(), False
        with ExitStack() as slow:
            async for piece in content:
                if not is_slow and clock() - began > MAX_QUICK_SECONDS:
                    if self._open[caller] >= MAX_SLOW_DOWNLOADS_OF_A_CALLER:
                        log.warning("download.cut_off")
                        raise CallerDisconnected
                    slow.enter_context(counted(self._open, caller))
                    is_slow = True
                yield piece


SLOW_DOWNLOADS = SlowDownloads()

MAX_STREAMS_PER_USER = 10
MAX_STREAMS = 500


class StreamCounter:
    """Counts the event streams that each user has open on this process."""

    def __init__(self) -> None:
        self._open: Counter[int] = Counter()
        # The process is shutting down: streams end, and their clients connect to another one.
        self.closing = asyncio.Event()

    @contextmanager
    def counted(self, user_id: int) -> Iterator[None]:
        """Count one more stream while the block lasts.

        Raises ``jobs.too_many_streams``, and ``service.busy`` beyond the process's own bound.
        """
        if self._open.total() >= MAX_STREAMS:
            raise requests.SERVICE_BUSY()
        if self._open[user_id] >= MAX_STREAMS_PER_USER:
            raise jobs.JOBS_TOO_MANY_STREAMS(most=MAX_STREAMS_PER_USER)
        with counted(self._open, user_id):
            yield


class EventStream(StreamingResponse):
    """Server-sent events, counted as a stream until the connection ends."""

    def __init__(
        self, streams: StreamCounter, user_id: int, events: AsyncIterable[str] | Iterable[str]
    ) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(events, headers=headers, media_type="text/event-stream")
        self._counted = streams.counted(user_id)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._counted:
            await super().__call__(scope, receive, send)
