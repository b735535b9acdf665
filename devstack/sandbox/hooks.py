"""Receives webhooks, shows them to developers, and simulates delivery failures on request."""

import asyncio
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from itertools import count
from typing import Annotated, Any

from fastapi import APIRouter, Form, HTTPException, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import BaseModel, Field
from standardwebhooks import Webhook, WebhookVerificationError

from devstack.sandbox import render

MAX_HOOKS = 200
MAX_HOOK_BYTES = 256 * 1024
_MAX_SLOW_SECONDS = 120.0


@dataclass(frozen=True)
class StoredHook:
    id: int
    # The name of the receiver, which is the last part of the URL's path.
    name: str
    received_at: datetime
    # The id of the message, which is the same in each delivery attempt. The delivery attempts of a
    # message to a receiver are numbered from 1.
    message_id: str
    attempt: int
    # The result of verifying the signature, which is ``right``, ``wrong: …`` or ``no secret``.
    signature: str
    # The HTTP status of the response to the webhook.
    status: int
    body: str


class HookBox:
    def __init__(self) -> None:
        self._hooks: deque[StoredHook] = deque(maxlen=MAX_HOOKS)
        self._secrets: dict[str, str] = {}
        self._attempts: Counter[tuple[str, str]] = Counter()
        self._ids = count(1)

    def set_secret(self, name: str, secret: str) -> None:
        """Raise ``ValueError`` for an invalid secret."""
        Webhook(secret)
        self._secrets[name] = secret

    def count_attempt(self, name: str, message_id: str) -> int:
        self._attempts[name, message_id] += 1
        return self._attempts[name, message_id]

    def store(
        self, name: str, headers: Mapping[str, str], body: bytes, *, attempt: int, status: int
    ) -> StoredHook:
        hook = StoredHook(
            id=next(self._ids),
            name=name,
            received_at=datetime.now(UTC),
            message_id=headers.get("webhook-id", ""),
            attempt=attempt,
            signature=self._check_signature(name, headers, body),
            status=status,
            body=body.decode(errors="replace"),
        )
        self._hooks.append(hook)
        return hook

    def list_newest_first(self, name: str = "") -> list[StoredHook]:
        return [each for each in reversed(self._hooks) if name in ("", each.name)]

    def remove(self, name: str = "") -> int:
        """Remove the webhooks to one receiver, or all webhooks if ``name`` is empty.

        Return the number of removed webhooks.
        """
        removed_hooks = self.list_newest_first(name)
        for hook in removed_hooks:
            self._hooks.remove(hook)
        return len(removed_hooks)

    def _check_signature(self, name: str, headers: Mapping[str, str], body: bytes) -> str:
        secret = self._secrets.get(name)
        if secret is None:
            return "no secret"
        try:
            Webhook(secret).verify(body, dict(headers), json_parse=False)
        except (WebhookVerificationError, ValueError) as error:
            return f"wrong: {error}"
        return "right"


class Behaviour(BaseModel):
    """The failures that the receiver simulates, from the query string of the webhook URL."""

    # The number of failed delivery attempts per message, and the HTTP status of these attempts.
    fail: int = 0
    status: int = Field(default=500, ge=200, le=599)
    retry_after: int | None = None
    # The delay of the response to a webhook, in seconds.
    slow: float = Field(default=0.0, ge=0, le=_MAX_SLOW_SECONDS)


def build_router(box: HookBox, prefix: str) -> APIRouter:
    router = APIRouter()

    @router.get("", response_class=HTMLResponse)
    async def listing(request: Request, name: str = "") -> str:
        base = f"{request.base_url}".rstrip("/") + prefix
        hooks = box.list_newest_first(name)
        return render("hooks.html", hooks=hooks, name=name, base=base, max_hooks=MAX_HOOKS)

    @router.get("/messages")
    async def messages(name: str = "") -> list[dict[str, Any]]:
        return [
            asdict(each) | {"received_at": each.received_at.isoformat()}
            for each in box.list_newest_first(name)
        ]

    @router.delete("/messages")
    async def remove(name: str = "") -> dict[str, int]:
        return {"removed": box.remove(name)}

    @router.post("/secrets")
    async def set_secret(
        name: Annotated[str, Form(min_length=1)], secret: Annotated[str, Form(min_length=1)]
    ) -> Response:
        try:
            box.set_secret(name, secret.strip())
        except Exception:  # noqa: BLE001 - the library raises several errors of its own
            raise HTTPException(422, "A secret consists of whsec_ and base64 text.") from None
        return RedirectResponse(f"{prefix}?name={name}", status_code=303)

    @router.post("/to/{name}")
    async def receive(
        name: str, request: Request, behaviour: Annotated[Behaviour, Query()]
    ) -> Response:
        body = await request.body()
        if len(body) > MAX_HOOK_BYTES:
            raise HTTPException(413, "The request body is too large.")
        attempt = box.count_attempt(name, request.headers.get("webhook-id", ""))
        is_refused = attempt <= behaviour.fail
        status = behaviour.status if is_refused else HTTPStatus.OK
        box.store(name, request.headers, body, attempt=attempt, status=status)
        await asyncio.sleep(behaviour.slow)
        wants_retry = is_refused and behaviour.retry_after is not None
        headers = {"Retry-After": str(behaviour.retry_after)} if wants_retry else {}
        return Response(f"attempt {attempt}\n", status, headers, media_type="text/plain")

    @router.post("/{name}")
    async def reject_wrong_path(name: str) -> Response:
        raise HTTPException(404, f"Send webhooks to {prefix}/to/{name}.")

    return router
