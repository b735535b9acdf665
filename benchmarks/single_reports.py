"""Measures how fast one API process handles requests that contain one report each.

Most mail providers send one report per request. A report says, for example, that a mail was
delivered or has bounced. The benchmark measures:

- How many reports per second the API accepts, in Pressroom's own format and in the format of
  Postmark. Several callers send reports as fast as they can, while a worker processes the reports.
  The benchmark also sends 300 reports per second, and adds the response times to the result.
- How much slower the API charges credits while it receives reports. The benchmark sends 200
  charges per second, with and without 100 reports per second. The result is the response time of
  charges while the API receives reports, divided by their response time without reports.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from http import HTTPStatus

from benchmarks.http_load import Reply, build_json_request, offer_requests, send_requests
from benchmarks.measure import Finding, alternate, is_full_size, median_and_spread, percentile
from benchmarks.reports_stack import BenchSender, ReportsBench
from devstack.sandbox.senders.mail_events import EventKind, MailEvent
from services.credits import ledger

SECONDS = 20 if is_full_size() else 5
ROUNDS = 5 if is_full_size() else 3
MEMBERS = 10_000
CALLERS = 16
MIN_POSTS_PER_SECOND = 300
CHARGES_PER_SECOND = 200
POSTS_AMID_CHARGES_PER_SECOND = 100
MAX_P99_SLOWDOWN = 3.0
_CHARGE = b'{"amount_credit": 0.0001, "source_id": "post-1", "meta": {"words": 12}}'


def measure_posts(bench: ReportsBench) -> list[Finding]:
    """Measure how many reports per second one API process accepts, in two formats."""
    list_id, user_ids = bench.create_list(MEMBERS)
    return [
        _measure_format(bench, sender, list_id, user_ids)
        for sender in (bench.generic, bench.postmark)
    ]


def measure_charges(bench: ReportsBench) -> Finding:
    """Compare the response times of charges with and without concurrent reports."""
    database = bench.stack.resources.database
    ledger.grant_credits(
        database, bench.owner.account_id, Decimal(1_000_000), source_id="benchmark"
    )
    list_id, user_ids = bench.create_list(MEMBERS)
    charge = build_json_request("POST", "/auxilia/credits/consume", bench.owner.key, _CHARGE)
    charges = [charge] * (CHARGES_PER_SECOND * SECONDS)
    statuses: Counter[int] = Counter()

    def offer_charges() -> float:
        return _find_p99(asyncio.run(_offer(bench, charges, CHARGES_PER_SECOND)), statuses)

    def offer_both() -> float:
        number = POSTS_AMID_CHARGES_PER_SECOND * SECONDS
        posts = _build_posts(bench, bench.generic, list_id, user_ids, number)
        replies, post_replies = asyncio.run(_offer_both(bench, charges, posts))
        bench.await_effects()
        _find_p99(post_replies, statuses)
        return _find_p99(replies, statuses)

    pairs = alternate(offer_both, offer_charges, rounds=ROUNDS)
    ratio, spread = median_and_spread([amid / quiet for amid, quiet in pairs])
    refused = statuses.total() - statuses[HTTPStatus.OK]
    details = {
        "p99_ms": _ms([amid for amid, _ in pairs]),
        "quiet_p99_ms": _ms([quiet for _, quiet in pairs]),
        "refused": refused,
    }
    bar = f"≤ {MAX_P99_SLOWDOWN:g} ×, none refused"
    met = ratio <= MAX_P99_SLOWDOWN and not refused
    return Finding("reports: p99 of charges amid posts", ratio, "×", bar, met, spread, details)


def _measure_format(
    bench: ReportsBench, sender: BenchSender, list_id: int, user_ids: Sequence[int]
) -> Finding:
    number = MIN_POSTS_PER_SECOND * SECONDS
    rates: list[float] = []
    for _ in range(ROUNDS + 1):
        posts = _build_posts(bench, sender, list_id, user_ids, number)
        start = time.perf_counter()
        asyncio.run(
            send_requests(bench.stack.api_port, [posts[n::CALLERS] for n in range(CALLERS)])
        )
        rates.append(number / (time.perf_counter() - start))
        bench.await_effects()
    posts = _build_posts(bench, sender, list_id, user_ids, number)
    replies = asyncio.run(_offer(bench, posts, MIN_POSTS_PER_SECOND))
    bench.await_effects()
    # Skip the first round, which only warms up the API process.
    rate, spread = median_and_spread(rates[1:])
    refused = sum(reply.status != HTTPStatus.OK for reply in replies)
    times = [reply.seconds for reply in replies]
    details = {
        "p50_ms": _ms([percentile(times, 0.5)]),
        "p99_ms": _ms([percentile(times, 0.99)]),
        "refused": refused,
    }
    name = f"reports: single posts, {sender.plan.provider}"
    bar = f"≥ {MIN_POSTS_PER_SECOND} per second, none refused"
    met = rate >= MIN_POSTS_PER_SECOND and not refused
    return Finding(name, rate, "/s", bar, met, spread, details)


def _build_posts(
    bench: ReportsBench, sender: BenchSender, list_id: int, user_ids: Sequence[int], number: int
) -> list[bytes]:
    """Create a mailing, and return requests, each with one report about a different member."""
    mailing = bench.create_mailing(list_id, user_ids[:number])
    return [
        sender.build_post([MailEvent(kind=EventKind.DELIVERED, delivery_id=each)])
        for each in mailing.delivery_ids
    ]


async def _offer(bench: ReportsBench, requests: Sequence[bytes], per_second: int) -> list[Reply]:
    return await offer_requests(bench.stack.api_port, requests, per_second=per_second)


async def _offer_both(
    bench: ReportsBench, charges: Sequence[bytes], posts: Sequence[bytes]
) -> tuple[list[Reply], list[Reply]]:
    return await asyncio.gather(
        _offer(bench, charges, CHARGES_PER_SECOND),
        _offer(bench, posts, POSTS_AMID_CHARGES_PER_SECOND),
    )


def _find_p99(replies: Sequence[Reply], statuses: Counter[int]) -> float:
    """Return the 99th percentile of the response times, and count the statuses in ``statuses``."""
    statuses.update(reply.status for reply in replies)
    return percentile([reply.seconds for reply in replies], 0.99)


def _ms(seconds: Sequence[float]) -> float:
    return round(1000 * median_and_spread(seconds)[0], 1)
