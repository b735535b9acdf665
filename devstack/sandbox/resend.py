"""Simulates Resend's API for sending mail, and stores the mails in the sandbox's mailbox.

The sandbox plays ``POST /emails`` as https://resend.com/docs/api-reference/emails/send-email
describes it: the bearer key, the fields ``from``, ``to``, ``subject``, ``html``, ``text``,
``headers`` and ``reply_to``, the ``Idempotency-Key``, and the shapes of results and errors. A
request with a field of Resend's API that isn't listed here gets an error. Unlike Resend, the
sandbox accepts each domain as a sender, and doesn't build a text part from the HTML part.
"""

import hashlib
import json
import uuid
from collections import OrderedDict
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from devstack.sandbox.mail_apis import (
    MailApiRoute,
    Outbox,
    OutgoingMail,
    RequestRefused,
    describe_error,
    read_body,
)
from devstack.sandbox.mailbox import Mailbox
from devstack.sandbox.sandbox_settings import RESEND_API_KEY

_MAX_RECIPIENTS = 50
_MAX_KEY_CHARACTERS = 256
# The number of idempotency keys that the sandbox remembers. Resend remembers an idempotency key for
# 24 hours.
MAX_KEYS = 10_000


class NewEmail(BaseModel):
    model_config = ConfigDict(extra="forbid")

    sender: str = Field(alias="from")
    to: list[str] = Field(min_length=1, max_length=_MAX_RECIPIENTS)
    subject: str
    html: str | None = None
    text: str | None = None
    headers: dict[str, str] = {}
    reply_to: list[str] = []

    @field_validator("to", "reply_to", mode="before")
    @classmethod
    def accept_single_address(cls, value: object) -> object:
        return [value] if isinstance(value, str) else value

    def build_mail(self) -> OutgoingMail:
        reply_to = [("Reply-To", ", ".join(self.reply_to))] if self.reply_to else []
        headers = [*self.headers.items(), *reply_to]
        return OutgoingMail(self.sender, self.to, self.subject, self.text, self.html, headers)


class IdempotencyKeys:
    """Maps each idempotency key to the digest of the request's body and the id of the mail.

    The mail's id is ``None`` while the first request with the idempotency key is in progress.
    """

    def __init__(self) -> None:
        self._mails: OrderedDict[str, tuple[str, str | None]] = OrderedDict()

    def find(self, key: str) -> tuple[str, str | None] | None:
        return self._mails.get(key)

    def store(self, key: str, digest: str, mail_id: str | None) -> None:
        self._mails[key] = (digest, mail_id)
        while len(self._mails) > MAX_KEYS:
            self._mails.popitem(last=False)

    def forget(self, key: str) -> None:
        self._mails.pop(key, None)


def refuse(
    status: int, name: str, message: str, headers: dict[str, str] | None = None
) -> RequestRefused:
    content: dict[str, object] = {"statusCode": status, "name": name, "message": message}
    return RequestRefused(status, content, headers)


def build_router(mailbox: Mailbox) -> APIRouter:
    router = APIRouter(route_class=MailApiRoute)
    outbox = Outbox(mailbox)
    keys = IdempotencyKeys()

    @router.post("/emails", dependencies=[Depends(_require_credential)])
    async def send_email(
        request: Request, idempotency_key: Annotated[str | None, Header()] = None
    ) -> dict[str, str]:
        body = await read_body(request)
        if body is None:
            raise refuse(413, "validation_error", "The request is too large.")
        mail = _parse_email(body).build_mail()
        if idempotency_key is None:
            return {"id": await _send(outbox, mail)}
        if not 1 <= len(idempotency_key) <= _MAX_KEY_CHARACTERS:
            message = "The key must be between 1-256 chars."
            raise refuse(400, "invalid_idempotency_key", message)
        digest = hashlib.sha256(json.dumps(json.loads(body), sort_keys=True).encode()).hexdigest()
        if known := keys.find(idempotency_key):
            return {"id": _get_known_id(*known, digest)}
        keys.store(idempotency_key, digest, None)
        try:
            mail_id = await _send(outbox, mail)
        except BaseException:
            keys.forget(idempotency_key)
            raise
        keys.store(idempotency_key, digest, mail_id)
        return {"id": mail_id}

    return router


async def _require_credential(authorization: Annotated[str, Header()] = "") -> None:
    if not authorization:
        raise refuse(401, "missing_api_key", "Missing API key in the authorization header.")
    if authorization != f"Bearer {RESEND_API_KEY}":
        raise refuse(403, "invalid_api_key", "API key is invalid.")


def _parse_email(body: bytes) -> NewEmail:
    try:
        email = NewEmail.model_validate_json(body)
    except ValidationError as error:
        name, kind, message = describe_error(error)
        if kind == "missing":
            missing = f"Missing `{name}` field."
            raise refuse(422, "missing_required_field", missing) from None
        if kind == "json_invalid":
            raise refuse(400, "validation_error", message) from None
        if kind == "extra_forbidden":
            message = "The sandbox doesn't support the field."
        raise refuse(422, "validation_error", f"Invalid `{name}` field. {message}") from None
    if not email.html and not email.text:
        raise refuse(422, "validation_error", "Missing `html` or `text` field.")
    return email


async def _send(outbox: Outbox, mail: OutgoingMail) -> str:
    try:
        failed_attempt = await outbox.send(mail)
    except ValueError as error:
        raise refuse(422, "validation_error", str(error)) from None
    if failed_attempt == 1:
        limits = {"Retry-After": "1", "ratelimit-remaining": "0", "ratelimit-reset": "1"}
        raise refuse(429, "rate_limit_exceeded", "Too many requests.", limits)
    if failed_attempt:
        raise refuse(500, "internal_server_error", "An unexpected error occurred.")
    return str(uuid.uuid4())


def _get_known_id(known_digest: str, mail_id: str | None, digest: str) -> str:
    """Return the id of the mail that an earlier request with the same idempotency key sent.

    Raises ``RequestRefused`` if the earlier request has a different body or is in progress.
    """
    if known_digest != digest:
        message = "Same idempotency key used with a different request payload."
        raise refuse(409, "invalid_idempotent_request", message)
    if mail_id is None:
        message = "Same idempotency key used while original request is still in progress."
        raise refuse(409, "concurrent_idempotent_requests", message)
    return mail_id
