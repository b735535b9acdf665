"""Checks of abandoned orders at a provider that takes 250 ms, beside the same calls alone."""

import http.client
import http.server
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from statistics import median

from benchmarks.measure import Finding, alternate, full_size, median_and_spread, seconds_of
from benchmarks.own_stack import own_stack
from devstack import LOOPBACK
from devstack.sandbox.sandbox_settings import payment_settings
from integrations.payments.registry import PaymentChannels
from services.money.topups import polling
from services.money.topups.polling import MAX_CALLS_AT_ONCE, POLL_ORDERS
from tests.contract.topups import settings_of
from tests.stack import Stack

ORDERS = 512 if full_size() else 128
PROVIDER_SECONDS = 0.25
# Three looks while the payer may be there, a fourth one, and the call that closes the page.
CALLS_FOR_AN_ORDER = 5
MOST_TIMES = 1.5
MIN_ORDERS_A_DAY = 100_000
_DAY_SECONDS = 86_400
# A poll ends after this, and rests for its interval after that.
_BUSY_SHARE = 20 / (20 + POLL_ORDERS.every.total_seconds())
_FILL = """
INSERT INTO payment_orders (id, status, changed_via, channel, currency, amount, amount_minor,
    credit_amount, credits_per_usd, units_per_usd, session_id, expires_at)
SELECT n, 'created', 'request', 'sandbox', 'USD', 5, 500, 500, 100, 1, 'cs_' || n,
    now() + interval '1 day'
FROM generate_series(1, %s) AS n
"""


def run() -> list[Finding]:
    with own_stack("orders") as stack, _slow_provider() as provider_port:
        stack.query(_FILL, ORDERS)
        stack.query("UPDATE payment_orders SET status = 'pending'")
        return _compare(stack, provider_port)


def _compare(stack: Stack, provider_port: int) -> list[Finding]:
    stack.environment |= payment_settings(f"http://{LOOPBACK}:{provider_port}", {})
    channels = PaymentChannels(settings_of(stack))

    def poll() -> float:
        stack.query("UPDATE payment_orders SET next_check_at = now()")
        return seconds_of(lambda: polling.poll(stack.resources, channels))

    def ask_alone(_: int) -> None:
        connection = http.client.HTTPConnection(LOOPBACK, provider_port, timeout=60)
        connection.request("GET", "/v1/checkout/sessions/cs_1")
        assert connection.getresponse().read()
        connection.close()

    def baseline() -> float:
        with ThreadPoolExecutor(MAX_CALLS_AT_ONCE) as pool:
            return seconds_of(lambda: list(pool.map(ask_alone, range(ORDERS))))

    pairs = alternate(poll, baseline)
    ratio, spread = median_and_spread([mine / alone for mine, alone in pairs])
    times = [_orders_a_day(mine) for mine, _ in pairs]
    details = {
        "orders": ORDERS,
        "product_s": round(median(mine for mine, _ in pairs), 2),
        "calls_s": round(median(alone for _, alone in pairs), 2),
    }
    a_day, day_spread = median_and_spread(times)
    return [
        Finding(
            "abandoned-orders: checks", ratio, "×", "≤ 1.5 ×", ratio <= MOST_TIMES, spread, details
        ),
        Finding(
            "abandoned-orders: a day",
            a_day,
            "",
            f"≥ {MIN_ORDERS_A_DAY}",
            a_day >= MIN_ORDERS_A_DAY,
            day_spread,
            {"calls_for_an_order": CALLS_FOR_AN_ORDER, "busy_share": _BUSY_SHARE},
        ),
    ]


def _orders_a_day(seconds: float) -> float:
    calls_a_second = ORDERS / seconds
    return calls_a_second * _BUSY_SHARE * _DAY_SECONDS / CALLS_FOR_AN_ORDER


class _Slow(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        time.sleep(PROVIDER_SECONDS)
        session_id = self.path.partition("?")[0].rpartition("/")[2]
        number = session_id.removeprefix("cs_")
        session = {
            "id": session_id,
            "object": "checkout.session",
            "metadata": {"application": "pressroom", "order_id": number},
            "payment_intent": None,
            "amount_total": 500,
            "currency": "usd",
            "payment_status": "unpaid",
            "status": "open",
        }
        body = json.dumps(session).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def _slow_provider() -> Iterator[int]:
    with http.server.ThreadingHTTPServer((LOOPBACK, 0), _Slow) as listener:
        listener.daemon_threads = True
        threading.Thread(target=listener.serve_forever, args=(0.01,), daemon=True).start()
        yield listener.server_address[1]
        listener.shutdown()
