"""Measures how fast Pressroom processes reports about mails, such as reports of bounces.

The benchmark posts 100,000 reports in Pressroom's own format, with 1,000 reports in each request
body. Each report is about a different member of one mailing. The measurement starts with the first
request. The measurement ends when Pressroom has processed all reports, and all members who
complained or unsubscribed have left the list. Each request body contains deliveries, bounces,
complaints and unsubscriptions in the proportions of a real mailing. The benchmark uses one API
process and one worker process. The same reports, and reports of opens, are then measured for a list
that records the engagement of all members.

The module ``single_reports`` measures requests that contain one report each.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence

from benchmarks import single_reports
from benchmarks.http_load import send_requests
from benchmarks.measure import Finding, is_full_size, median_and_spread
from benchmarks.reports_stack import BenchMailing, ReportsBench, reports_bench
from devstack.sandbox.senders.mail_events import EventKind, MailEvent
from models import EngagementMode

REPORTS_PER_BODY = 1_000
BODIES = 100
WARM_UP_BODIES = 5
POSTERS = 4
ROUNDS = 5 if is_full_size() else 3
MIN_PER_SECOND = 10_000
MIN_RECORDED_PER_SECOND = 6_000
# The number of reports of each kind in a request body.
MIX = {
    EventKind.DELIVERED: 974,
    EventKind.SOFT_BOUNCE: 13,
    EventKind.HARD_BOUNCE: 7,
    EventKind.BLOCKED: 2,
    EventKind.UNSUBSCRIBED: 3,
    EventKind.COMPLAINED: 1,
}
OPENS = {EventKind.OPENED: REPORTS_PER_BODY}
# Maps the kinds of reports to the columns that count them.
_FIGURES = {
    EventKind.DELIVERED: "delivered",
    EventKind.SOFT_BOUNCE: "soft_bounced",
    EventKind.HARD_BOUNCE: "hard_bounced",
    EventKind.BLOCKED: "blocked",
    EventKind.UNSUBSCRIBED: "unsubscribed",
    EventKind.COMPLAINED: "complained",
    EventKind.OPENED: "opened",
}
_CHANGED_MEMBERS = """
    SELECT count(*) FILTER (WHERE status = 'unsubscribed'),
        count(*) FILTER (WHERE status = 'active' AND NOT email_enabled)
    FROM subscriptions WHERE list_id = %s
"""


def run() -> list[Finding]:
    with reports_bench() as bench:
        _measure_round(bench, WARM_UP_BODIES)
        return [
            _measure(bench, "reports: bodies of 1,000", EngagementMode.OFF, MIX, MIN_PER_SECOND),
            _measure(
                bench,
                "reports: recorded deliveries",
                EngagementMode.ALL,
                MIX,
                MIN_RECORDED_PER_SECOND,
            ),
            _measure(
                bench,
                "reports: recorded opens",
                EngagementMode.ALL,
                OPENS,
                MIN_RECORDED_PER_SECOND,
            ),
            *single_reports.measure_posts(bench),
            single_reports.measure_charges(bench),
        ]


def _measure(
    bench: ReportsBench,
    name: str,
    mode: EngagementMode,
    mix: Mapping[EventKind, int],
    min_per_second: int,
) -> Finding:
    rates = [_measure_round(bench, BODIES, mode, mix) for _ in range(ROUNDS)]
    rate, spread = median_and_spread(rates)
    details = {"reports": BODIES * REPORTS_PER_BODY, "reports_per_body": REPORTS_PER_BODY}
    bar = f"≥ {min_per_second:,} per second"
    return Finding(name, rate, "/s", bar, rate >= min_per_second, spread, details)


def _measure_round(
    bench: ReportsBench,
    bodies: int,
    mode: EngagementMode = EngagementMode.OFF,
    mix: Mapping[EventKind, int] = MIX,
) -> float:
    """Return how many reports Pressroom processed per second."""
    list_id, user_ids = bench.create_list(bodies * REPORTS_PER_BODY)
    bench.stack.query("UPDATE lists SET engagement = %s WHERE id = %s", mode, list_id)
    mailing = bench.create_mailing(list_id, user_ids)
    posts = _build_posts(bench, mailing.delivery_ids, mix)
    start = time.perf_counter()
    asyncio.run(send_requests(bench.stack.api_port, [posts[n::POSTERS] for n in range(POSTERS)]))
    bench.await_effects()
    seconds = time.perf_counter() - start
    _check_effects(bench, mailing, bodies, mode, mix)
    return len(user_ids) / seconds


def _build_posts(
    bench: ReportsBench, delivery_ids: Sequence[str], mix: Mapping[EventKind, int]
) -> list[bytes]:
    kinds = [kind for kind, number in mix.items() for _ in range(number)]
    # Spread the rare kinds of reports, such as complaints, over the request body. Because 7 and
    # ``len(kinds)`` have no common divisor, ``mixed_kinds`` contains each item of ``kinds`` exactly
    # once.
    mixed_kinds = [kinds[place * 7 % len(kinds)] for place in range(len(kinds))]
    bodies = [
        delivery_ids[start : start + REPORTS_PER_BODY]
        for start in range(0, len(delivery_ids), REPORTS_PER_BODY)
    ]
    return [
        bench.generic.build_post(
            [
                MailEvent(kind=kind, delivery_id=each)
                for each, kind in zip(body, mixed_kinds, strict=True)
            ]
        )
        for body in bodies
    ]


def _check_effects(
    bench: ReportsBench,
    mailing: BenchMailing,
    bodies: int,
    mode: EngagementMode,
    mix: Mapping[EventKind, int],
) -> None:
    """Check that Pressroom counted each report exactly once."""
    expected = {kind: bodies * mix.get(kind, 0) for kind in _FIGURES}
    columns = ", ".join(_FIGURES.values())
    [figures] = bench.stack.query(f"SELECT {columns} FROM mailings WHERE id = %s", mailing.id)
    assert figures == tuple(expected.values()), figures
    changed = (
        expected[EventKind.UNSUBSCRIBED] + expected[EventKind.COMPLAINED],
        expected[EventKind.HARD_BOUNCE],
    )
    [members] = bench.stack.query(_CHANGED_MEMBERS, mailing.list_id)
    assert members == changed, members
    recorded = 0
    if mode != EngagementMode.OFF:
        recorded = expected[EventKind.DELIVERED] + expected[EventKind.OPENED]
    query = "SELECT count(*) FROM member_engagement WHERE list_id = %s"
    assert bench.stack.query(query, mailing.list_id) == [(recorded,)]
