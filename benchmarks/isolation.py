"""An owner's charges and balances while other things hang, and while another owner is busy.

These two calls don't need every dependency. Each dependency that they don't need hangs in turn,
while callers of another owner keep using it. Then nothing hangs, and the other owner uploads,
imports and composes without a pause. The baseline is the same two calls without other load.

A caller makes them, one after the other, in a process of its own; the load comes from this one.
"""

import asyncio
import multiprocessing
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial

import httpx2

from benchmarks.http_load import callers, json_request, request_bytes
from benchmarks.hung_dependencies import METADATA, Hang, PressedStack, new_post, photo, pressing
from benchmarks.measure import Finding, alternate, full_size, median_and_spread, percentile
from benchmarks.own_stack import own_stack
from devstack import LOOPBACK
from devstack.harness.free_ports import free_port
from devstack.harness.polling import eventually
from devstack.harness.proxy import Proxy, open_proxy
from devstack.harness.stack import Stack, plain_client
from devstack.sandbox import sandbox_settings
from services.credits import ledger

CALLS = 1_000 if full_size() else 300
MAX_TIMES = 3.0
# By then the callers who press wait for what hangs.
PRESSED_AFTER_SECONDS = 1.0
IMPORTED_ROWS = 5_000
# The worker processes, and how much of each queue they do at once.
WORKERS = {
    ("request", "photos", "money", "mail", "webhooks", "maintenance"): 8,
    ("media",): 2,
    ("export", "bulk"): 1,
}
_BODY = b'{"amount_credit": 0.0001, "source_id": "post"}'
_OPENAI = {"PRESSROOM_LLM_PROVIDER": "openai"}
# A limit that no caller reaches, so that calls are counted.
_COUNTED = {"PRESSROOM_RATE_LIMIT_DEFAULT": "1000000/minute", "PRESSROOM_LOG_LEVEL": "warning"}
_UNFINISHED = "SELECT FROM jobs WHERE status IN ('queued', 'running')"
_NO_PAUSES = "UPDATE jobs SET run_at = now(), send_after = now() WHERE status = 'queued'"
_REDIS_HUNG = Hang("Redis hung", "redis")
_HUNG = (
    Hang("S3 hung", "s3", {"upload": 24, "media": 8}),
    Hang("model hung", "model", {"composer": 8}),
    Hang("photo provider hung", "photos", {"photo search": 8}),
    # Two callers are enough to hang all threads of the queue. More would measure a crowd.
    Hang("mail server hung", "mail", {"confirmed subscribe": 2}),
)

Times = dict[str, list[float]]


@dataclass
class IsolationBench:
    """The load comes from the owner of the pressed stack; the caller is another one."""

    pressed: PressedStack
    key: str
    # A process of the API that reaches Redis by a proxy: the proxy would slow down the others.
    apart_port: int
    _callers: ProcessPoolExecutor = field(
        default_factory=lambda: ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
    )

    def quiet(self) -> Times:
        return self._times(self.pressed.stack.api_port)

    def during(self, hang: Hang) -> Times:
        # Callers who press are answered once the fault is over.
        with pressing(self.pressed, hang), hang.begin(self.pressed):
            time.sleep(PRESSED_AFTER_SECONDS)
            times = self.quiet()
        self._settle()
        return times

    def quiet_apart(self) -> Times:
        return self._times(self.apart_port)

    def without_redis(self) -> Times:
        with _REDIS_HUNG.begin(self.pressed):
            time.sleep(PRESSED_AFTER_SECONDS)
            times = self.quiet_apart()
        with plain_client() as client:
            url = f"http://{LOOPBACK}:{self.apart_port}/readyz"
            eventually(lambda: client.get(url).json()["status"] == "ok", what="Redis' return")
        return times

    def beside_a_busy_owner(self) -> Times:
        with _busy(self.pressed):
            time.sleep(PRESSED_AFTER_SECONDS)
            times = self.quiet()
        self._settle()
        return times

    def close(self) -> None:
        self._callers.shutdown()

    def _times(self, port: int) -> Times:
        requests = {
            "consume": json_request("POST", "/auxilia/credits/consume", self.key, _BODY),
            "balance": request_bytes("GET", "/auxilia/credits/balance", self.key),
        }
        return {
            name: self._callers.submit(_called, port, request).result()
            for name, request in requests.items()
        }

    def _settle(self) -> None:
        """Until the work that pressed is done: it must not be part of a quiet time."""

        def is_done() -> bool:
            self.pressed.stack.query(_NO_PAUSES)
            return not self.pressed.stack.query(_UNFINISHED)

        eventually(is_done, within=120, what="the end of all jobs")


def _called(port: int, request: bytes) -> list[float]:
    """Seconds of each call."""
    return asyncio.run(callers(port, request, count=1, calls=CALLS))


# -- the busy owner ------------------------------------------------------------------------------


def _upload(_: PressedStack, client: httpx2.Client) -> httpx2.Response:
    # Another picture each time: equal ones are kept once.
    files = {"file": ("photo.jpg", photo() + secrets.token_bytes(8))}
    return client.post("/attachments", files=files)


def _import(pressed: PressedStack, client: httpx2.Client) -> httpx2.Response:
    tag = secrets.token_hex(4)
    rows = "".join(f"{number}.{tag}@example.com\n" for number in range(IMPORTED_ROWS))
    url = f"/lists/{pressed.list_id}/imports"
    content = f"email\n{rows}".encode()
    return client.post(url, params={"filename": "members.csv"}, content=content)


def _compose(_: PressedStack, client: httpx2.Client) -> httpx2.Response:
    return client.post(METADATA, json=new_post())


@contextmanager
def _busy(pressed: PressedStack) -> Iterator[None]:
    """Two callers for each kind of work, who ask for more as soon as they are answered."""
    over = threading.Event()

    def repeat(call: Callable[[PressedStack, httpx2.Client], httpx2.Response]) -> int:
        count = 0
        with pressed.client() as client:
            while not over.is_set():
                reply = call(pressed, client)
                assert reply.is_success, reply.text
                count += 1
        return count

    with ThreadPoolExecutor(6) as threads:
        working = [threads.submit(repeat, call) for call in (_upload, _import, _compose) * 2]
        try:
            yield
        finally:
            over.set()
        assert all(each.result() for each in working), "one of them did nothing"


# -- the measurements ----------------------------------------------------------------------------


def run() -> list[Finding]:
    with _isolation_bench() as bench:
        troubles = {hang.name: partial(bench.during, hang) for hang in _HUNG}
        return [
            *(
                finding
                for name, trouble in troubles.items()
                for finding in _compare(name, trouble, bench.quiet)
            ),
            *_compare("Redis hung", bench.without_redis, bench.quiet_apart),
            *_compare("another owner busy", bench.beside_a_busy_owner, bench.quiet),
        ]


def _compare(name: str, trouble: Callable[[], Times], quiet: Callable[[], Times]) -> list[Finding]:
    found: list[Times] = []
    alone: list[Times] = []

    def noted(into: list[Times], measure: Callable[[], Times]) -> float:
        into.append(measure())
        return 0.0

    alternate(partial(noted, found, trouble), partial(noted, alone, quiet))
    pairs = list(zip(found[1:], alone[1:], strict=True))
    return [
        _finding(
            f"isolation: {call} p99, {name}", [(mine[call], other[call]) for mine, other in pairs]
        )
        for call in ("consume", "balance")
    ]


def _finding(title: str, rounds: list[tuple[list[float], list[float]]]) -> Finding:
    def pairs(share: float) -> list[tuple[float, float]]:
        return [(percentile(mine, share), percentile(other, share)) for mine, other in rounds]

    ratio, spread = median_and_spread([mine / other for mine, other in pairs(0.99)])
    details: dict[str, float] = {}
    for share in (0.5, 0.99):
        mine, other = zip(*pairs(share), strict=True)
        details[f"p{share * 100:g}_ms"] = _ms(mine)
        details[f"quiet_p{share * 100:g}_ms"] = _ms(other)
    details["calls"] = CALLS
    bar = f"≤ {MAX_TIMES:g} ×"
    return Finding(title, ratio, "×", bar, ratio <= MAX_TIMES, spread, details)


def _ms(times: tuple[float, ...]) -> float:
    return round(1000 * median_and_spread(times)[0], 2)


# -- the stack -----------------------------------------------------------------------------------


@contextmanager
def _isolation_bench() -> Iterator[IsolationBench]:
    with own_stack("isolation") as stack, ExitStack() as opened:
        proxies = _start(stack, opened)
        owner, caller = stack.create_owner(), stack.create_owner()
        for each in (owner, caller):
            database = stack.resources.database
            ledger.grant_credits(database, each.user_id, Decimal(1_000_000), source_id="benchmark")
        apart_port = free_port()
        stack.start_api(apart_port, **_COUNTED, PRESSROOM_REDIS_URL=proxies["redis"].url)
        with stack.client(owner.key) as client:
            list_id = _new_list(client, "plain", confirm_required=False)
            confirmed = _new_list(client, "confirmed", confirm_required=True)
            files = {"file": ("photo.jpg", photo())}
            attachment = client.post("/attachments", files=files).raise_for_status().json()["data"]
            path = f"/media/{attachment['filename']}"
            # The worker reads its writers' libraries at the first call.
            client.post(METADATA, json=new_post(), headers={"Prefer": "wait=45"}).raise_for_status()
        pressed = PressedStack(stack, proxies, owner, list_id, confirmed, path)
        bench = IsolationBench(pressed, caller.key, apart_port)
        opened.callback(bench.close)
        yield bench


def _new_list(client: httpx2.Client, slug: str, *, confirm_required: bool) -> int:
    body = {"title": "A list", "slug": slug, "confirm_required": confirm_required}
    reply = client.post("/lists", json=body).raise_for_status()
    return int(reply.json()["data"]["id"])


def _start(stack: Stack, opened: ExitStack) -> dict[str, Proxy]:
    """All processes, and a proxy before each dependency that hangs."""
    stack.start_sandbox()
    own, sandbox = stack.environment, f"{stack.sandbox_url}/"
    servers = {
        "redis": own["PRESSROOM_REDIS_URL"],
        "s3": f"{own['PRESSROOM_S3_ENDPOINT']}/",
        "mail": f"{own['PRESSROOM_MAIL_URL']}/",
        "model": sandbox,
        "photos": sandbox,
    }
    proxies = {name: opened.enter_context(open_proxy(url)) for name, url in servers.items()}
    seen = {name: proxy.url.removesuffix("/") for name, proxy in proxies.items()}
    through = {
        "PRESSROOM_S3_ENDPOINT": seen["s3"],
        "PRESSROOM_MAIL_URL": seen["mail"],
        **sandbox_settings.build_llm_settings(seen["model"], _OPENAI),
        **_OPENAI,
        **sandbox_settings.build_stock_photo_settings(seen["photos"], {}),
        **_COUNTED,
    }
    with stack.starting_together():
        stack.start_api(None, **through)
        for queues, limit in WORKERS.items():
            stack.start_worker(*queues, concurrency=limit, **through)
    return proxies
