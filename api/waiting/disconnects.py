import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

T = TypeVar("T")


class CallerDisconnected(Exception):
    """Nobody is there to hear the answer."""


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Do the work until its caller hangs up, which cancels it and raises ``CallerDisconnected``.

    The request's body must have been read: what comes after it is the end of the connection.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise CallerDisconnected
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
