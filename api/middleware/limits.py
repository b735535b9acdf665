"""Bounds on what a request may send, enforced while it is read: nothing larger is ever held."""

import re
from contextlib import suppress
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import problem
from core.errors import DomainError, malformed, too_large
from services.attachments.upload import MAX_BYTES, file_too_large

MEGABYTE = 1024 * 1024
# Part headers, boundaries and a few small fields around the file.
MULTIPART_OVERHEAD = 64 * 1024


@dataclass(frozen=True)
class BodyLimit:
    path: re.Pattern[str]
    most_bytes: int
    refusal: DomainError


def _json_limit(path: str, megabytes: int) -> BodyLimit:
    refusal = too_large("body.too_large", f"The body of this request has at most {megabytes} MB.")
    return BodyLimit(re.compile(path), megabytes * MEGABYTE, refusal)


# The first that matches the path counts.
LIMITS = (
    BodyLimit(re.compile(r"/attachments$"), MAX_BYTES + MULTIPART_OVERHEAD, file_too_large()),
    _json_limit(r"", 2),
)


class BodyTooLarge(Exception):
    """Unwinds whatever was reading; never leaves the middleware."""


class BodyLimitMiddleware:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = next(limit for limit in LIMITS if limit.path.match(scope["path"]))
        declared = Headers(scope=scope).get("content-length", "0")
        if not declared.isdigit():
            refusal = malformed("body.length_invalid", "Content-Length must be a number.")
            await problem(refusal)(scope, receive, send)
        elif int(declared) > limit.most_bytes:
            await problem(limit.refusal)(scope, receive, send)
        else:
            await self._counted(limit, scope, receive, send)

    async def _counted(self, limit: BodyLimit, scope: Scope, receive: Receive, send: Send) -> None:
        read = 0
        exceeded = started = False

        async def counting_receive() -> Message:
            nonlocal read, exceeded
            message = await receive()
            read += len(message.get("body", b""))
            if read > limit.most_bytes:
                exceeded = True
                raise BodyTooLarge
            return message

        async def watching_send(message: Message) -> None:
            nonlocal started
            # What the application makes of the broken read is replaced below.
            if exceeded and not started:
                return
            started = True
            await send(message)

        with suppress(BodyTooLarge):
            await self._app(scope, counting_receive, watching_send)
        if exceeded and not started:
            await problem(limit.refusal)(scope, receive, send)
