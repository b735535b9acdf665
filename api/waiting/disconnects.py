"""Cancels the work for a request when the caller disconnects."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

T = TypeVar("T")


class CallerDisconnected(Exception):
    pass


async def run_while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of the work, or cancel the work if the caller disconnects.

    Call the function only after reading the request body, so that the next ASGI message can only
    report a disconnect.
    """
    work_task = asyncio.ensure_future(work)

    async def wait_for_disconnect() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    disconnect_task = asyncio.ensure_future(wait_for_disconnect())
    try:
        await asyncio.wait({work_task, disconnect_task}, return_when=asyncio.FIRST_COMPLETED)
        if not work_task.done():
            raise CallerDisconnected
        return work_task.result()
    finally:
        work_task.cancel()
        disconnect_task.cancel()
        await asyncio.gather(work_task, disconnect_task, return_exceptions=True)
