"""The ``Idempotency-Key`` header of a request."""

import hashlib
import re
from urllib.parse import urlencode

from fastapi import Request

from core.errors import requests
from core.request_ids import current_request_id
from services.access.caller import Caller
from services.jobs.idempotency import IdempotencyKey

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
