import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import problem_response
from core.refusals.requests import REQUEST_TOO_SLOW

# Above the sum of the longest time for a body (90 s) and the longest wait that a caller may ask for
# (60 s).
DEADLINE_SECONDS = 170.0


class DeadlineMiddleware:
    """Refuses a request whose answer has not begun in time, for a slow handler or a slow sender."""

    def __init__(self, app: ASGIApp, seconds: float = DEADLINE_SECONDS) -> None:
        self._app = app
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def send_and_release(message: Message) -> None:
            nonlocal started
            if not started:
                started = True
                deadline.reschedule(None)
            await send(message)

        try:
            async with asyncio.timeout(self._seconds) as deadline:
                scope["pressroom.extend_deadline"] = lambda: deadline.reschedule(
                    asyncio.get_running_loop().time() + self._seconds
                )
                await self._app(scope, receive, send_and_release)
        except TimeoutError:
            if started:
                raise
            late = REQUEST_TOO_SLOW(seconds=self._seconds)
            await problem_response(late)(scope, receive, send)


def extend_deadline(scope: Scope) -> None:
    """Restart the deadline: this body may take longer than it, and is still arriving."""
    scope["pressroom.extend_deadline"]()
