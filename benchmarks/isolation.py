"""Measures whether hung dependencies or a busy owner slow down other owners' API calls.

The measured API calls are a credit charge and a balance query. In the first part of the benchmark,
a second owner keeps calling routes that need a hung dependency. The measured API calls don't use
the dependency that hangs. The baseline measures the API calls without any load.

In the second part of the benchmark, all dependencies work, and the second owner constantly uploads,
imports and composes. The baseline is a minimal HTTP route that charges credits, under the same
load, because a busy processor slows down every program.

A separate process sends the measured calls, because the main process is busy producing load.
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

from benchmarks.consume import PATH as CONSUME_PATH
from benchmarks.http_load import build_json_request, build_request, run_callers
from benchmarks.hung_dependencies import (
    METADATA,
    Hang,
    PressedStack,
    create_photo,
    create_post,
    pressing,
)
from benchmarks.measure import Finding, alternate, is_full_size, median_and_spread, percentile
from benchmarks.own_stack import own_stack
from core.ids import AccountId
from devstack import LOOPBACK
from devstack.harness.free_ports import free_port
from devstack.harness.polling import eventually
from devstack.harness.proxy import Proxy, open_proxy
from devstack.harness.stack import Stack, plain_client
from devstack.sandbox import sandbox_settings
from devstack.supervisor.programs import is_responding
from services.credits import ledger

CALLS = 1_000 if is_full_size() else 300
MAX_SLOWDOWN = 3.0
MAX_SLOWDOWN_OF_BARE = 1.5
# How long the dependency has to hang until all callers that produce load wait for it.
PRESSED_AFTER_SECONDS = 1.0
IMPORTED_ROWS = 5_000
# Maps the queues that a worker process reads to the number of tasks that the process runs at the
# same time.
WORKERS = {
    ("request", "photos", "money", "mail", "webhooks", "maintenance"): 8,
    ("media",): 2,
    ("export", "bulk"): 1,
}
_BODY = b'{"amount_credit": 0.0001, "source_id": "post"}'
_OPENAI = {"PRESSROOM_LLM_PROVIDER": "openai"}
# Set a very high rate limit, so that the API counts calls but never refuses any.
_COUNTED = {"PRESSROOM_RATE_LIMIT_DEFAULT": "1000000/minute", "PRESSROOM_LOG_LEVEL": "warning"}
_UNFINISHED = "SELECT 1 FROM jobs WHERE status IN ('queued', 'running')"
_NO_PAUSES = "UPDATE jobs SET run_at = now(), send_after = now() WHERE status = 'queued'"
# The busy owner enqueues imports much faster than the worker processes them.
_CANCEL_IMPORTS = "UPDATE jobs SET cancel_requested = true WHERE kind = 'members.import'"
_REDIS_HUNG = Hang("Redis hung", "redis")
_HUNG = (
    Hang("S3 hung", "s3", {"upload": 24, "media": 8}),
    Hang("model hung", "model", {"composer": 8}),
    Hang("photo provider hung", "photos", {"photo search": 8}),
    # Two callers are enough, because their sign-ups quickly enqueue enough mails to block all
    # threads for the mail queue.
    Hang("mail server hung", "mail", {"confirmed subscribe": 2}),
)

Times = dict[str, list[float]]


@dataclass
class IsolationBench:
    """A stack on which one owner's API calls are measured while another owner produces load."""

    pressed: PressedStack
    key: str
    # The port of an additional API process that reaches Redis through a proxy. The main API process
    # reaches Redis directly, because a proxy would slow down the measured calls.
    apart_port: int
    # The port of the minimal HTTP route.
    bare_port: int
    _callers: ProcessPoolExecutor = field(
        default_factory=lambda: ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
    )

    def measure_calls(self) -> Times:
        return self._measure_calls(self.pressed.stack.api_port)

    def measure_during_hang(self, hang: Hang) -> Times:
        # Let the dependency respond again before stopping the callers, because callers that wait
        # for a response can't stop.
        with pressing(self.pressed, hang), hang.begin(self.pressed):
            time.sleep(PRESSED_AFTER_SECONDS)
            times = self.measure_calls()
        self._await_all_jobs()
        return times

    def measure_calls_apart(self) -> Times:
        """Measure calls to the API process that reaches Redis through a proxy."""
        return self._measure_calls(self.apart_port)

    def measure_without_redis(self) -> Times:
        with _REDIS_HUNG.begin(self.pressed):
            time.sleep(PRESSED_AFTER_SECONDS)
            times = self.measure_calls_apart()
        with plain_client() as client:
            url = f"http://{LOOPBACK}:{self.apart_port}/readyz"
            eventually(lambda: client.get(url).json()["status"] == "ok", what="Redis' return")
        return times

    def measure_with_busy_owner(self) -> Times:
        return self._measure_beside_busy_owner(self.measure_calls)

    def measure_bare_with_busy_owner(self) -> Times:
        """Measure the minimal HTTP route, which is the baseline of all API calls."""

        def measure() -> Times:
            request = build_json_request("POST", CONSUME_PATH, self.key, _BODY)
            times = self._callers.submit(_run_caller, self.bare_port, request).result()
            return {"consume": times, "balance": times}

        return self._measure_beside_busy_owner(measure)

    def close(self) -> None:
        self._callers.shutdown()

    def _measure_beside_busy_owner(self, measure: Callable[[], Times]) -> Times:
        with _busy_owner(self.pressed):
            time.sleep(PRESSED_AFTER_SECONDS)
            times = measure()
        self.pressed.stack.query(_CANCEL_IMPORTS)
        self._await_all_jobs()
        return times

    def _measure_calls(self, port: int) -> Times:
        requests = {
            "consume": build_json_request("POST", CONSUME_PATH, self.key, _BODY),
            "balance": build_request("GET", "/auxilia/credits/balance", self.key),
        }
        return {
            name: self._callers.submit(_run_caller, port, request).result()
            for name, request in requests.items()
        }

    def _await_all_jobs(self) -> None:
        """Wait until all jobs have ended, so that none slows down the next measurement."""

        def has_ended() -> bool:
            self.pressed.stack.query(_NO_PAUSES)
            return not self.pressed.stack.query(_UNFINISHED)

        eventually(has_ended, within=120, what="the end of all jobs")


def _run_caller(port: int, request: bytes) -> list[float]:
    return asyncio.run(run_callers(port, request, count=1, calls=CALLS))


# -- the busy owner ------------------------------------------------------------------------------


def _upload(_: PressedStack, client: httpx2.Client) -> httpx2.Response:
    # Append random bytes, so that each uploaded file is different.
    files = {"file": ("photo.jpg", create_photo() + secrets.token_bytes(8))}
    return client.post("/attachments", files=files)


def _import(pressed: PressedStack, client: httpx2.Client) -> httpx2.Response:
    tag = secrets.token_hex(4)
    rows = "".join(f"{number}.{tag}@example.com\n" for number in range(IMPORTED_ROWS))
    url = f"/lists/{pressed.list_id}/imports"
    content = f"email\n{rows}".encode()
    return client.post(url, params={"filename": "members.csv"}, content=content)


def _compose(_: PressedStack, client: httpx2.Client) -> httpx2.Response:
    return client.post(METADATA, json=create_post())


@contextmanager
def _busy_owner(pressed: PressedStack) -> Iterator[None]:
    """Run two callers each for uploads, imports and the composer until the ``with`` block ends."""
    stop = threading.Event()

    def repeat(call: Callable[[PressedStack, httpx2.Client], httpx2.Response]) -> int:
        count = 0
        with pressed.client() as client:
            while not stop.is_set():
                reply = call(pressed, client)
                assert reply.is_success, reply.text
                count += 1
        return count

    with ThreadPoolExecutor(6) as threads:
        working = [threads.submit(repeat, call) for call in (_upload, _import, _compose) * 2]
        try:
            yield
        finally:
            stop.set()
        assert all(future.result() for future in working), "one of them did nothing"


# -- the measurements ----------------------------------------------------------------------------


def run() -> list[Finding]:
    with _isolation_bench() as bench:
        measurements = {hang.name: partial(bench.measure_during_hang, hang) for hang in _HUNG}
        return [
            *(
                finding
                for name, measure_trouble in measurements.items()
                for finding in _compare(name, measure_trouble, bench.measure_calls)
            ),
            *_compare("Redis hung", bench.measure_without_redis, bench.measure_calls_apart),
            *_compare(
                "another owner busy",
                bench.measure_with_busy_owner,
                bench.measure_bare_with_busy_owner,
                max_slowdown=MAX_SLOWDOWN_OF_BARE,
            ),
        ]


def _compare(
    name: str,
    measure_trouble: Callable[[], Times],
    measure_baseline: Callable[[], Times],
    *,
    max_slowdown: float = MAX_SLOWDOWN,
) -> list[Finding]:
    trouble_times: list[Times] = []
    baseline_times: list[Times] = []

    def record(results: list[Times], measure: Callable[[], Times]) -> float:
        results.append(measure())
        return 0.0

    alternate(
        partial(record, trouble_times, measure_trouble),
        partial(record, baseline_times, measure_baseline),
    )
    # Skip the first round, which only warms up the stack.
    pairs = list(zip(trouble_times[1:], baseline_times[1:], strict=True))
    return [
        _build_finding(
            f"isolation: {call} p99, {name}",
            [(trouble[call], baseline[call]) for trouble, baseline in pairs],
            max_slowdown,
        )
        for call in ("consume", "balance")
    ]


def _build_finding(
    title: str, rounds: list[tuple[list[float], list[float]]], max_slowdown: float
) -> Finding:
    def pairs(share: float) -> list[tuple[float, float]]:
        return [
            (percentile(trouble, share), percentile(baseline, share))
            for trouble, baseline in rounds
        ]

    ratio, spread = median_and_spread([trouble / baseline for trouble, baseline in pairs(0.99)])
    details: dict[str, float] = {}
    for share in (0.5, 0.99):
        trouble, baseline = zip(*pairs(share), strict=True)
        details[f"p{share * 100:g}_ms"] = _median_ms(trouble)
        details[f"baseline_p{share * 100:g}_ms"] = _median_ms(baseline)
    details["calls"] = CALLS
    bar = f"≤ {max_slowdown:g} ×"
    return Finding(title, ratio, "×", bar, ratio <= max_slowdown, spread, details)


def _median_ms(times: tuple[float, ...]) -> float:
    return round(1000 * median_and_spread(times)[0], 2)


# -- the stack -----------------------------------------------------------------------------------


@contextmanager
def _isolation_bench() -> Iterator[IsolationBench]:
    with own_stack("isolation") as stack, ExitStack() as opened:
        proxies = _start_processes(stack, opened)
        owner = stack.create_owner()
        caller = stack.create_owner()
        for each in (owner, caller):
            database = stack.resources.database
            ledger.grant_credits(
                database, AccountId(each.user_id), Decimal(1_000_000), source_id="benchmark"
            )
        apart_port = free_port()
        stack.start_api(apart_port, **_COUNTED, PRESSROOM_REDIS_URL=proxies["redis"].url)
        bare_port = free_port()
        stack.start(
            "bare",
            str(bare_port),
            module="benchmarks.bare_consume",
            ready=lambda: is_responding(bare_port, "/healthz"),
        )
        with stack.client(owner.key) as client:
            list_id = _new_list(client, "plain", confirm_required=False)
            confirmed = _new_list(client, "confirmed", confirm_required=True)
            files = {"file": ("photo.jpg", create_photo())}
            attachment = client.post("/attachments", files=files).raise_for_status().json()["data"]
            path = f"/media/{attachment['filename']}"
            # The first composer call makes the worker load the composer's libraries.
            client.post(
                METADATA, json=create_post(), headers={"Prefer": "wait=45"}
            ).raise_for_status()
        pressed = PressedStack(stack, proxies, owner, list_id, confirmed, path)
        bench = IsolationBench(pressed, caller.key, apart_port, bare_port)
        opened.callback(bench.close)
        yield bench


def _new_list(client: httpx2.Client, slug: str, *, confirm_required: bool) -> int:
    body = {"title": "A list", "slug": slug, "confirm_required": confirm_required}
    reply = client.post("/lists", json=body).raise_for_status()
    return int(reply.json()["data"]["id"])


def _start_processes(stack: Stack, opened: ExitStack) -> dict[str, Proxy]:
    """Start a stack's processes, with a proxy in front of each dependency.

    The benchmark uses the proxy to make the dependency hang.
    """
    stack.start_sandbox()
    environment = stack.environment
    sandbox = f"{stack.sandbox_url}/"
    servers = {
        "redis": environment["PRESSROOM_REDIS_URL"],
        "s3": f"{environment['PRESSROOM_S3_ENDPOINT']}/",
        "mail": f"{environment['PRESSROOM_MAIL_URL']}/",
        "model": sandbox,
        "photos": sandbox,
    }
    proxies = {name: opened.enter_context(open_proxy(url)) for name, url in servers.items()}
    proxy_urls = {name: proxy.url.removesuffix("/") for name, proxy in proxies.items()}
    settings = {
        "PRESSROOM_S3_ENDPOINT": proxy_urls["s3"],
        "PRESSROOM_MAIL_URL": proxy_urls["mail"],
        **sandbox_settings.build_llm_settings(proxy_urls["model"], _OPENAI),
        **_OPENAI,
        **sandbox_settings.build_stock_photo_settings(proxy_urls["photos"], {}),
        **_COUNTED,
    }
    with stack.starting_together():
        stack.start_api(None, **settings)
        for queues, limit in WORKERS.items():
            stack.start_worker(*queues, concurrency=limit, **settings)
    return proxies
