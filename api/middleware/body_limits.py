"""Limits of request bodies, enforced while a body is read: no larger body is ever held."""

import asyncio
import re
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import problem_response
from api.limits.body_budgets import MEGABYTE, BodyBudget, HeldBody, holder_of_address
from core.errors import imports, media, requests
from core.errors.catalogue import ErrorType
from core.upload_limits import MAX_IMAGE_BYTES, MAX_IMPORT_FILE_BYTES

# Part headers, boundaries and a few small fields around the file.
MULTIPART_OVERHEAD_BYTES = 64 * 1024
# Between two chunks of a body, and for the whole body: 5 MB in that time is 60 KB/s.
MAX_BODY_SILENCE_SECONDS = 20.0
MAX_BODY_SECONDS = 90.0
# A file of members is stored while it arrives and held nowhere, so a slow one does no harm: 2 GB in
# four hours are 150 KB/s.
MAX_IMPORT_FILE_SECONDS = 4 * 3600.0
# Until bytes that are held leave memory: 8 MB in that time are 14 KB/s.
MAX_HELD_SECONDS = 600.0
# For room in the caller's own share: until then the sender is not read from, and so stops.
MAX_ROOM_SECONDS = 10.0
_ROOM_POLL_SECONDS = 0.1

_BODY = "pressroom.body"


@dataclass(frozen=True)
class BodyLimit:
    path: re.Pattern[str]
    max_bytes: int
    error: ErrorType
    # For the whole body, however steadily it arrives; ``None``: MAX_BODY_SECONDS.
    max_seconds: float | None = None


def _json_limit(path: str, megabytes: int) -> BodyLimit:
    error = requests.BODY_TOO_LARGE.fill(most=f"{megabytes} MB")
    return BodyLimit(re.compile(path), megabytes * MEGABYTE, error)


# Anybody can send a sign-up, so its body has a lower limit than other bodies. A sign-up contains
# only a name, an address and values of public fields.
MAX_SIGN_UP_BYTES = 64 * 1024

# The first limit whose pattern matches the path counts.
LIMITS = (
    BodyLimit(
        re.compile(r"(/lists/[^/]+/imports|/console/imports/new)$"),
        MAX_IMPORT_FILE_BYTES + MULTIPART_OVERHEAD_BYTES,
        imports.IMPORT_TOO_LARGE,
        max_seconds=MAX_IMPORT_FILE_SECONDS,
    ),
    _json_limit(r"/auxilia/subscriptions/[^/]+/members/add$", 32),
    BodyLimit(
        re.compile(r"/subscriptions/[^/]+$"),
        MAX_SIGN_UP_BYTES,
        requests.BODY_TOO_LARGE.fill(most="64 KB"),
    ),
    BodyLimit(
        re.compile(r"(/attachments|/console/images)$"),
        MAX_IMAGE_BYTES + MULTIPART_OVERHEAD_BYTES,
        media.ATTACHMENT_TOO_LARGE,
    ),
    # All entries of a deny list, of the usual length.
    _json_limit(r"/deny-list$", 8),
    _json_limit(r"/webhooks/", 1),
    _json_limit(r"(/auxilia)?/composer/|/console/composer$", 8),
    _json_limit(r"", 2),
)


def body_limit_of(path: str) -> BodyLimit:
    return next(limit for limit in LIMITS if limit.path.match(path))


class BodyRefused(Exception):
    """Unwinds the handler that was reading the body; never leaves the middleware."""


class BoundedBody:
    """The body of a request while it arrives. Once it has an ``error``, no more of it is read.

    Attributes:
        owner_id: whose budget it counts against, beside that of the address, if known in time.
    """

    def __init__(
        self,
        limit: BodyLimit,
        receive: Receive,
        budget: BodyBudget,
        *,
        address: str = "",
        declared_bytes: int = 0,
    ) -> None:
        self._limit = limit
        self._receive = receive
        self._budget = budget
        self._address = address
        self._declared_bytes = declared_bytes
        self._held: HeldBody | None = None
        self._read = 0
        self._complete = False
        self._messages: deque[Message] = deque()
        now = asyncio.get_running_loop().time()
        self._deadline = now + (limit.max_seconds or MAX_BODY_SECONDS)
        self._held_until = now + MAX_HELD_SECONDS
        self.owner_id: int | None = None
        self.error: ErrorType | None = None

    async def is_within(self, max_bytes: int) -> bool:
        """Return whether the body has at most ``max_bytes``.

        No more of the body is read than this needs. ``receive`` returns these messages again.
        """
        if self._declared_bytes > max_bytes:
            return False
        while not self._complete and self._read <= max_bytes:
            self._messages.append(await self._receive_next())
        return self._read <= max_bytes

    async def receive(self) -> Message:
        if self._messages:
            return self._messages.popleft()
        return await self._receive_next()

    async def _receive_next(self) -> Message:
        if self._complete:
            # The next message is the end of the connection, for which there is no deadline.
            return await self._receive()
        if self._held is None:
            owner = [] if self.owner_id is None else [f"owner {self.owner_id}"]
            self._held = HeldBody(self._budget, holder_of_address(self._address), *owner)
            if error := self._held.begin():
                self._refuse(error)
        held = self._held
        seconds = min(self._deadline, self._held_until) - asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(max(min(seconds, MAX_BODY_SILENCE_SECONDS), 0)):
                message = await self._receive()
        except TimeoutError:
            self._refuse(requests.BODY_TOO_SLOW)
        count = len(message.get("body", b""))
        self._read += count
        if self._read > self._limit.max_bytes:
            self._refuse(self._limit.error)
        await self._take(held, count)
        self._complete = not message.get("more_body", False)
        if self._complete:
            held.end()
        return message

    def keep(self) -> None:
        """Count the body among the large ones: its caller waits, and small bodies must find room.

        Raises ``body.too_many_unfinished`` and ``service.busy``.
        """
        if self._held is not None and (error := self._held.keep()):
            raise error()

    def release(self) -> None:
        """Give the body's bytes back to the budget: nothing holds them in memory any more."""
        self._held_until = asyncio.get_running_loop().time() + MAX_HELD_SECONDS
        if self._held is not None:
            self._held.release()

    def end(self) -> None:
        """The request has ended, whether or not its body was read."""
        if self._held is not None:
            self._held.end()
            self._held.release()

    async def _take(self, held: HeldBody, count: int) -> None:
        """Wait for a while when the caller's other bodies take all of its share."""
        until = asyncio.get_running_loop().time() + MAX_ROOM_SECONDS
        while error := held.take(count):
            if error is requests.SERVICE_BUSY or asyncio.get_running_loop().time() > until:
                self._refuse(error)
            await asyncio.sleep(_ROOM_POLL_SECONDS)

    def _refuse(self, error: ErrorType) -> NoReturn:
        self.error = error
        raise BodyRefused


class BodyLimitMiddleware:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._budget = BodyBudget()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        limit = body_limit_of(scope["path"])
        declared = Headers(scope=scope).get("content-length", "0")
        if not declared.isdigit() or int(declared) > limit.max_bytes:
            error = limit.error if declared.isdigit() else requests.BODY_LENGTH_INVALID
            await problem_response(error())(scope, receive, send)
            return
        address = scope["client"][0] if scope.get("client") else ""
        body = BoundedBody(
            limit, receive, self._budget, address=address, declared_bytes=int(declared)
        )
        scope[_BODY] = body
        started = False

        async def watching_send(message: Message) -> None:
            nonlocal started
            # Drop the handler's own answer to the broken read: the error below replaces it.
            if body.error and not started:
                return
            started = True
            await send(message)

        try:
            with suppress(BodyRefused):
                await self._app(scope, body.receive, watching_send)
        finally:
            body.end()
        if body.error and not started:
            await problem_response(body.error())(scope, receive, send)


def body_of(scope: Scope) -> BoundedBody:
    body: BoundedBody = scope[_BODY]
    return body


def release_body(scope: Scope) -> None:
    """Say that nothing holds the request's body any more, though its answer may take a while."""
    body_of(scope).release()
