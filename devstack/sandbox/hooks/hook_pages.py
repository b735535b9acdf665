"""The receiver, its page, and the same as JSON for scripts."""

import asyncio
from dataclasses import asdict
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Form, HTTPException, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import BaseModel, Field

from devstack.sandbox.hooks.hook_box import MAX_HOOK_BYTES, MAX_HOOKS, HookBox
from devstack.sandbox.templates import render

_MAX_SLOW_SECONDS = 120.0


class Behaviour(BaseModel):
    """What the query of the URL asks the receiver to do."""

    # How many tries of each event fail, and with which status.
    fail: int = 0
    status: int = Field(default=500, ge=200, le=599)
    retry_after: int | None = None
    # Seconds until the answer.
    slow: float = Field(default=0.0, ge=0, le=_MAX_SLOW_SECONDS)


def make_router(box: HookBox, prefix: str) -> APIRouter:
    router = APIRouter()

    @router.get("", response_class=HTMLResponse)
    async def listing(request: Request, name: str = "") -> str:
        base = f"{request.base_url}".rstrip("/") + prefix
        hooks = box.newest_first(name)
        return render("hooks.html", hooks=hooks, name=name, base=base, max_hooks=MAX_HOOKS)

    @router.get("/messages")
    async def messages(name: str = "") -> list[dict[str, Any]]:
        return [
            asdict(each) | {"received_at": each.received_at.isoformat()}
            for each in box.newest_first(name)
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
            raise HTTPException(422, "A secret is written whsec_ and base64.") from None
        return RedirectResponse(f"{prefix}?name={name}", status_code=303)

    @router.post("/to/{name}")
    async def receive(
        name: str, request: Request, behaviour: Annotated[Behaviour, Query()]
    ) -> Response:
        return await _receive(box, name, request, behaviour)

    return router


async def _receive(box: HookBox, name: str, request: Request, behaviour: Behaviour) -> Response:
    body = await request.body()
    if len(body) > MAX_HOOK_BYTES:
        raise HTTPException(413, "That is more than any event has.")
    attempt = box.attempt_of(name, request.headers.get("webhook-id", ""))
    is_refused = attempt <= behaviour.fail
    status = behaviour.status if is_refused else HTTPStatus.OK
    box.keep(name, request.headers, body, attempt=attempt, status=status)
    await asyncio.sleep(behaviour.slow)
    asks = is_refused and behaviour.retry_after is not None
    headers = {"Retry-After": str(behaviour.retry_after)} if asks else {}
    return Response(f"attempt {attempt}\n", status, headers, media_type="text/plain")
