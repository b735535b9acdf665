"""Streams server-sent events, and limits the number of event streams per user and per process."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterable, Iterable, Iterator
from contextlib import contextmanager

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from api.waiting.open_counts import count_while_open
from core.errors import jobs, requests
from core.ids import AccountId

MAX_STREAMS_PER_USER = 10
MAX_STREAMS = 500


class StreamCounter:
    def __init__(self) -> None:
        self._open: Counter[AccountId] = Counter()
        # At shutdown, ``closing`` ends all event streams, so that clients reconnect to another
        # process.
        self.closing = asyncio.Event()

    @contextmanager
    def count_stream(self, account_id: AccountId) -> Iterator[None]:
        """Count an event stream, or raise an error if the user or the process has too many."""
        if self._open.total() >= MAX_STREAMS:
            raise requests.SERVICE_BUSY()
        if self._open[account_id] >= MAX_STREAMS_PER_USER:
            raise jobs.JOBS_TOO_MANY_STREAMS(most=MAX_STREAMS_PER_USER)
        with count_while_open(self._open, account_id):
            yield


class EventStream(StreamingResponse):
    """A response with server-sent events, which counts as open until its connection closes."""

    def __init__(
        self,
        streams: StreamCounter,
        account_id: AccountId,
        events: AsyncIterable[str] | Iterable[str],
    ) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(events, headers=headers, media_type="text/event-stream")
        self._open_count = streams.count_stream(account_id)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._open_count:
            await super().__call__(scope, receive, send)
