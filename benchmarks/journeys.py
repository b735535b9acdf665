"""Compares the watches of 20 segments of a list with a million members with SQL and COPY.

Comparisons run in the benchmark's process. Only while API calls are measured, a worker compares
the segments, as in an installation. Each round of changes uses other members, because a member
causes at most one event of each type a day.
"""

import asyncio
import io
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any

import psycopg2
from psycopg2.extensions import cursor
from sqlalchemy import func, or_, select

from benchmarks.consume import BODY, PATH
from benchmarks.http_load import build_body_request, build_json_request, send_requests
from benchmarks.large_list import create_large_list
from benchmarks.measure import (
    Finding,
    TimeLimit,
    alternate,
    is_full_size,
    measure_seconds,
    median_and_spread,
    percentile,
)
from benchmarks.own_stack import own_stack
from benchmarks.process_use import sample_memory
from benchmarks.statements import record_statements
from core import clock
from core.scopes import Scope
from devstack.harness.free_ports import free_port
from devstack.harness.polling import eventually
from devstack.harness.stack import Owner, Stack
from devstack.supervisor.programs import is_responding
from models import Segment, SegmentMember, SegmentWatch, Subscription
from services.access.caller import Caller
from services.subscriptions import deliveries, lists, segments, tags
from services.subscriptions.filters import member_filter
from services.subscriptions.members import traces
from services.subscriptions.members.traces import Trace
from services.subscriptions.watches import comparing, watches

ROUNDS = 5 if is_full_size() else 3
CHANGES = 10_000
CALLS = 300 if is_full_size() else 100
MAX_SLOWDOWN_OF_SQL = 3.0
MAX_SLOWDOWN_OF_COPY = 2.0
MAX_SLOWDOWN_OF_BARE = 1.5
MAX_EXTRA_MEGABYTES = 50
MAX_RECORD_BYTES = 100
DELIVERIES_LIMIT = TimeLimit(factor=1.5, allowance_ms=20)
MEMBERS_PER_DELIVERY = 100
_NAMES = ["Ada", "Ben", "Chloe", "Dmitri", "Elena", "Farid", "Grace", "Hugo"]
_UTQIAGVIK = {"field": "fields.city", "is": "Utqiagvik"}
# About 916,000 members: seven of eight names, and a third of the members with the eighth name.
_LARGE = {"any": [{"field": "name", "in": _NAMES[:7]}, {"field": "tag", "is": "common"}]}
# The filters of the 20 segments, which have 10 to 916,000 members.
_FILTERS: tuple[dict[str, Any], ...] = (
    _LARGE,
    *({"field": "name", "in": _NAMES[:number]} for number in range(1, 8)),
    {"all": [_UTQIAGVIK, {"field": "name", "in": _NAMES[:4]}]},
    _UTQIAGVIK,
    {"field": "fields.city", "is": "Paris"},
    {"field": "tag", "is": "rare"},
    {"field": "tag", "is": "common"},
    {"field": "type", "is": "gold"},
    {"field": "type", "is": "silver"},
    {"field": "paid_expiry", "at_most": {"days_ago": -7}},
    {"field": "joined_at", "at_most": {"days_ago": 30}},
    {"field": "email", "contains": "adams"},
    {"field": "email", "contains": "garcia1"},
    {"all": [{"field": "tag", "is": "common"}, {"field": "type", "is": "gold"}]},
)
_ENTER_LARGE_SEGMENT = f"""
UPDATE subscriptions SET tag_ids = tag_ids || %s WHERE id IN (
    SELECT id FROM subscriptions WHERE list_id = %s AND name = 'Hugo'
        AND NOT tag_ids @> ARRAY[%s::bigint] LIMIT {CHANGES}
)
"""
# Map each table to the condition of the rows and events that a comparison wrote last.
_COPIES = {
    "segment_members": "watch_id = %s AND last_entered_on IS NOT NULL"
    " ORDER BY entry, subscription_id DESC",
    "segment_changes": "watch_id = %s ORDER BY id DESC",
    "feed_events": "type = 'segment.entered' AND (data ->> 'segment_id')::bigint = ("
    " SELECT segment_id FROM segment_watches WHERE id = %s) ORDER BY id DESC",
}
# Make comparisons due again and again, so that the worker always compares a segment.
_MAKE_DUE = (
    """
    UPDATE segment_watches SET due_at = now()
    WHERE compared_at < now() - interval '1 second' AND due_at > now()
    """,
    """
    UPDATE maintenance SET due_at = now(), send_after = now()
    WHERE name = 'segments.compare' AND due_at > now()
    """,
)
_FORGET_MARKS = "DELETE FROM mailing_marks WHERE list_id = %s AND user_id = ANY (%s)"
# Set very high limits, so that the API counts calls but never refuses any.
_COUNTED = {"PRESSROOM_RATE_LIMIT_DEFAULT": "1000000/minute", "PRESSROOM_LOG_LEVEL": "warning"}


def run() -> list[Finding]:
    context = multiprocessing.get_context("spawn")
    with (
        own_stack("journeys") as stack,
        closing(psycopg2.connect(stack.owner_url)) as connection,
        ProcessPoolExecutor(1, context) as processes,
    ):
        stack.environment |= _COUNTED
        stack.start_api()
        connection.autocommit = True
        owner = stack.create_owner()
        list_id, _ = create_large_list(stack, owner, connection)
        with connection.cursor() as sql:
            bench = _Bench(stack, owner, list_id, sql, processes)
            return [
                *bench.compare_large(),
                bench.compare_short_list(),
                bench.compare_deliveries(),
                *bench.measure_calls_beside_comparisons(),
            ]


@dataclass
class _Bench:
    stack: Stack
    owner: Owner
    list_id: int
    sql: cursor
    processes: Executor
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def compare_large(self) -> list[Finding]:
        """Compare the largest segment: for the first time, without and with differences."""
        watch_id = self.watch(self.list_id, _LARGE)
        with sample_memory({"comparison": os.getpid()}, every=0.1) as memory:
            eventually(lambda: memory["comparison"], what="the first sample")
            first_seconds = self.time_comparison(watch_id)
            self.time_comparison(watch_id)
        growth = max(memory["comparison"]) - memory["comparison"][0]
        self.sql.execute(
            "SELECT count(*), pg_total_relation_size('segment_members') FROM segment_members"
        )
        [(records, size)] = self.sql.fetchall()
        record_bytes = size / records
        self.sql.execute("VACUUM ANALYZE segment_members")
        details = {"members": records, "first_comparison_s": round(first_seconds, 1)}
        name = "journeys: comparison of 916,000 members"
        return [
            Finding(
                "journeys: size of a recorded member",
                *(record_bytes, "B", f"≤ {MAX_RECORD_BYTES} B", record_bytes <= MAX_RECORD_BYTES),
                (record_bytes, record_bytes),
            ),
            Finding(
                "journeys: memory of a comparison",
                *(growth, "MB", f"≤ +{MAX_EXTRA_MEGABYTES} MB", growth <= MAX_EXTRA_MEGABYTES),
                (growth, growth),
            ),
            self._compare_without_differences(name, watch_id, details),
            self._compare_with_changes(watch_id),
        ]

    def compare_short_list(self) -> Finding:
        self.sql.execute("SELECT id FROM lists WHERE id <> %s", (self.list_id,))
        [(list_id,)] = self.sql.fetchall()
        watch_id = self.watch(list_id, {"field": "name", "in": _NAMES[:7]})
        self.time_comparison(watch_id)
        self.sql.execute("VACUUM ANALYZE segment_members")
        name = "journeys: comparison of 87,500 members"
        finding = self._compare_without_differences(name, watch_id, {})
        # An account watches at most 20 segments.
        self.sql.execute("DELETE FROM segment_watches WHERE id = %s", (watch_id,))
        return finding

    def compare_deliveries(self) -> Finding:
        key = self.stack.create_key(self.owner.user_id, Scope.DELIVERY)
        self.sql.execute(
            "SELECT user_id FROM subscriptions WHERE list_id = %s ORDER BY id DESC LIMIT %s",
            (self.list_id, MEMBERS_PER_DELIVERY * (CALLS + 1)),
        )
        user_ids = [user_id for (user_id,) in self.sql.fetchall()]
        pairs = []
        with self.stack.client(key) as client:
            for start in range(0, len(user_ids), MEMBERS_PER_DELIVERY):
                chosen = user_ids[start : start + MEMBERS_PER_DELIVERY]
                body = {"user_ids": chosen, "label": "welcome"}

                def call(body: dict[str, Any] = body) -> None:
                    reply = client.post(f"/lists/{self.list_id}/deliveries", json=body)
                    assert reply.is_success, reply.text

                seconds = measure_seconds(call)
                pairs.append((seconds, self._repeat_deliveries(chosen)))
        # The API's first call loads modules and compiles its statements.
        calls, baselines = zip(*pairs[1:], strict=True)
        p99s = (percentile(calls, 0.99), percentile(baselines, 0.99))
        name = f"journeys: p99 of deliveries to {MEMBERS_PER_DELIVERY} members"
        return DELIVERIES_LIMIT.build_finding(name, [p99s])

    def measure_calls_beside_comparisons(self) -> Iterator[Finding]:
        """Divide the slowdown of each call's p99 by the slowdown of the bare route's p99."""
        for written in _FILTERS[1:]:
            self.time_comparison(self.watch(self.list_id, written))
        self.stack.query(
            "SELECT e.id FROM credit_append(%s, 'grant', 1000000, 1000000, 'operator',"
            " 'benchmark', NULL, NULL, NULL, NULL) AS e",
            self.owner.user_id,
        )
        bare_port = free_port()
        self.stack.start(
            "bare",
            str(bare_port),
            module="benchmarks.bare_consume",
            ready=lambda: is_responding(bare_port, "/healthz"),
        )
        charges = [build_json_request("POST", PATH, self.owner.key, BODY)] * CALLS
        kinds: dict[str, Callable[[], Sequence[bytes]]] = {
            "consume": lambda: charges,
            "sign-up": self._build_sign_ups,
            "one-click unsubscribe": self._build_opt_outs,
        }

        def measure_pairs(build: Callable[[], Sequence[bytes]]) -> list[tuple[float, float]]:
            return [
                (
                    self._measure_p99(self.stack.api_port, build()),
                    self._measure_p99(bare_port, charges),
                )
                for _ in range(ROUNDS)
            ]

        idle = {name: measure_pairs(build) for name, build in kinds.items()}
        with self._comparing() as is_comparing:
            for name, build in kinds.items():
                pairs = measure_pairs(build)
                assert is_comparing(), "the comparisons ended too early"
                product, bare, product_idle, bare_idle = (
                    1000 * median_and_spread(times)[0]
                    for times in (*zip(*pairs, strict=True), *zip(*idle[name], strict=True))
                )
                idle_ratio = product_idle / bare_idle
                ratio, spread = median_and_spread(
                    [product / bare / idle_ratio for product, bare in pairs]
                )
                details = {
                    "product_ms": round(product, 1),
                    "bare_ms": round(bare, 1),
                    "product_idle_ms": round(product_idle, 1),
                    "bare_idle_ms": round(bare_idle, 1),
                }
                bar, is_met = f"≤ {MAX_SLOWDOWN_OF_BARE:g} ×", ratio <= MAX_SLOWDOWN_OF_BARE
                title = f"journeys: slowdown of {name} by comparisons"
                yield Finding(title, ratio, "×", bar, is_met, spread, details)

    def watch(self, list_id: int, written: dict[str, Any]) -> int:
        """Create a watched segment, and return the id of its watch."""
        with self.stack.resources.unit_of_work() as uow:
            mailing_list = lists.get_list(uow, list_id)
            name = f"Segment {next(self._numbers)}"
            segment = segments.create_segment(uow, mailing_list, name, written)
            segments.change_segment(uow, mailing_list, segment.id, {"watch": {}})
            watch = watches.find_watch(uow, segment.id)
            assert watch is not None
            return watch.id

    def time_comparison(self, watch_id: int) -> float:
        """Compare a watch, and return the time in seconds."""
        self.stack.query("UPDATE segment_watches SET due_at = now() WHERE id = %s", watch_id)
        now = clock.now() + timedelta(seconds=1)
        compared: list[int] = []
        seconds = measure_seconds(
            lambda: compared.append(comparing.compare_watch(self.stack.resources, watch_id, now))
        )
        assert compared == [1], "the watch was paused"
        return seconds

    def time_sql(self, watch_id: int) -> float:
        """Find all differences by one SQL statement, and return the time in seconds."""
        with self.stack.resources.unit_of_work() as uow:
            watch = uow.session.get_one(SegmentWatch, watch_id)
            segment = uow.session.get_one(Segment, watch.segment_id)
            mailing_list = lists.get_list(uow, watch.list_id)
            parsed_filter = member_filter.read_stored_filter(uow, mailing_list, segment.filter)
            members = (
                select(Subscription.id)
                .where(Subscription.list_id == watch.list_id, parsed_filter.build_condition())
                .subquery()
            )
            records = (
                select(SegmentMember.subscription_id)
                .where(SegmentMember.watch_id == watch_id, SegmentMember.is_in)
                .subquery()
            )
            is_same = members.c.id == records.c.subscription_id
            query = (
                select(func.count())
                .select_from(members.join(records, is_same, full=True))
                .where(or_(members.c.id.is_(None), records.c.subscription_id.is_(None)))
            )
            return measure_seconds(lambda: uow.session.execute(query).all())

    def _compare_without_differences(
        self, name: str, watch_id: int, details: dict[str, Any]
    ) -> Finding:
        pairs = alternate(
            lambda: self.time_comparison(watch_id), lambda: self.time_sql(watch_id), rounds=ROUNDS
        )
        ratio, spread = median_and_spread([product / sql for product, sql in pairs])
        details["product_s"], details["sql_s"] = (
            round(median_and_spread(times)[0], 2) for times in zip(*pairs, strict=True)
        )
        bar, is_met = f"≤ {MAX_SLOWDOWN_OF_SQL:g} ×", ratio <= MAX_SLOWDOWN_OF_SQL
        return Finding(name, ratio, "×", bar, is_met, spread, details)

    def _compare_with_changes(self, watch_id: int) -> Finding:
        for table in _COPIES:
            self.sql.execute(f"CREATE TABLE copy_of_{table} (LIKE {table} INCLUDING ALL)")
        shares = []
        for _ in range(ROUNDS):
            self._enter_large_segment()
            product = self.time_comparison(watch_id)
            sql_seconds, copy_seconds = self.time_sql(watch_id), self._time_copies(watch_id)
            limit = MAX_SLOWDOWN_OF_SQL * sql_seconds + MAX_SLOWDOWN_OF_COPY * copy_seconds
            shares.append((product / limit, product, sql_seconds, copy_seconds))
        share, spread = median_and_spread([each[0] for each in shares])
        names = ("product_s", "sql_s", "copy_s")
        times = [median_and_spread(each)[0] for each in list(zip(*shares, strict=True))[1:]]
        details = {name: round(each, 2) for name, each in zip(names, times, strict=True)}
        name = f"journeys: comparison with {CHANGES:,} changes"
        bar = f"≤ {MAX_SLOWDOWN_OF_SQL:g} × SQL + {MAX_SLOWDOWN_OF_COPY:g} × COPY"
        return Finding(name, share, "of the target", bar, share <= 1, spread, details)

    def _enter_large_segment(self) -> None:
        with self.stack.resources.unit_of_work() as uow:
            tag_id = tags.find_tag_ids(uow, self.list_id, ("common",), create=False)["common"]
        self.sql.execute(_ENTER_LARGE_SEGMENT, (tag_id, self.list_id, tag_id))
        assert self.sql.rowcount == CHANGES, self.sql.rowcount

    def _time_copies(self, watch_id: int) -> float:
        """Copy the latest rows and events of the watch into empty tables with the same indexes."""
        seconds = 0.0
        for table, condition in _COPIES.items():
            query = self.sql.mogrify(
                f"SELECT * FROM {table} WHERE {condition} LIMIT {CHANGES}",
                (watch_id,),
            ).decode()
            rows = io.StringIO()
            self.sql.copy_expert(f"COPY ({query}) TO STDOUT", rows)
            rows.seek(0)
            self.sql.execute(f"TRUNCATE copy_of_{table}")
            copy = f"COPY copy_of_{table} FROM STDIN"
            seconds += measure_seconds(lambda: self.sql.copy_expert(copy, rows))  # noqa: B023
            assert self.sql.rowcount == CHANGES, (table, self.sql.rowcount)
        return seconds

    def _repeat_deliveries(self, user_ids: Sequence[int]) -> float:
        """Run the SQL of a request again, roll it back, and return the time in seconds."""
        caller = Caller(
            self.owner.account_id,
            self.owner.person_id,
            frozenset({Scope.DELIVERY}),
            unrestricted=False,
        )
        statements = record_statements(
            self.stack.resources.database.engine,
            self.sql,
            lambda: deliveries.create_deliveries(
                self.stack.resources,
                caller,
                self.list_id,
                user_ids=user_ids,
                label="baseline",
                key=None,
            ),
            *("SELECT", "INSERT", "UPDATE", "\nINSERT", "\nUPDATE"),
        )
        self.sql.execute("BEGIN")
        self.sql.execute(_FORGET_MARKS, (self.list_id, list(user_ids)))
        seconds = 0.0
        for statement in statements:
            seconds += measure_seconds(lambda: self.sql.execute(statement))  # noqa: B023
        self.sql.execute("ROLLBACK")
        return seconds

    def _measure_p99(self, port: int, requests: Sequence[bytes]) -> float:
        """Send requests one after the other from another process."""
        return percentile(self.processes.submit(_send, port, requests).result(), 0.99)

    def _build_sign_ups(self) -> list[bytes]:
        path = f"/subscriptions/{self.list_id}"
        headers = {"Content-Type": "application/json"}
        return [
            build_body_request("POST", path, b'{"email": "new%d@example.com"}' % number, headers)
            for number in (next(self._numbers) for _ in range(CALLS))
        ]

    def _build_opt_outs(self) -> list[bytes]:
        """Return one-click requests of different members (RFC 8058)."""
        self.sql.execute(
            "SELECT user_id FROM subscriptions WHERE list_id = %s AND status = 'active'"
            " AND email_enabled ORDER BY id DESC LIMIT %s",
            (self.list_id, CALLS),
        )
        keyring = self.stack.resources.keyring
        return [
            build_body_request(
                "POST",
                "/unsubscribe?trace_id="
                + traces.create_trace_id(keyring, Trace(self.list_id, user_id)),
                b"List-Unsubscribe=One-Click",
                {"Content-Type": "application/x-www-form-urlencoded"},
            )
            for (user_id,) in self.sql.fetchall()
        ]

    @contextmanager
    def _comparing(self) -> Iterator[Callable[[], int]]:
        """Let a worker compare the segments. The yielded function counts finished comparisons."""
        worker = self.stack.start_worker("maintenance")
        stop = threading.Event()
        self.sql.execute("SELECT now()")
        [(begun_at,)] = self.sql.fetchall()

        def make_due() -> None:
            while not stop.wait(0.5):
                for statement in _MAKE_DUE:
                    self.stack.query(statement)

        def count_compared() -> int:
            query = "SELECT 1 FROM segment_watches WHERE compared_at > %s"
            return len(self.stack.query(query, begun_at))

        thread = threading.Thread(target=make_due)
        thread.start()
        try:
            eventually(count_compared, within=60, what="the first comparison")
            yield count_compared
        finally:
            stop.set()
            thread.join()
            worker.stop()


def _send(port: int, requests: Sequence[bytes]) -> list[float]:
    return asyncio.run(send_requests(port, [requests]))
