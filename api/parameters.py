"""Parameters that many routes take: ids, pages, the ``Idempotency-Key`` header."""

import hashlib
import re
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Depends, Path, Query, Request, Response
from pydantic import BeforeValidator

from api.state import State, state_of
from core import ids
from core.errors import DomainError, requests
from core.request_ids import current_request_id
from services.access.caller import Caller
from services.accounts import email_addresses
from services.jobs.idempotency import IdempotencyKey
from services.paging import WHOLE, PageOfRows, PageRequest
from services.subscriptions import lists
from storage.unit_of_work import UnitOfWork

MAX_PAGE_ITEMS = 1000


# A coroutine, since FastAPI would run a plain function in a thread.
async def _shared(request: Request) -> State:
    return state_of(request)


StateOf = Annotated[State, Depends(_shared)]


async def _unit_of_work(state: StateOf) -> UnitOfWork:
    return state.resources.unit_of_work()


# A handler in a thread has it committed before its answer.
Transaction = Annotated[UnitOfWork, Depends(_unit_of_work)]


def id_of(text: str) -> int | None:
    """Parse an id; return ``None`` unless the text is an unsigned 64-bit integer.

    A number above the largest possible id becomes 0, so that no record is found. Forms need this
    function too, because ``int`` raises an error for a number with thousands of digits.
    """
    if not re.fullmatch(r"[0-9]{1,20}", text) or int(text) > ids.MAX_UINT64:
        return None
    return int(text) if int(text) <= ids.MAX_ID else 0


def id_or_text(text: str | None) -> int | str | None:
    """Return the id in a field of a form. The schema of a body refuses any other text."""
    number = id_of(text) if text else None
    return (text or None) if number is None else number


def _path_id(value: object) -> int:
    number = id_of(str(value))
    if number is None:
        raise ValueError("must be an unsigned 64-bit integer")
    return number


PathId = Annotated[int, BeforeValidator(_path_id)]


def _list_name(value: object) -> int | str:
    """Read a list's id, where one above every id is 0, or its slug."""
    try:
        number = lists.id_of(str(value))
    except DomainError:
        raise ValueError(_LIST_NAME_RULE) from None
    return str(value) if number is None else number


_LIST_NAME_RULE = "must be an unsigned 64-bit integer or the slug of a list"
ListName = Annotated[
    int | str, BeforeValidator(_list_name), Path(description="The list's id or slug")
]


async def _list_id(state: StateOf, list_id: ListName) -> int:
    """Return the id of the list that the path names; raises ``list.not_found``."""
    if isinstance(list_id, int):
        return list_id
    # The route itself asks whether it is archived.
    return (await state.in_unit_of_work(lists.get_named, list_id, archived=True)).id


ListId = Annotated[int, Depends(_list_id)]


def _member_name(value: object) -> int | str:
    """Read a member's user id, as ``_path_id`` does, or the address, normalised."""
    text = str(value)
    try:
        return email_addresses.normalise(text) if "@" in text else _path_id(value)
    except (DomainError, ValueError):
        raise ValueError("must be an unsigned 64-bit integer or an e-mail address") from None


MemberName = Annotated[
    int | str,
    BeforeValidator(_member_name),
    Path(description="The member's user id, or the address that the list has of them"),
]

Offset = Annotated[int, Query(ge=0, le=ids.MAX_ID, description="How many to skip, newest first")]
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE_ITEMS, description="How many to answer at most")]

Cursor = Annotated[
    str | None, Query(description="next_cursor of the page before, instead of an offset")
]

ArrayCursor = Annotated[
    str | None, Query(description="That of the link to the next page, in the header Link")
]


async def _page_request(
    offset: Offset = 0, limit: Limit = 50, cursor: Cursor = None
) -> PageRequest:
    return PageRequest(limit, offset, cursor)


Paging = Annotated[PageRequest, Depends(_page_request)]


async def _array_request(limit: Limit = WHOLE.limit, cursor: ArrayCursor = None) -> PageRequest:
    return PageRequest(limit, cursor=cursor)


# The page of a list whose answer is a bare array.
ArrayPaging = Annotated[PageRequest, Depends(_array_request)]


def link_next(request: Request, response: Response, shown: PageOfRows[Any]) -> None:
    """Let the header ``Link`` (RFC 8288) lead to the next page of a bare array, if there is one."""
    if shown.next_cursor is not None:
        query = urlencode({**request.query_params, "cursor": shown.next_cursor})
        response.headers["Link"] = f'<?{query}>; rel="next"'


_IDEMPOTENCY_KEY = re.compile(r"[\x20-\x7e]{16,255}\Z")


def idempotency_key(request: Request, caller: Caller, body: list[bytes]) -> IdempotencyKey | None:
    """Return the request's ``Idempotency-Key``, with the fingerprint of the request."""
    sent = request.headers.get("idempotency-key")
    if sent is None:
        return None
    if not _IDEMPOTENCY_KEY.match(sent):
        raise requests.IDEMPOTENCY_KEY_INVALID()
    return _named(request, caller, body, sent)


def named_call(request: Request, caller: Caller, body: list[bytes]) -> IdempotencyKey:
    """Name the call by its ``Idempotency-Key``, or else by its request id."""
    sent = idempotency_key(request, caller, body)
    return sent or _named(request, caller, body, current_request_id() or "")


def _named(request: Request, caller: Caller, body: list[bytes], name: str) -> IdempotencyKey:
    path = request.scope["path"]
    query = urlencode(sorted(request.query_params.multi_items()))
    digest = hashlib.sha256()
    for part in (request.method.encode(), path.encode(), query.encode(), *body):
        # The length before each part keeps ("ab", "c") apart from ("a", "bc").
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return IdempotencyKey(caller.user_id, f"{request.method} {path}", name, digest.digest())
