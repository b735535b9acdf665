"""Keeps the values of a form whose action needs a recent login.

An encrypted cookie carries the fields from the refused form to the same form after the login. The
form is shown again but never sent, because the person must see what the session is about to do.
"""

from collections.abc import Mapping
from datetime import datetime

import orjson
from fastapi import Request, Response

from api.auth.csrf import CSRF_FIELD
from api.cookies import INTERRUPTED_FORM_COOKIE, INTERRUPTED_FORM_LIFETIME
from api.state import State
from core import clock
from services.access.caller import Caller
from services.accounts.page_paths import OVERVIEW_PATH
from storage import encryption
from storage.encryption import DecryptionFailed

# Browsers reject cookies of more than 4,096 bytes, and encryption makes the fields longer.
MAX_FORM_BYTES = 2_700
_PURPOSE = "interrupted-form"


def keep_form(
    request: Request, response: Response, state: State, caller: Caller, fields: Mapping[str, str]
) -> None:
    """Set the cookie, unless the form is too long or outside the console.

    The account pages aren't in the console. Their forms contain passwords and codes.
    """
    path = request.scope["path"]
    if not path.startswith(f"{OVERVIEW_PATH}/"):
        return
    typed = {name: value for name, value in fields.items() if name != CSRF_FIELD}
    content = {
        "user_id": caller.person_id,
        "session_id": caller.session_id,
        "path": path,
        "fields": typed,
        "kept_at": clock.now(),
    }
    plain = orjson.dumps(content)
    if len(plain) <= MAX_FORM_BYTES:
        text = encryption.seal_text(state.resources.keyring, plain, _PURPOSE)
        state.cookies.set(response, INTERRUPTED_FORM_COOKIE, text)


def read_kept_form(request: Request, state: State, caller: Caller) -> dict[str, str] | None:
    """Return the fields that this person typed on this page before the login, or ``None``.

    The session that sent the form gets ``None``, because a login begins a new session.
    """
    text = state.cookies.read(request, INTERRUPTED_FORM_COOKIE)
    if not text:
        return None
    try:
        content = orjson.loads(encryption.open_text(state.resources.keyring, text, _PURPOSE))
    except DecryptionFailed:
        return None
    is_own = content["user_id"] == caller.person_id and content["path"] == request.scope["path"]
    has_logged_in = content["session_id"] != caller.session_id
    kept_at = datetime.fromisoformat(content["kept_at"])
    is_current = kept_at > clock.now() - INTERRUPTED_FORM_LIFETIME
    return dict(content["fields"]) if is_own and has_logged_in and is_current else None
