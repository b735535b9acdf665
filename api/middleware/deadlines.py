"""Limits the time from a request to the start of its response."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import problem_response
from core.errors.requests import REQUEST_TOO_SLOW

# The limit must exceed the maximum times for the request body (90 s) and for a requested wait (60
# s) together.
DEADLINE_SECONDS = 170.0


class DeadlineMiddleware:
    """A response starts late if its handler is slow, or if the request body arrives slowly."""

    def __init__(self, app: ASGIApp, seconds: float = DEADLINE_SECONDS) -> None:
        self._app = app
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_started = False

        async def send_and_end_deadline(message: Message) -> None:
            nonlocal has_started
            if not has_started:
                has_started = True
                deadline.reschedule(None)
            await send(message)

        try:
            async with asyncio.timeout(self._seconds) as deadline:
                scope["pressroom.extend_deadline"] = lambda: deadline.reschedule(
                    asyncio.get_running_loop().time() + self._seconds
                )
                await self._app(scope, receive, send_and_end_deadline)
        except TimeoutError:
            if has_started:
                raise
            error = REQUEST_TOO_SLOW(seconds=self._seconds)
            await problem_response(error)(scope, receive, send)


def extend_deadline(scope: Scope) -> None:
    """Restart the deadline while a large body is still arriving."""
    scope["pressroom.extend_deadline"]()
