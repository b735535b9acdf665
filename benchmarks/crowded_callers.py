"""Measures whether one caller with hostile or very many calls slows down the other callers.

Every load and every measured call is sent by a process of its own, because one process that sends
both would measure its own delays.
"""

import asyncio
import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from itertools import islice, repeat

from benchmarks.http_load import (
    Reply,
    build_body_request,
    build_json_request,
    build_request,
    offer_requests,
)
from benchmarks.measure import Finding, percentile
from benchmarks.own_stack import own_stack
from benchmarks.process_use import sample_memory
from benchmarks.reports_stack import (
    BenchSender,
    ReportsBench,
    create_member_list,
    create_sender,
)
from core.ids import PersonId
from core.queues import Queue
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from devstack.sandbox.senders.mail_events import EventKind, MailEvent, ProviderName
from services.credits import ledger
from services.subscriptions import lists
from services.subscriptions.members import traces
from services.subscriptions.members.traces import Trace

MEGABYTE = 1024 * 1024
MAX_GET_SECONDS = 1.0
MAX_COMPLAINT_SECONDS = 5.0
MAX_EXTRA_MEGABYTES = 100
GETS_PER_SECOND = 20
OPT_OUTS = 2_000
OPT_OUTS_PER_SECOND = 400
CHARGES = 3_000
STRANGERS_LISTS = 1_000
STRANGERS_BODIES = 16
STRANGERS_PER_BODY = 1_000
_AT_ONCE = 1e9
_LOAD_SECONDS = 12.0
_BURST_SECONDS = 5.0
_QUEUES = (Queue.MAINTENANCE, Queue.MAIL, Queue.WEBHOOKS)


@dataclass(frozen=True)
class _Load:
    """Calls of one caller.

    Attributes:
        send: sends the calls, in a process of its own.
        seconds: how long the calls of other callers are measured.
    """

    name: str
    send: Callable[[], object]
    seconds: float = _LOAD_SECONDS


@dataclass(frozen=True)
class _CallersBench:
    """A stack with one API process and one worker, and the callers.

    Attributes:
        reader: the owner whose calls are measured.
        pids: maps the name of each process to its process id.
    """

    stack: Stack
    reader: Owner
    processes: Executor
    pids: Mapping[str, int]

    def measure_beside(self, load: _Load) -> Iterator[Finding]:
        """Measure calls of the reader, then opt-outs of many readers, during the load."""
        with sample_memory(self.pids, every=0.2) as memory:
            time.sleep(1)
            idle = {name: sizes[-1] for name, sizes in memory.items()}
            gets = self._offer_beside(load, self._build_gets(load), per_second=GETS_PER_SECOND)
            opt_outs = self._offer_beside(
                load, self._build_opt_outs(), per_second=OPT_OUTS_PER_SECOND
            )
        times = [reply.seconds for reply in gets]
        p99 = percentile(times, 0.99)
        refused = sum(reply.status != 200 for reply in gets)
        yield Finding(
            f"crowded: GET beside {load.name}",
            *(p99, "s", f"p99 ≤ {MAX_GET_SECONDS:g} s"),
            p99 <= MAX_GET_SECONDS and not refused,
            (min(times), max(times)),
            {"calls": len(times), "refused": refused},
        )
        accepted = sum(reply.status == 200 for reply in opt_outs)
        slowest = max(reply.seconds for reply in opt_outs)
        yield Finding(
            f"crowded: opt-outs beside {load.name}",
            *(accepted, "", f"all {OPT_OUTS}", accepted == OPT_OUTS, (accepted, accepted)),
            {"slowest_s": round(slowest, 2)},
        )
        for name, sizes in memory.items():
            growth = max(sizes) - idle[name]
            yield Finding(
                f"crowded: memory of {name} beside {load.name}",
                *(growth, "MB", f"≤ {MAX_EXTRA_MEGABYTES} MB", growth <= MAX_EXTRA_MEGABYTES),
                (growth, growth),
            )

    def _offer_beside(
        self, load: _Load, requests: Sequence[bytes], *, per_second: float
    ) -> list[Reply]:
        offered = self.processes.submit(_offer, self.stack.api_port, requests, per_second)
        time.sleep(0.5)
        sent = self.processes.submit(load.send)
        replies = offered.result()
        sent.result()
        return replies

    def _build_gets(self, load: _Load) -> list[bytes]:
        return [build_request("GET", "/lists", self.reader.key)] * int(
            load.seconds * GETS_PER_SECOND
        )

    def _build_opt_outs(self) -> list[bytes]:
        """Return one-click requests of different readers (RFC 8058), from one IP address."""
        list_id, user_ids = create_member_list(self.stack, self.reader, OPT_OUTS)
        keyring = self.stack.resources.keyring
        recipients = [Trace(list_id, PersonId(user_id)) for user_id in user_ids]
        return [
            build_body_request(
                "POST",
                f"/unsubscribe?trace_id={traces.create_trace_id(keyring, trace)}",
                b"List-Unsubscribe=One-Click",
                {"Content-Type": "application/x-www-form-urlencoded"},
            )
            for trace in recipients
        ]


def measure() -> list[Finding]:
    context = multiprocessing.get_context("spawn")
    with (
        own_stack("crowded") as stack,
        ProcessPoolExecutor(2, context) as processes,
        _running(stack, processes) as bench,
    ):
        reports = ReportsBench.create(stack, stack.create_owner())
        loads = [_nested_reports(stack, reports.generic), _nested_members(stack), _charges(stack)]
        findings = [finding for load in loads for finding in bench.measure_beside(load)]
        return [*findings, *_measure_strangers(bench, reports)]


@contextmanager
def _running(stack: Stack, processes: Executor) -> Iterator[_CallersBench]:
    api = stack.start_api(PRESSROOM_LOG_LEVEL="warning")
    worker = stack.start_worker(*_QUEUES, PRESSROOM_LOG_LEVEL="warning")
    pids = {"the API": api.pid, "the worker": worker.pid}
    yield _CallersBench(stack, stack.create_owner(), processes, pids)


def _nested_reports(stack: Stack, sender: BenchSender) -> _Load:
    """Return a stranger's posts of small lists to a sender's URL, by three callers."""
    body = b"[" + b"[[]]," * (2 * MEGABYTE // 5 - 2) + b"[]]"
    request = build_body_request("POST", f"/senders/{sender.id}/events", body, {})
    return _Load("nested reports", partial(_repeat, stack.api_port, request, callers=3))


def _nested_members(stack: Stack) -> _Load:
    """Return 32 MB of small lists that a free account adds as members."""
    owner = stack.create_owner()
    stack.query("UPDATE users SET plan = 'free' WHERE id = %s", owner.user_id)
    with stack.resources.unit_of_work() as uow:
        list_id = lists.create_list(uow, account_id=owner.account_id, title="A", slug="nested").id
    body = b'{"members": [' + b"[[]]," * (32 * MEGABYTE // 5 - 10) + b"[]]}"
    path = f"/auxilia/subscriptions/{list_id}/members/add"
    request = build_json_request("POST", path, owner.key, body)
    return _Load("nested members", partial(_repeat, stack.api_port, request, callers=1))


def _charges(stack: Stack) -> _Load:
    """Return 3,000 charges of one account at the same moment."""
    owner = stack.create_owner()
    ledger.grant_credits(
        stack.resources.database, owner.account_id, Decimal(100_000), source_id="benchmark"
    )
    body = b'{"amount_credit": 0.0001, "source_id": "post"}'
    request = build_json_request("POST", "/auxilia/credits/consume", owner.key, body)
    send = partial(_offer, stack.api_port, [request] * CHARGES, _AT_ONCE)
    return _Load("3,000 charges", send, _BURST_SECONDS)


def _measure_strangers(bench: _CallersBench, reports: ReportsBench) -> Iterator[Finding]:
    """Measure while a sender with 1,000 lists posts reports about strangers."""
    stack = bench.stack
    crowding = _create_sender_of_lists(stack)
    list_id, [user_id, *_] = reports.create_list(10)
    mailing = reports.create_mailing(list_id, [user_id])
    posts = [
        crowding.build_post(
            [
                MailEvent(kind=EventKind.UNSUBSCRIBED, email=f"{body}z{number}@b.cc")
                for number in range(STRANGERS_PER_BODY)
            ]
        )
        for body in range(STRANGERS_BODIES)
    ]
    send = partial(_offer, stack.api_port, posts, _AT_ONCE)
    load = _Load("reports about strangers", send, _LOAD_SECONDS)
    yield from bench.measure_beside(load)
    reports.await_effects()
    send()
    began_at = time.monotonic()
    [delivery_id] = mailing.delivery_ids
    complaint = MailEvent(kind=EventKind.COMPLAINED, delivery_id=delivery_id)
    _offer(stack.api_port, [reports.generic.build_post([complaint])], _AT_ONCE)
    left = "SELECT 1 FROM subscriptions WHERE user_id = %s AND status <> 'active'"
    eventually(lambda: stack.query(left, user_id), within=300, what="the complaint's effect")
    seconds = time.monotonic() - began_at
    yield Finding(
        "crowded: a complaint beside reports about strangers",
        *(seconds, "s", f"≤ {MAX_COMPLAINT_SECONDS:g} s", seconds <= MAX_COMPLAINT_SECONDS),
        (seconds, seconds),
    )


def _create_sender_of_lists(stack: Stack) -> BenchSender:
    owner = stack.create_owner()
    with stack.resources.unit_of_work() as uow:
        list_ids = [
            lists.create_list(
                uow, account_id=owner.account_id, title="A list", slug=f"list-{number}"
            ).id
            for number in range(STRANGERS_LISTS)
        ]
    return create_sender(stack, owner, ProviderName.GENERIC, list_ids)


def _offer(port: int, requests: Sequence[bytes], per_second: float) -> list[Reply]:
    return asyncio.run(offer_requests(port, requests, per_second=per_second))


def _repeat(port: int, request: bytes, *, callers: int) -> None:
    """Send a request again and again, each caller as soon as the previous response has arrived."""
    ends_at = time.monotonic() + _LOAD_SECONDS

    async def call() -> None:
        while time.monotonic() < ends_at:
            await offer_requests(port, islice(repeat(request), 1), per_second=_AT_ONCE)

    async def call_all() -> None:
        await asyncio.gather(*(call() for _ in range(callers)))

    asyncio.run(call_all())
