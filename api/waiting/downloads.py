"""Answers that are read while they are sent, such as files: a caller may read few of them slowly.

Each slow reader holds a connection to the object storage, or an open query.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator

from api.limits.body_budgets import holder_of_address
from api.waiting.disconnects import CallerDisconnected
from core.logging import get_logger

log = get_logger(__name__)

# What is read by then is not counted: a cache or a mail provider reads for many people at once.
MAX_QUICK_SECONDS = 10.0
MAX_SLOW_DOWNLOADS_OF_A_CALLER = 32


class SlowDownloads:
    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    async def watched(
        self, address: str | None, content: AsyncIterator[bytes]
    ) -> AsyncGenerator[bytes]:
        """The content. A caller who reads too many slowly already is cut off in the middle."""
        caller = holder_of_address(address)
        clock = asyncio.get_running_loop().time
        began, is_slow = clock(), False
        try:
            async for piece in content:
                if not is_slow and clock() - began > MAX_QUICK_SECONDS:
                    if self._open[caller] >= MAX_SLOW_DOWNLOADS_OF_A_CALLER:
                        log.warning("download.cut_off")
                        raise CallerDisconnected
                    self._open[caller] += 1
                    is_slow = True
                yield piece
        finally:
            if is_slow:
                self._open[caller] -= 1
                if not self._open[caller]:
                    del self._open[caller]


SLOW_DOWNLOADS = SlowDownloads()
