import asyncio

import httpx
import pytest
from fastapi import APIRouter

from devstack.sandbox.app import create_app
from devstack.sandbox.providers import SandboxProvider


def fetch(path: str, *providers: SandboxProvider, host: str = "localhost") -> httpx.Response:
    async def get() -> httpx.Response:
        transport = httpx.ASGITransport(app=create_app(providers))
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as client:
            return await client.get(path)

    return asyncio.run(get())


def mailbox() -> SandboxProvider:
    router = APIRouter()

    @router.get("/inbox")
    async def inbox() -> list[str]:
        return ["a letter"]

    return SandboxProvider("Mail & more", "/mail", "Speaks <SMTP>.", router, page="/mail/inbox")


def test_the_overview_says_what_the_sandbox_is_for() -> None:
    reply = fetch("/")
    assert reply.headers["content-type"].startswith("text/html")
    assert '<html lang="en">' in reply.text
    assert "No provider has moved in yet" in reply.text
    assert "{{" not in reply.text


def test_a_provider_that_moves_in_is_listed_and_mounted() -> None:
    page = fetch("/", mailbox()).text
    assert '<a href="/mail/inbox">Mail &amp; more</a>' in page
    assert "Speaks &lt;SMTP&gt;." in page
    assert "No provider has moved in yet" not in page
    assert fetch("/mail/inbox", mailbox()).json() == ["a letter"]


@pytest.mark.parametrize("host", ["rebind.evil.example", "localhost.evil.example", "10.0.0.1"])
def test_a_foreign_page_reads_no_mail_by_giving_its_name_our_address(host: str) -> None:
    refused = fetch("/mail/inbox", mailbox(), host=host)
    assert refused.status_code == 400
    assert "letter" not in refused.text
    assert fetch("/mail/inbox", mailbox(), host="127.0.0.1:8002").status_code == 200


def test_it_says_when_it_is_up() -> None:
    assert fetch("/healthz").status_code == 200
