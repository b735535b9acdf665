"""Bounds on what a request may send, enforced while it is read: nothing larger is ever held."""

import asyncio
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import NoReturn

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import problem_response
from core.refusals.imports import IMPORT_TOO_LARGE
from core.refusals.media import ATTACHMENT_TOO_LARGE
from core.refusals.refusal import Refusal
from core.refusals.requests import BODY_LENGTH_INVALID, BODY_TOO_LARGE, BODY_TOO_SLOW, SERVICE_BUSY
from core.upload_limits import MAX_IMAGE_BYTES, MAX_IMPORT_FILE_BYTES

MEGABYTE = 1024 * 1024
# Part headers, boundaries and a few small fields around the file.
MULTIPART_OVERHEAD_BYTES = 64 * 1024
# Fifty of the largest uploads; a body counts until it is stored.
MAX_HELD_BODY_BYTES = 256 * MEGABYTE
# Between two pieces of a body, and for all of it: 5 MB in that time is 60 KB/s.
MAX_BODY_SILENCE_SECONDS = 20.0
MAX_BODY_SECONDS = 90.0
# A file of members goes on to object storage as it arrives, so it may take its time: 2 GB in four
# hours are 150 KB/s.
MAX_IMPORT_FILE_SECONDS = 4 * 3600.0


@dataclass(frozen=True)
class BodyLimit:
    path: re.Pattern[str]
    most_bytes: int
    refusal: Refusal
    # For all of the body, however steadily it comes; MOST_SECONDS unless the route has its own.
    most_seconds: float | None = None


def _json_limit(path: str, megabytes: int) -> BodyLimit:
    refusal = BODY_TOO_LARGE.filled(megabytes=megabytes)
    return BodyLimit(re.compile(path), megabytes * MEGABYTE, refusal)


# The first that matches the path counts.
LIMITS = (
    BodyLimit(
        re.compile(r"/lists/[^/]+/imports$"),
        MAX_IMPORT_FILE_BYTES + MULTIPART_OVERHEAD_BYTES,
        IMPORT_TOO_LARGE,
        most_seconds=MAX_IMPORT_FILE_SECONDS,
    ),
    _json_limit(r"/auxilia/subscriptions/[^/]+/members/add$", 32),
    BodyLimit(
        re.compile(r"/attachments$"),
        MAX_IMAGE_BYTES + MULTIPART_OVERHEAD_BYTES,
        ATTACHMENT_TOO_LARGE,
    ),
    _json_limit(r"/webhooks/", 1),
    _json_limit(r"(/auxilia)?/composer/", 8),
    _json_limit(r"", 2),
)


@lru_cache(maxsize=1024)
def body_limit_of(path: str) -> BodyLimit:
    return next(limit for limit in LIMITS if limit.path.match(path))


class BodyMemoryBudget:
    """How many bytes of unfinished bodies this process holds at a time, all requests together."""

    def __init__(self, most_bytes: int) -> None:
        self._left = most_bytes

    def take(self, count: int) -> bool:
        if count > self._left:
            return False
        self._left -= count
        return True

    def give_back(self, count: int) -> None:
        self._left += count


class BodyRefused(Exception):
    """Unwinds whatever was reading; never leaves the middleware."""


class BoundedBody:
    """One request's body while it arrives. ``refusal`` says why no more of it is read."""

    def __init__(self, limit: BodyLimit, receive: Receive, budget: BodyMemoryBudget) -> None:
        self._limit = limit
        self._receive = receive
        self._budget = budget
        self._held = 0
        self._read = 0
        self._complete = False
        self._deadline = asyncio.get_running_loop().time() + (
            limit.most_seconds or MAX_BODY_SECONDS
        )
        self.refusal: Refusal | None = None

    async def receive(self) -> Message:
        if self._complete:
            # What comes now is the end of the connection, which may take its time.
            return await self._receive()
        message = await self._next()
        count = len(message.get("body", b""))
        self._read += count
        if self._read > self._limit.most_bytes:
            self._refuse(self._limit.refusal)
        if not self._budget.take(count):
            self._refuse(SERVICE_BUSY)
        self._held += count
        self._complete = not message.get("more_body", False)
        return message

    def release(self) -> None:
        """Nobody holds the body any more."""
        self._budget.give_back(self._held)
        self._held = 0

    async def _next(self) -> Message:
        left = self._deadline - asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(max(min(left, MAX_BODY_SILENCE_SECONDS), 0)):
                return await self._receive()
        except TimeoutError:
            self._refuse(BODY_TOO_SLOW)

    def _refuse(self, refusal: Refusal) -> NoReturn:
        self.refusal = refusal
        raise BodyRefused


class BodyLimitMiddleware:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._budget = BodyMemoryBudget(MAX_HELD_BODY_BYTES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = body_limit_of(scope["path"])
        declared = Headers(scope=scope).get("content-length", "0")
        if not declared.isdigit():
            refusal = BODY_LENGTH_INVALID()
            await problem_response(refusal)(scope, receive, send)
        elif int(declared) > limit.most_bytes:
            await problem_response(limit.refusal())(scope, receive, send)
        else:
            await self._bounded(limit, scope, receive, send)

    async def _bounded(self, limit: BodyLimit, scope: Scope, receive: Receive, send: Send) -> None:
        body = BoundedBody(limit, receive, self._budget)
        scope["pressroom.body"] = body
        started = False

        async def watching_send(message: Message) -> None:
            nonlocal started
            # What the application makes of the broken read is replaced below.
            if body.refusal and not started:
                return
            started = True
            await send(message)

        try:
            with suppress(BodyRefused):
                await self._app(scope, body.receive, watching_send)
        finally:
            body.release()
        if body.refusal and not started:
            await problem_response(body.refusal())(scope, receive, send)


def release_body(scope: Scope) -> None:
    """Say that the request's body is kept nowhere in memory, though its answer takes a while."""
    scope["pressroom.body"].release()
