"""The sandbox's receiver of webhooks: what it shows, what it checks, how it misbehaves."""

import asyncio
import json
from datetime import UTC, datetime

import httpx
import pytest
from fastapi import FastAPI

from devstack.sandbox.app import create_app
from devstack.sandbox.hooks import hook_pages
from devstack.sandbox.hooks.hook_box import HookBox
from devstack.sandbox.providers import SandboxProvider
from services.webhooks.signing import signed_headers

KEY = b"k" * 32
SECRET = "whsec_a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s="


@pytest.fixture
def app() -> FastAPI:
    router = hook_pages.make_router(HookBox(), "/hooks")
    return create_app((SandboxProvider("Webhooks", "/hooks", "Receives.", router, "/hooks"),))


def call(app: FastAPI, method: str, path: str, **content: object) -> httpx.Response:
    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path, **content)  # type: ignore[arg-type]

    return asyncio.run(send())


def post(app: FastAPI, path: str, message_id: str = "evt_1", key: bytes = KEY) -> httpx.Response:
    body = json.dumps({"type": "subscription.created"}).encode()
    headers = signed_headers([key], message_id, datetime.now(UTC), body)
    return call(app, "POST", f"/hooks/to/{path}", content=body, headers=headers)


def verdicts(app: FastAPI) -> list[str]:
    return [each["signature"] for each in call(app, "GET", "/hooks/messages").json()]


def test_what_came_is_shown_and_its_signature_checked(app: FastAPI) -> None:
    assert post(app, "mine").status_code == 200
    call(app, "POST", "/hooks/secrets", data={"name": "mine", "secret": SECRET})
    post(app, "mine", "evt_2")
    post(app, "mine", "evt_3", key=b"x" * 32)
    newest, right, unknown = verdicts(app)
    assert newest.startswith("wrong")
    assert (right, unknown) == ("right", "no secret")
    page = call(app, "GET", "/hooks", params={"name": "mine"}).text
    assert "evt_2" in page
    assert "subscription.created" in page
    assert "evt_2" not in call(app, "GET", "/hooks", params={"name": "other"}).text
    assert call(app, "DELETE", "/hooks/messages").json() == {"removed": 3}
    assert verdicts(app) == []


def test_it_fails_as_often_as_it_is_told_for_each_event(app: FastAPI) -> None:
    path = "mine?fail=2&status=503&retry_after=7"
    first, second, third = (post(app, path) for _ in range(3))
    assert (first.status_code, first.headers["retry-after"]) == (503, "7")
    assert (second.status_code, third.status_code) == (503, 200)
    assert "retry-after" not in third.headers
    assert post(app, path, "evt_2").status_code == 503


def test_what_is_no_secret_is_refused(app: FastAPI) -> None:
    reply = call(app, "POST", "/hooks/secrets", data={"name": "mine", "secret": "?"})
    assert reply.status_code == 422
