"""Limits the size of request bodies, and the time in which a body must arrive."""

import asyncio
import re
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import problem_response
from api.limits.body_budgets import MEGABYTE, BodyBudget, HeldBody, name_address_holder
from api.limits.places import current_place
from core.errors import imports, media, requests
from core.errors.catalogue import ErrorType
from core.ids import AccountId
from core.json_parsing import DEFAULT_JSON_LIMITS, JsonLimits
from core.upload_limits import MAX_IMAGE_BYTES, MAX_IMPORT_FILE_BYTES, MAX_MEMBERS_PER_REQUEST
from services.subscriptions.deny_lists import MAX_ENTRIES

# The maximum size of the part headers, boundaries and small fields in a multipart form.
MULTIPART_OVERHEAD_BYTES = 64 * 1024
# The maximum time between two chunks of a request body.
MAX_BODY_SILENCE_SECONDS = 20.0
# The time limit for receiving a whole request body. For example, a request body of 5 MB must arrive
# at an average rate of at least 60 KB/s.
MAX_BODY_SECONDS = 90.0
# The time limit for receiving an uploaded file with members. The upload of a file with members may
# take hours. The upload needs little memory, because the API stores the file while receiving it.
# For example, a file of 2 GB must arrive at an average rate of at least 150 KB/s.
MAX_IMPORT_FILE_SECONDS = 4 * 3600.0
# The time limit for receiving each part of a body that is kept in memory. For example, an 8 MB part
# of an uploaded file must arrive at an average rate of at least 14 KB/s.
MAX_HELD_SECONDS = 600.0
# The maximum time for which a request body waits while the caller's other bodies use all the memory
# allowed per caller. While a body waits for memory, the server doesn't read it, so the sender has
# to wait.
MAX_MEMORY_WAIT_SECONDS = 10.0
_MEMORY_POLL_SECONDS = 0.1
# The maximum size of a sign-up request. The size limit is low, because anyone can send sign-up
# requests without an account. A sign-up contains only a name, an e-mail address and values of
# public fields.
MAX_SIGN_UP_BYTES = 64 * 1024
# The maximum number of arrays and objects, and the maximum number of commas, for each row of a
# request that adds members.
MAX_VALUES_PER_ROW = 20

# The key of the request body in the ASGI scope.
BODY_KEY = "pressroom.body"


@dataclass(frozen=True)
class BodyLimit:
    """The limits for request bodies on paths that match ``path``.

    Attributes:
        error: the error for a body that has more than ``max_bytes``.
        max_seconds: the maximum time in which a body must arrive.
    """

    path: re.Pattern[str]
    max_bytes: int
    error: ErrorType
    max_seconds: float | None = None
    json_limits: JsonLimits = DEFAULT_JSON_LIMITS


def _json_limit(
    path: str, megabytes: int, json_limits: JsonLimits = DEFAULT_JSON_LIMITS
) -> BodyLimit:
    error = requests.BODY_TOO_LARGE.fill(most=f"{megabytes} MB")
    return BodyLimit(re.compile(path), megabytes * MEGABYTE, error, json_limits=json_limits)


def build_row_limits(rows: int) -> JsonLimits:
    return JsonLimits(
        max(rows * MAX_VALUES_PER_ROW, DEFAULT_JSON_LIMITS.max_containers),
        max(rows * MAX_VALUES_PER_ROW, DEFAULT_JSON_LIMITS.max_commas),
    )


# The limits for request bodies by path. The first limit whose pattern matches the path of a request
# applies.
LIMITS = (
    BodyLimit(
        re.compile(r"(/lists/[^/]+/imports|/console/imports/new)$"),
        MAX_IMPORT_FILE_BYTES + MULTIPART_OVERHEAD_BYTES,
        imports.IMPORT_TOO_LARGE,
        max_seconds=MAX_IMPORT_FILE_SECONDS,
    ),
    _json_limit(
        r"/auxilia/subscriptions/[^/]+/members/add$", 32, build_row_limits(MAX_MEMBERS_PER_REQUEST)
    ),
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
    # A deny list of the maximum length takes about 8 MB. A request has at most four lists of
    # addresses or domains.
    _json_limit(r"/deny-list$", 8, JsonLimits(max_commas=4 * MAX_ENTRIES + 1_000)),
    _json_limit(r"/webhooks/", 1),
    _json_limit(r"(/auxilia)?/composer/|/console/composer$", 8),
    _json_limit(r"", 2),
)


def find_body_limit(path: str) -> BodyLimit:
    return next(limit for limit in LIMITS if limit.path.match(path))


class BodyRefused(Exception):
    """An exception that stops a request's handler after its body was refused."""


class BoundedBody:
    """The body of a request while it arrives.

    Attributes:
        account_id: the account against whose memory budget the body counts. ``account_id`` must be
            set before the body is read.
        json_limits: the limits of a JSON body. A route can change them before the body is parsed.
        error: the error with which the body was refused, or ``None``.
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
        self._read_bytes = 0
        self._is_complete = False
        self._messages: deque[Message] = deque()
        now = asyncio.get_running_loop().time()
        self._deadline = now + (limit.max_seconds or MAX_BODY_SECONDS)
        self._held_until = now + MAX_HELD_SECONDS
        self.account_id: AccountId | None = None
        self.json_limits = limit.json_limits
        self.error: ErrorType | None = None

    @property
    def sender(self) -> str:
        """Return a key for the account, or else for the network."""
        if self.account_id is None:
            return name_address_holder(self._address)
        return f"owner {self.account_id}"

    async def is_within(self, max_bytes: int) -> bool:
        """Return whether the body has at most ``max_bytes`` bytes.

        Reading stops as soon as the body exceeds the limit. Later calls of ``receive`` return the
        messages that were read.
        """
        if self._declared_bytes > max_bytes:
            return False
        while not self._is_complete and self._read_bytes <= max_bytes:
            self._messages.append(await self._receive_next())
        return self._read_bytes <= max_bytes

    async def receive(self) -> Message:
        if self._messages:
            return self._messages.popleft()
        return await self._receive_next()

    async def _receive_next(self) -> Message:
        if self._is_complete:
            # The body is complete, so no deadline applies while the application waits for the
            # client to disconnect.
            return await self._receive()
        if self._held is None:
            holders = {name_address_holder(self._address), self.sender}
            self._held = HeldBody(self._budget, *holders)
            if error := self._held.begin():
                self._refuse(error)
        held = self._held
        seconds = min(self._deadline, self._held_until) - asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(max(min(seconds, MAX_BODY_SILENCE_SECONDS), 0)):
                with current_place().paused():
                    message = await self._receive()
        except TimeoutError:
            self._refuse(requests.BODY_TOO_SLOW)
        chunk_bytes = len(message.get("body", b""))
        self._read_bytes += chunk_bytes
        if self._read_bytes > self._limit.max_bytes:
            self._refuse(self._limit.error)
        await self._reserve_memory(held, chunk_bytes)
        self._is_complete = not message.get("more_body", False)
        if self._is_complete:
            held.finish()
        return message

    def move_to_large_pool(self) -> None:
        """Count the body against the pool for large bodies, because it stays in memory while the
        request waits for a worker.
        """
        if self._held is not None and (error := self._held.move_to_large_pool()):
            raise error()

    def release(self) -> None:
        """Release the memory of the chunks that were processed."""
        self._held_until = asyncio.get_running_loop().time() + MAX_HELD_SECONDS
        if self._held is not None:
            self._held.release()

    def finish(self) -> None:
        if self._held is not None:
            self._held.finish()
            self._held.release()

    async def _reserve_memory(self, held: HeldBody, chunk_bytes: int) -> None:
        """Wait while the caller's other bodies use too much memory."""
        deadline = asyncio.get_running_loop().time() + MAX_MEMORY_WAIT_SECONDS
        while error := held.take(chunk_bytes):
            if error is requests.SERVICE_BUSY or asyncio.get_running_loop().time() > deadline:
                self._refuse(error)
            await asyncio.sleep(_MEMORY_POLL_SECONDS)

    def _refuse(self, error: ErrorType) -> NoReturn:
        self.error = error
        raise BodyRefused


class BodyLimitMiddleware:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._budget = BodyBudget()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        limit = find_body_limit(scope["path"])
        declared = Headers(scope=scope).get("content-length", "0")
        if not declared.isdigit() or int(declared) > limit.max_bytes:
            error = limit.error if declared.isdigit() else requests.BODY_LENGTH_INVALID
            await problem_response(error())(scope, receive, send)
            return
        address = scope["client"][0] if scope.get("client") else ""
        body = BoundedBody(
            limit, receive, self._budget, address=address, declared_bytes=int(declared)
        )
        scope[BODY_KEY] = body
        has_started = False

        async def send_unless_refused(message: Message) -> None:
            nonlocal has_started
            # The middleware sends an error response for a refused body, so drop the handler's
            # response.
            if body.error and not has_started:
                return
            has_started = True
            await send(message)

        try:
            with suppress(BodyRefused):
                await self._app(scope, body.receive, send_unless_refused)
        finally:
            body.finish()
        if body.error and not has_started:
            await problem_response(body.error())(scope, receive, send)


def body_of(scope: Scope) -> BoundedBody:
    body: BoundedBody = scope[BODY_KEY]
    return body


def release_body(scope: Scope) -> None:
    """Release the memory of the request body before the response is ready."""
    body_of(scope).release()
