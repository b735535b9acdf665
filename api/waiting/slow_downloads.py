"""Limits how many slow downloads a caller may have open at the same time.

Without a limit, slow downloads could occupy all connections to the object storage or the database.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import ExitStack

from api.limits.body_budgets import name_address_holder
from api.waiting.disconnects import CallerDisconnected
from api.waiting.open_counts import count_while_open
from core.logging import get_logger

log = get_logger(__name__)

# A download that takes longer than ``MAX_QUICK_SECONDS`` counts as slow. Quick downloads aren't
# limited, because caches and mail providers download many files for many people.
MAX_QUICK_SECONDS = 10.0
MAX_SLOW_DOWNLOADS_PER_CALLER = 32


class SlowDownloads:
    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    async def limit(
        self, address: str | None, content: AsyncIterator[bytes]
    ) -> AsyncGenerator[bytes]:
        """Yield the content of a download, but disconnect a caller with too many slow downloads."""
        caller = name_address_holder(address)
        clock = asyncio.get_running_loop().time
        began_at = clock()
        is_slow = False
        with ExitStack() as stack:
            async for piece in content:
                if not is_slow and clock() - began_at > MAX_QUICK_SECONDS:
                    if self._open[caller] >= MAX_SLOW_DOWNLOADS_PER_CALLER:
                        log.warning("download.cut_off")
                        raise CallerDisconnected
                    stack.enter_context(count_while_open(self._open, caller))
                    is_slow = True
                yield piece
