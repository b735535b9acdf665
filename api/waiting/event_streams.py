import asyncio
from collections import Counter
from collections.abc import AsyncIterable, Iterable, Iterator
from contextlib import contextmanager

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from core.refusals.jobs import JOBS_TOO_MANY_STREAMS
from core.refusals.requests import SERVICE_BUSY

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
            raise SERVICE_BUSY()
        if self._open[user_id] >= MAX_STREAMS_PER_USER:
            raise JOBS_TOO_MANY_STREAMS(most=MAX_STREAMS_PER_USER)
        self._open[user_id] += 1
        try:
            yield
        finally:
            self._open[user_id] -= 1
            if not self._open[user_id]:
                del self._open[user_id]


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
