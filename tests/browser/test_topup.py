"""Buying credits in a real browser: order, pay on the provider's page, come back, have them."""

from collections.abc import Callable, Iterator
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.contract import topups
from tests.contract.credits import balance
from tests.contract.replies import data
from tests.payments import SandboxPayments
from tests.stack import Owner, Stack, eventually


@pytest.fixture
def shop() -> Iterator[str]:
    """Somebody's page that sells our credits, on a port of its own."""

    class Shop(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<link rel=icon href=data:,><h1>Thank you</h1>")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Shop)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/thanks?from=shop"
    server.shutdown()


def test_credits_are_there_once_though_the_webhook_comes_three_times(
    stack: Stack, owner: Owner, shop: str, open_page: Callable[..., Page]
) -> None:
    sandbox = SandboxPayments(stack.sandbox_url)
    sandbox.mode(times=3)
    with stack.client(owner.key) as client:
        order = data(topups.send(client, f'{{"credit_amount": 750, "redirect_url": "{shop}"}}'))
        page = open_page(order["payment_url"])
        page.get_by_role("button", name="Pay", exact=False).first.click()
        expect(page.get_by_role("heading")).to_have_text("Thank you")
        query = parse_qs(urlsplit(page.url).query)
        assert query == {
            "from": ["shop"],
            "order_id": [str(order["order_id"])],
            "status": ["paid"],
        }
        eventually(
            lambda: sum(len(e["attempts"]) for e in sandbox.events(order["order_id"])) >= 3,
            what="three webhooks",
        )
        assert balance(client) == Decimal(750)
        assert topups.moves(client) == [("topup", 750, 750)]
        page.reload()
        assert balance(client) == Decimal(750)
    sandbox.mode()
    sandbox.close()
