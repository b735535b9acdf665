"""The sandbox's Resend and listmonk: credentials, errors, limits and the mails that they store."""

from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from devstack.sandbox import listmonk, mail_apis, resend
from devstack.sandbox.listmonk import MAX_TEMPLATES
from devstack.sandbox.mailbox import Mailbox
from devstack.sandbox.sandbox_settings import LISTMONK_TOKEN, LISTMONK_USER, RESEND_API_KEY
from tests.support.sandbox.in_process import call_app

EMAIL = {
    "from": "News <news@example.com>",
    "to": "reader@example.com",
    "subject": "Hello",
    "text": "Plain",
    "html": "<p>Html</p>",
}
TEMPLATE = {
    "name": "tea",
    "type": "tx",
    "subject": "Tea",
    "body": "<p>{{ .Tx.Data.user.name }}</p>",
}
MESSAGE = {
    "subscriber_mode": "external",
    "subscriber_emails": ["reader@example.com"],
    "template_id": 1,
}
LINK = f"<https://pressroom.example/unsubscribe?trace_id={'x' * 300}>"
Call = Callable[..., httpx2.Response]


@pytest.fixture
def inbox() -> Mailbox:
    return Mailbox()


@pytest.fixture
def send(inbox: Mailbox) -> Call:
    """A function that sends a mail through the sandbox's Resend."""
    app = FastAPI()
    app.include_router(resend.build_router(inbox))

    def post(
        fields: dict[str, Any] | None = None, key: str = RESEND_API_KEY, **headers: str
    ) -> httpx2.Response:
        mail = {name: value for name, value in (EMAIL | (fields or {})).items() if value}
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        credential = {"Authorization": f"Bearer {key}"} if key else {}
        return call_app(app, "POST", "/emails", json=mail, headers=credential | headers)

    return post


@pytest.fixture
def call(inbox: Mailbox) -> Call:
    """A function that calls the sandbox's listmonk."""
    app = FastAPI()
    app.include_router(listmonk.build_router(inbox))

    def request(
        method: str, path: str, content: dict[str, Any] | None = None, token: str = LISTMONK_TOKEN
    ) -> httpx2.Response:
        credential = {"Authorization": f"token {LISTMONK_USER}:{token}"}
        return call_app(app, method, f"/api/{path}", json=content, headers=credential)

    return request


def test_sandbox_resend_stores_mails_with_unchanged_long_headers(
    send: Call, inbox: Mailbox
) -> None:
    reply = send({"headers": {"List-Unsubscribe": LINK}, "reply_to": "editor@example.com"})
    assert (reply.status_code, set(reply.json())) == (200, {"id"})
    [mail] = inbox
    assert (mail.recipients, mail.subject) == (("reader@example.com",), "Hello")
    assert (mail.text, mail.html) == ("Plain\n", "<p>Html</p>\n")
    assert f"\nList-Unsubscribe: {LINK}".encode() in mail.raw
    assert dict(mail.headers)["Reply-To"] == "editor@example.com"


@pytest.mark.parametrize(
    ("fields", "name", "message"),
    [
        ({"to": None}, "missing_required_field", "Missing `to` field."),
        ({"to": "nobody"}, "validation_error", "'nobody' is not an e-mail address."),
        ({"to": ["a@b.example"] * 51}, "validation_error", "Invalid `to` field."),
        ({"text": None, "html": None}, "validation_error", "Missing `html` or `text`"),
        ({"cc": "a@b.example"}, "validation_error", "The sandbox doesn't support the field"),
        ({"headers": {"X-A": "a\r\nBcc: b@c.example"}}, "validation_error", "linefeed"),
        ({"headers": {"X A": "a"}}, "validation_error", "'X A' is not the name of a header"),
    ],
)
def test_sandbox_resend_refuses_invalid_mails(
    fields: dict[str, Any], name: str, message: str, send: Call, inbox: Mailbox
) -> None:
    reply = send(fields)
    assert (reply.status_code, reply.json()["name"]) == (422, name)
    assert reply.json()["statusCode"] == 422
    assert message in reply.json()["message"]
    assert list(inbox) == []


def test_sandbox_resend_requires_the_key_and_limits_the_size(
    send: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (send(key="").status_code, send(key="").json()["name"]) == (401, "missing_api_key")
    assert (send(key="x").status_code, send(key="x").json()["name"]) == (403, "invalid_api_key")
    monkeypatch.setattr(mail_apis, "MAX_MAIL_BYTES", 1000)
    assert send({"text": "x" * 1000}).status_code == 413


def test_sandbox_resend_sends_once_per_idempotency_key(send: Call, inbox: Mailbox) -> None:
    first, second = (send(Idempotency_Key="tea/1") for _ in range(2))
    assert first.json() == second.json()
    assert len(list(inbox)) == 1
    changed = send({"subject": "Changed"}, Idempotency_Key="tea/1")
    assert (changed.status_code, changed.json()["name"]) == (409, "invalid_idempotent_request")
    too_long = send(Idempotency_Key="x" * 257)
    assert (too_long.status_code, too_long.json()["name"]) == (400, "invalid_idempotency_key")
    assert send(Idempotency_Key="tea/2").json() != first.json()


def test_sandbox_resend_defers_and_loses_mails_by_recipient(send: Call, inbox: Mailbox) -> None:
    replies = [
        send({"to": "later+tea@example.com"}, Idempotency_Key="tea/1", X_Try=f"{number}")
        for number in range(3)
    ]
    assert [each.status_code for each in replies] == [429, 500, 200]
    assert replies[0].headers["retry-after"] == "1"
    assert send({"to": "reject@example.com"}).status_code == 200
    assert [each.recipients for each in inbox] == [("later+tea@example.com",)]


def test_sandbox_listmonk_sends_template_to_unknown_address(call: Call, inbox: Mailbox) -> None:
    template = call("POST", "templates", TEMPLATE).json()["data"]
    assert call("GET", "templates").json() == {"data": [template]}
    headers = [{"List-Unsubscribe": LINK}, {"List-Id": "<tea.pressroom.example>"}]
    message = MESSAGE | {"data": {"user": {"name": "<Ada>"}}, "headers": headers}
    assert call("POST", "tx", message).json() == {"data": True}
    [mail] = inbox
    assert (mail.recipients, mail.subject) == (("reader@example.com",), "Tea")
    assert (mail.text, mail.html) == (None, "<p>&lt;Ada&gt;</p>\n")
    assert f"\nList-Unsubscribe: {LINK}".encode() in mail.raw
    assert dict(mail.headers)["List-Id"] == "<tea.pressroom.example>"


def test_sandbox_listmonk_refuses_wrong_token_and_invalid_requests(
    call: Call, inbox: Mailbox
) -> None:
    reply = call("GET", "templates", token="wrong")
    assert (reply.status_code, reply.json()) == (403, {"message": "invalid API credentials"})
    assert call("POST", "tx", MESSAGE).json() == {"message": "Template 1 doesn't exist."}
    unsupported = call("POST", "templates", TEMPLATE | {"body": "{{ TrackView }}"})
    assert "doesn't support the action {{ TrackView }}" in unsupported.json()["message"]
    call("POST", "templates", TEMPLATE)
    invalid_fields: list[dict[str, Any]] = [
        {"subscriber_mode": "default"},
        {"subscriber_emails": ["nobody"]},
        {"subscriber_emails": []},
        {"altbody": "x"},
        {"headers": [{"X-A": "a\nb"}]},
    ]
    for fields in invalid_fields:
        assert call("POST", "tx", MESSAGE | fields).status_code == 400, fields
    assert list(inbox) == []


def test_sandbox_listmonk_defers_mails_and_limits_templates(call: Call, inbox: Mailbox) -> None:
    for _ in range(MAX_TEMPLATES):
        assert call("POST", "templates", TEMPLATE).status_code == 200
    assert "at most" in call("POST", "templates", TEMPLATE).json()["message"]
    message = MESSAGE | {"subscriber_emails": ["later@example.com"]}
    assert [call("POST", "tx", message).status_code for _ in range(3)] == [429, 500, 200]
    assert [each.recipients for each in inbox] == [("later@example.com",)]
