"""Encrypts the answers in a sign-up form for the page that follows the form.

The page after the form shows the reader's e-mail address. An address in a URL would end up in logs
and in the browser's history. A cookie carries the encrypted answers to the page instead. On the
page, a hidden input carries them to the next request.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import orjson
from fastapi import Request, Response

from api.cookies import SIGN_UP_COOKIE, SIGN_UP_COOKIE_LIFETIME
from api.state import State
from core import clock
from core.keyring import Keyring
from services.subscriptions.sign_up_origins import ORIGIN_NAMES
from storage import encryption
from storage.encryption import DecryptionFailed

# The hidden input is valid longer than the cookie, because readers may wait a while for the mail.
# The lifetime starts when the form is sent, so that a solved CAPTCHA allows only a few mails.
INPUT_LIFETIME = timedelta(hours=1)
# Browsers reject cookies of more than 4,096 bytes, and encryption makes the answers longer.
_MAX_ANSWERS_BYTES = 2_000
_PURPOSE = "sign-up-answers"


@dataclass(frozen=True)
class SentAnswers:
    """The answers that a reader has sent with a sign-up form.

    Attributes:
        values: the typed values in the format of ``nest_inputs``, and the origin of the sign-up.
        mailed_at: when the form or the button *Send again* last requested a confirmation mail.
    """

    list_id: int
    values: Mapping[str, Any]
    submitted_at: datetime
    mailed_at: datetime

    @property
    def email(self) -> str:
        return str(self.values["email"])


def set_answers_cookie(response: Response, state: State, answers: SentAnswers) -> None:
    state.cookies.set(response, SIGN_UP_COOKIE, seal_answers(state.resources.keyring, answers))


def read_answers_cookie(request: Request, state: State, list_id: int) -> SentAnswers | None:
    text = state.cookies.read(request, SIGN_UP_COOKIE) or ""
    return open_answers(state.resources.keyring, text, list_id, SIGN_UP_COOKIE_LIFETIME)


def seal_answers(keyring: Keyring, answers: SentAnswers) -> str:
    """Encrypt the answers as text for a cookie or a hidden input.

    If the answers are too long for a cookie, the function leaves out the origin of the sign-up. If
    they are still too long, the function keeps only the e-mail address.
    """
    plain = _serialize(answers)
    if len(plain) > _MAX_ANSWERS_BYTES:
        typed = {name: value for name, value in answers.values.items() if name not in ORIGIN_NAMES}
        plain = _serialize(replace(answers, values=typed))
    if len(plain) > _MAX_ANSWERS_BYTES:
        plain = _serialize(replace(answers, values={"email": answers.email}))
    return encryption.seal_text(keyring, plain, _PURPOSE)


def open_answers(
    keyring: Keyring, text: str, list_id: int, lifetime: timedelta
) -> SentAnswers | None:
    """Return ``None`` if the text is forged, older than ``lifetime`` or about another list, or if
    the form was sent more than ``INPUT_LIFETIME`` ago.
    """
    try:
        content = orjson.loads(encryption.open_text(keyring, text, _PURPOSE))
    except DecryptionFailed:
        return None
    sealed_at, submitted_at, mailed_at = (
        datetime.fromisoformat(content[name]) for name in ("sealed_at", "submitted_at", "mailed_at")
    )
    now = clock.now()
    is_current = sealed_at > now - lifetime and submitted_at > now - INPUT_LIFETIME
    if not is_current or content["list_id"] != list_id:
        return None
    return SentAnswers(list_id, content["values"], submitted_at, mailed_at)


def _serialize(answers: SentAnswers) -> bytes:
    return orjson.dumps({**asdict(answers), "sealed_at": clock.now()})
