"""Reads the account that a request names, and names the caller's account in the response."""

from fastapi import Request

from core.errors.teams import ACCOUNT_NOT_FOUND
from core.ids import MAX_ID, AccountId
from services.access.caller import Caller

ACCOUNT_HEADER = "Pressroom-Account"


def read_account_id(request: Request) -> AccountId | None:
    text = request.headers.get(ACCOUNT_HEADER)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MAX_ID))):
        raise ACCOUNT_NOT_FOUND()
    return AccountId(int(text))


def name_account(request: Request, caller: Caller) -> None:
    """Add the header with the caller's account to the response, once per request."""
    headers = request.scope["pressroom.headers"]
    header = (ACCOUNT_HEADER.lower().encode(), str(caller.account_id).encode())
    if header not in headers:
        headers.append(header)
