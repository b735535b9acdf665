import json
from datetime import UTC, datetime

import httpx2
import pytest
from fastapi import APIRouter, FastAPI

from devstack.sandbox import hooks
from devstack.sandbox.app import SandboxProvider, create_app
from devstack.sandbox.hooks import HookBox
from services.webhooks.signing import sign_message
from tests.support.sandbox.in_process import call_app, fetch_page

KEY = b"k" * 32
SECRET = "whsec_a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s="


@pytest.fixture
def app() -> FastAPI:
    router = hooks.build_router(HookBox(), "/hooks")
    return create_app((SandboxProvider("Webhooks", "/hooks", "Receives.", router, "/hooks"),))


def post(app: FastAPI, path: str, message_id: str = "evt_1", key: bytes = KEY) -> httpx2.Response:
    body = json.dumps({"type": "subscription.created"}).encode()
    headers = sign_message([key], message_id, datetime.now(UTC), body)
    return call_app(app, "POST", f"/hooks/to/{path}", content=body, headers=headers)


def verdicts(app: FastAPI) -> list[str]:
    return [each["signature"] for each in call_app(app, "GET", "/hooks/messages").json()]


def test_sandbox_shows_received_webhooks_with_their_signature_verdict(app: FastAPI) -> None:
    assert post(app, "mine").status_code == 200
    call_app(app, "POST", "/hooks/secrets", data={"name": "mine", "secret": SECRET})
    post(app, "mine", "evt_2")
    post(app, "mine", "evt_3", key=b"x" * 32)
    newest, right, unknown = verdicts(app)
    assert newest.startswith("wrong")
    assert (right, unknown) == ("right", "no secret")
    page = call_app(app, "GET", "/hooks", params={"name": "mine"}).text
    assert "evt_2" in page
    assert "subscription.created" in page
    assert "evt_2" not in call_app(app, "GET", "/hooks", params={"name": "other"}).text
    assert call_app(app, "DELETE", "/hooks/messages").json() == {"removed": 3}
    assert verdicts(app) == []


def test_sandbox_webhook_receiver_fails_each_event_as_often_as_requested(app: FastAPI) -> None:
    path = "mine?fail=2&status=503&retry_after=7"
    first, second, third = (post(app, path) for _ in range(3))
    assert (first.status_code, first.headers["retry-after"]) == (503, "7")
    assert (second.status_code, third.status_code) == (503, 200)
    assert "retry-after" not in third.headers
    assert post(app, path, "evt_2").status_code == 503


def test_sandbox_webhook_path_error_names_the_correct_path(app: FastAPI) -> None:
    reply = call_app(app, "POST", "/hooks/mine", content=b"{}")
    assert (reply.status_code, reply.json()["detail"]) == (
        404,
        "Send webhooks to /hooks/to/mine.",
    )


def mailbox() -> SandboxProvider:
    router = APIRouter()

    @router.get("/inbox")
    async def inbox() -> list[str]:
        return ["a letter"]

    return SandboxProvider("Mail & more", "/mail", "Speaks <SMTP>.", router, page="/mail/inbox")


def test_registered_sandbox_provider_is_listed_and_mounted() -> None:
    page = fetch_page("/", mailbox()).text
    assert '<a href="/mail/inbox">Mail &amp; more</a>' in page
    assert "Speaks &lt;SMTP&gt;." in page
    assert "The sandbox simulates no external services" not in page
    assert fetch_page("/mail/inbox", mailbox()).json() == ["a letter"]


@pytest.mark.parametrize("host", ["rebind.evil.example", "localhost.evil.example", "10.0.0.1"])
def test_sandbox_rejects_foreign_host_headers_against_dns_rebinding(host: str) -> None:
    rejected = fetch_page("/mail/inbox", mailbox(), host=host)
    assert rejected.status_code == 400
    assert "letter" not in rejected.text
    assert fetch_page("/mail/inbox", mailbox(), host="127.0.0.1:8002").status_code == 200
