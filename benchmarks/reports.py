"""Measures how fast Pressroom processes reports about mails, such as reports of bounces.

The benchmark posts 100,000 reports in Pressroom's own format, with 1,000 reports in each request
body. Each report is about a different member of one mailing. The measurement starts with the first
request. The measurement ends when Pressroom has processed all reports, and all members who
complained or unsubscribed have left the list. Each request body contains deliveries, bounces,
complaints and unsubscriptions in the proportions of a real mailing. The benchmark uses one API
process and one worker process.

The module ``single_reports`` measures requests that contain one report each.
"""

import asyncio
import time
from collections.abc import Sequence

from benchmarks import single_reports
from benchmarks.http_load import send_requests
from benchmarks.measure import Finding, is_full_size, median_and_spread
from benchmarks.reports_stack import BenchMailing, ReportsBench, reports_bench
from devstack.sandbox.senders.mail_events import EventKind, MailEvent

REPORTS_PER_BODY = 1_000
BODIES = 100
WARM_UP_BODIES = 5
POSTERS = 4
ROUNDS = 5 if is_full_size() else 3
MIN_PER_SECOND = 10_000
# The number of reports of each kind in a request body.
MIX = {
    EventKind.DELIVERED: 974,
    EventKind.SOFT_BOUNCE: 13,
    EventKind.HARD_BOUNCE: 7,
    EventKind.BLOCKED: 2,
    EventKind.UNSUBSCRIBED: 3,
    EventKind.COMPLAINED: 1,
}
_FIGURES = """
    SELECT delivered, soft_bounced, hard_bounced, blocked, unsubscribed, complained
    FROM mailings WHERE id = %s
"""
_CHANGED_MEMBERS = """
    SELECT count(*) FILTER (WHERE status = 'unsubscribed'),
        count(*) FILTER (WHERE status = 'active' AND NOT email_enabled)
    FROM subscriptions WHERE list_id = %s
"""


def run() -> list[Finding]:
    with reports_bench() as bench:
        _measure_round(bench, WARM_UP_BODIES)
        rates = [_measure_round(bench, BODIES) for _ in range(ROUNDS)]
        rate, spread = median_and_spread(rates)
        details = {"reports": BODIES * REPORTS_PER_BODY, "reports_per_body": REPORTS_PER_BODY}
        name, bar = "reports: bodies of 1,000", f"≥ {MIN_PER_SECOND:,} per second"
        return [
            Finding(name, rate, "/s", bar, rate >= MIN_PER_SECOND, spread, details),
            *single_reports.measure_posts(bench),
            single_reports.measure_charges(bench),
        ]


def _measure_round(bench: ReportsBench, bodies: int) -> float:
    """Return how many reports Pressroom processed per second."""
    list_id, user_ids = bench.create_list(bodies * REPORTS_PER_BODY)
    mailing = bench.create_mailing(list_id, user_ids)
    posts = _build_posts(bench, mailing.delivery_ids)
    start = time.perf_counter()
    asyncio.run(send_requests(bench.stack.api_port, [posts[n::POSTERS] for n in range(POSTERS)]))
    bench.await_effects()
    seconds = time.perf_counter() - start
    _check_effects(bench, mailing, bodies)
    return len(user_ids) / seconds


def _build_posts(bench: ReportsBench, delivery_ids: Sequence[str]) -> list[bytes]:
    kinds = [kind for kind, number in MIX.items() for _ in range(number)]
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


def _check_effects(bench: ReportsBench, mailing: BenchMailing, bodies: int) -> None:
    """Check that Pressroom counted each report exactly once."""
    expected = tuple(bodies * number for number in MIX.values())
    [figures] = bench.stack.query(_FIGURES, mailing.id)
    assert figures == expected, figures
    _, _, hard, _, unsubscribed, complained = expected
    changed = (unsubscribed + complained, hard)
    [members] = bench.stack.query(_CHANGED_MEMBERS, mailing.list_id)
    assert members == changed, members
