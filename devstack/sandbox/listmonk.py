"""Simulates listmonk's API for transactional mails, and stores the mails in the sandbox's mailbox.

The sandbox accepts the following API calls with an API user and its token, as documented at
https://listmonk.app/docs/apis/apis/:

- ``GET /api/templates``, ``POST /api/templates`` and ``PUT /api/templates/{id}``, for templates of
  the type ``tx``.
- ``POST /api/tx`` with the ``subscriber_mode`` ``external``, which mails to addresses that listmonk
  doesn't store.

In a template, the sandbox replaces ``{{ .Tx.Data.NAME }}`` and ``{{ .Subscriber.Email }}`` with
values from the request. The sandbox rejects requests that use other template actions or other
fields of listmonk.
"""

import base64
import html
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Depends, Header, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from devstack.sandbox.mail_apis import (
    MailApiRoute,
    Outbox,
    OutgoingMail,
    RequestRefused,
    describe_error,
    read_body,
    require_address,
)
from devstack.sandbox.mailbox import Mailbox
from devstack.sandbox.sandbox_settings import LISTMONK_TOKEN, LISTMONK_USER

MAX_TEMPLATES = 100
_MAX_RECIPIENTS = 100
_MAX_NAME_CHARACTERS = 200
_SENDER = "listmonk <noreply@listmonk.example>"
_ACTION = re.compile(r"\{\{([^{}]*)\}\}")
_DATA_ACTION = re.compile(r"\.Tx\.Data((?:\.\w+)+)")
_EMAIL_ACTION = ".Subscriber.Email"


class NewTemplate(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=_MAX_NAME_CHARACTERS)
    type: Literal["tx"]
    subject: str
    body: str


class NewMessage(BaseModel):
    model_config = ConfigDict(extra="forbid")

    subscriber_mode: Literal["external"]
    subscriber_emails: list[str] = Field(min_length=1, max_length=_MAX_RECIPIENTS)
    template_id: int
    from_email: str = _SENDER
    subject: str = ""
    data: dict[str, Any] = {}
    headers: list[dict[str, str]] = []
    content_type: Literal["html"] = "html"
    messenger: Literal["email"] = "email"


_Parsed = TypeVar("_Parsed", bound=BaseModel)


class Templates:
    """Stores the templates of the simulated listmonk. Template ids begin with 1."""

    def __init__(self) -> None:
        self._templates: list[dict[str, Any]] = []

    def list_all(self) -> list[dict[str, Any]]:
        return self._templates

    def get(self, template_id: int) -> dict[str, Any]:
        if not 1 <= template_id <= len(self._templates):
            raise refuse(400, f"Template {template_id} doesn't exist.")
        return self._templates[template_id - 1]

    def add(self, new_template: NewTemplate) -> dict[str, Any]:
        if len(self._templates) >= MAX_TEMPLATES:
            raise refuse(400, f"The sandbox stores at most {MAX_TEMPLATES} templates.")
        now = datetime.now(UTC).isoformat()
        template = {
            "id": len(self._templates) + 1,
            "created_at": now,
            "is_default": False,
            **_describe(new_template, now),
        }
        self._templates.append(template)
        return template

    def replace(self, template_id: int, new_template: NewTemplate) -> dict[str, Any]:
        template = self.get(template_id)
        template |= _describe(new_template, datetime.now(UTC).isoformat())
        return template


def _describe(new_template: NewTemplate, now: str) -> dict[str, Any]:
    # Render the template now, so that a template with an unsupported action is rejected.
    for text in (new_template.subject, new_template.body):
        render_template(text, {}, "")
    return {"updated_at": now, **new_template.model_dump()}


def refuse(status: int, message: str) -> RequestRefused:
    return RequestRefused(status, {"message": message})


def build_router(mailbox: Mailbox) -> APIRouter:
    router = APIRouter(route_class=MailApiRoute, dependencies=[Depends(_require_credential)])
    outbox = Outbox(mailbox)
    templates = Templates()

    @router.get("/api/templates")
    async def list_templates() -> dict[str, Any]:
        return {"data": templates.list_all()}

    @router.post("/api/templates")
    async def create_template(request: Request) -> dict[str, Any]:
        return {"data": templates.add(await _parse(request, NewTemplate))}

    @router.put("/api/templates/{template_id}")
    async def replace_template(template_id: int, request: Request) -> dict[str, Any]:
        return {"data": templates.replace(template_id, await _parse(request, NewTemplate))}

    @router.post("/api/tx")
    async def send_message(request: Request) -> dict[str, Any]:
        message = await _parse(request, NewMessage)
        template = templates.get(message.template_id)
        try:
            mails = _build_mails(message, template)
            failed_attempts = [await outbox.send(mail) for mail in mails]
        except ValueError as error:
            raise refuse(400, str(error)) from None
        if 1 in failed_attempts:
            raise refuse(429, "message push timed out")
        if any(failed_attempts):
            raise refuse(500, "Internal Server Error")
        return {"data": True}

    return router


async def _require_credential(authorization: Annotated[str, Header()] = "") -> None:
    """Require the API user and token, in one of the two forms that listmonk accepts."""
    credential = f"{LISTMONK_USER}:{LISTMONK_TOKEN}"
    basic = base64.b64encode(credential.encode()).decode()
    if authorization not in {f"token {credential}", f"Basic {basic}"}:
        raise refuse(403, "invalid API credentials")


def render_template(
    text: str,
    data: Mapping[str, Any],
    email: str,
    escape: Callable[[str], str] = html.escape,
) -> str:
    """Replace a template action without a value by an empty string, as in listmonk."""

    def replace(action: re.Match[str]) -> str:
        expression = action[1].strip()
        if expression == _EMAIL_ACTION:
            return escape(email)
        path = _DATA_ACTION.fullmatch(expression)
        if path is None:
            raise refuse(400, f"The sandbox doesn't support the action {action[0]}.")
        value: Any = data
        for name in path[1].removeprefix(".").split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        return "" if value is None else escape(str(value))

    return _ACTION.sub(replace, text)


def _build_mails(message: NewMessage, template: Mapping[str, Any]) -> list[OutgoingMail]:
    """Return a mail for each recipient, or raise ``ValueError`` for an invalid address."""
    headers = [item for each in message.headers for item in each.items()]
    mails = []
    for email in message.subscriber_emails:
        require_address(email)
        subject = message.subject or render_template(
            template["subject"], message.data, email, escape=str
        )
        body = render_template(template["body"], message.data, email)
        mails.append(OutgoingMail(message.from_email, [email], subject, html=body, headers=headers))
    return mails


async def _parse(request: Request, kind: type[_Parsed]) -> _Parsed:
    body = await read_body(request)
    if body is None:
        raise refuse(413, "The request is too large.")
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        name, error_type, message = describe_error(error)
        if error_type == "extra_forbidden":
            message = "The sandbox doesn't support the field."
        raise refuse(400, f"Invalid field {name}: {message}") from None
