"""Reads the ``Idempotency-Key`` header of a request."""

import hashlib
import re
from urllib.parse import urlencode

from fastapi import Request

from core.errors import requests
from core.request_ids import current_request_id
from services.access.caller import Caller
from services.jobs.idempotency import IdempotencyKey

_KEY_FORM = re.compile(r"[\x20-\x7e]{16,255}\Z")


def read_idempotency_key(
    request: Request, caller: Caller, body: list[bytes]
) -> IdempotencyKey | None:
    """Return ``None`` if the request has no ``Idempotency-Key`` header."""
    name = request.headers.get("idempotency-key")
    if name is None:
        return None
    if not _KEY_FORM.match(name):
        raise requests.IDEMPOTENCY_KEY_INVALID()
    return _build_key(request, caller, body, name)


def read_or_build_key(request: Request, caller: Caller, body: list[bytes]) -> IdempotencyKey:
    """Return the idempotency key in the header, or else build one from the request id."""
    key = read_idempotency_key(request, caller, body)
    return key or _build_key(request, caller, body, current_request_id() or "")


def _build_key(request: Request, caller: Caller, body: list[bytes], name: str) -> IdempotencyKey:
    path = request.scope["path"]
    query = urlencode(sorted(request.query_params.multi_items()))
    digest = hashlib.sha256()
    for part in (request.method.encode(), path.encode(), query.encode(), *body):
        # Hash the length of each part, so that the parts ("ab", "c") and ("a", "bc") have different
        # fingerprints.
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    route = f"{request.method} {path}"
    if not caller.is_in_own_account:
        # Two people of an account can use the same key.
        route += f" by {caller.person_id}"
    return IdempotencyKey(caller.account_id, route, name, digest.digest())
