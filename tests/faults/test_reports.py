"""Tests that each report of a mail provider takes effect exactly once.

One test kills Postgres, the API and the worker. Another does so while members refuse to be
recorded. A third test posts each report to two API
processes.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Semaphore
from typing import Any

import httpx2
import pytest

from core.queues import Queue
from devstack.harness.embedded_services import Services, embedded_services
from devstack.harness.free_ports import free_port
from devstack.harness.opening import open_stack
from devstack.harness.polling import eventually
from devstack.harness.running import Running
from devstack.harness.stack import Stack
from devstack.supervisor.programs import is_responding
from tests.support.lists.subscribers import insert_members, new_list, trace_for
from tests.support.senders.mailings import new_mailing
from tests.support.senders.own_senders import new_sender
from tests.support.senders.posting import Report, bounce, delivery_for, post, report, settle
from tests.support.stack.held_rows import await_waiter, uncommitted
from tests.support.stack.programs import TEST_PROGRAMS
from tests.support.stack.signals import kill_with_children

pytestmark = [pytest.mark.stack, pytest.mark.tier("faults")]

MAILING_ID = 77
# Maps each kind of report to the number of members about whom the test posts such a report. The
# test also posts a report of the kind `delivered` about each member.
COUNTS = {
    "complained": 100,
    "unsubscribed": 100,
    "hard_bounced": 1_000,
    "soft_bounced": 3_700,
    "blocked": 200,
}
MEMBERS = 4_900
REPORTS_PER_BODY = 50
HEALTHY_WITHIN = 60.0
_INSERT_MAILING = "INSERT INTO mailings (id, list_id, created_at, rows) VALUES (%s, %s, now(), %s)"
_LOCK_MAILING = f"SELECT 1 FROM mailings WHERE id = {MAILING_ID} FOR UPDATE"


@dataclass
class Site:
    """A stack with its own services, which a test can kill without affecting other tests."""

    stack: Stack
    services: Services
    api: Running
    worker: Running

    def kill(self, running: Running) -> None:
        kill_with_children(running)
        self.stack.processes.remove(running)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    port = free_port()
    with (
        embedded_services(tmp_path) as services,
        open_stack(services, tmp_path, "reports", 1, port, programs=TEST_PROGRAMS) as stack,
    ):
        api = stack.start_api()
        yield Site(stack, services, api, stack.start_worker(Queue.MAINTENANCE, Queue.MAIL))


@dataclass
class Poster:
    """Posts each request body again until Pressroom accepts it.

    Attributes:
        gate: each ``release`` makes a thread post one request body, so that a test decides when
            request bodies are posted.
        broken: the number of requests without a response.
        busy: the number of requests that Pressroom refused with 429.
    """

    client: httpx2.Client
    sender: dict[str, Any]
    gate: Semaphore = field(default_factory=partial(Semaphore, 0))
    acknowledged: int = 0
    broken: int = 0
    busy: int = 0
    strange: list[str] = field(default_factory=list)

    def post(self, reports: Sequence[Report]) -> None:
        self.gate.acquire()
        self._post_until_accepted(reports)

    def _post_until_accepted(self, reports: Sequence[Report]) -> None:
        ends_at = time.monotonic() + 3 * HEALTHY_WITHIN
        while time.monotonic() < ends_at:
            try:
                reply = post(self.client, self.sender, *reports)
            except httpx2.HTTPError:
                self.broken += 1
                time.sleep(0.1)
                continue
            if reply.status_code == 200:
                self.acknowledged += 1
                return
            if reply.status_code != 429:
                self.strange.append(reply.text)
            self.busy += 1
            time.sleep(0.1)
        self.strange.append("a body was never acknowledged")


def build_reports(ids: Sequence[str]) -> list[Report]:
    """Return 10,000 reports, mixed so that each request contains several kinds of reports."""
    kinds = [kind for kind, count in COUNTS.items() for _ in range(count)]
    makers = {
        "hard_bounced": lambda each: bounce("hard", "5.1.1", delivery_id=each),
        "soft_bounced": lambda each: bounce("soft", "4.2.2", delivery_id=each),
        "blocked": lambda each: bounce("blocked", "5.7.1", delivery_id=each),
    }
    # The bounces happen after the deliveries, so that the deliveries don't take soft bounces back.
    delivered = [report("delivered", delivery_id=each) for each in ids]
    # Each member with a report of the kind `blocked` also has a report of the kind `soft_bounced`.
    members = [*ids, *ids[-COUNTS["blocked"] :]]
    bad = [
        makers[kind](each) if kind in makers else report(kind, delivery_id=each)
        for kind, each in zip(kinds, members, strict=True)
    ]
    reports = [*delivered, *bad]
    step = 7_919
    return [reports[number * step % len(reports)] for number in range(len(reports))]


def test_10000_reports_are_applied_exactly_once_while_each_process_is_killed(site: Site) -> None:
    stack = site.stack
    with stack.client(stack.create_owner().key) as client, ThreadPoolExecutor(4) as threads:
        list_id = int(new_list(client)["id"])
        poster = Poster(client, new_sender(client))
        insert_members(
            stack, list_id, [f"{number}.{list_id}@example.com" for number in range(MEMBERS)]
        )
        rows = stack.query("SELECT user_id FROM subscriptions WHERE list_id = %s", list_id)
        stack.query(_INSERT_MAILING, MAILING_ID, list_id, MEMBERS)
        reports = build_reports(
            [delivery_for(stack, list_id, int(str(row[0])), MAILING_ID) for row in rows]
        )
        assert len(reports) == 10_000
        starts = range(0, len(reports), REPORTS_PER_BODY)
        for start in starts:
            threads.submit(poster.post, reports[start : start + REPORTS_PER_BODY])
        _kill_worker(site, poster)
        _kill_postgres(site, poster)
        _kill_api(site, poster)
        # Let the threads post the remaining request bodies, which they have held back until now.
        poster.gate.release(len(starts) - 150)
        eventually(lambda: poster.acknowledged == len(starts), within=60, what="all responses")
        assert poster.strange == []
    waiting = "SELECT count(*) FROM sender_bodies"
    eventually(lambda: stack.query(waiting) == [(0,)], within=120, what="no waiting body")
    figures = {"delivered": MEMBERS, **COUNTS}
    query = f"SELECT {', '.join(figures)} FROM mailings WHERE id = %s"
    assert stack.query(query, MAILING_ID) == [tuple(figures.values())]
    applied = "SELECT count(*) FROM sender_reports WHERE outcome = 'applied'"
    assert stack.query(applied) == [(10_000,)]
    counted = "SELECT sum(count)::int FROM sender_counts WHERE outcome = 'applied'"
    assert stack.query(counted) == [(10_000,)]
    assert count_by(stack, "SELECT is_hard FROM bounces") == {True: 1_000, False: 3_700}
    opt_outs = {"sender-complaint": 100, "sender-unsubscribe": 100}
    assert count_by(stack, "SELECT source FROM opt_outs") == opt_outs
    unsubscribed_members = "SELECT count(*) FROM subscriptions WHERE status = 'unsubscribed'"
    eventually(
        lambda: stack.query(unsubscribed_members) == [(200,)],
        within=60,
        what="the end of all opt-outs",
    )
    history = {"complained": 100, "unsubscribed": 100, "bounced": 1_000}
    actions = "SELECT action FROM subscription_events WHERE actor = 'sender'"
    assert count_by(stack, actions) == history
    events = {"subscription.left": 200, "subscription.email_off": 1_000, "mailing.alarm": 1}
    types = "SELECT type FROM feed_events WHERE type = ANY (%s)"
    assert count_by(stack, types, list(events)) == events


def test_no_open_is_kept_after_a_no_while_each_process_is_killed(site: Site) -> None:
    """A third of the members refuse while a process is killed, and their opens are reported."""
    stack = site.stack
    with stack.client(stack.create_owner().key) as client:
        list_id = int(new_list(client, engagement="all")["id"])
        sender = new_sender(client)
        insert_members(stack, list_id, [f"{number}.{list_id}@example.com" for number in range(300)])
        rows = stack.query("SELECT user_id FROM subscriptions WHERE list_id = %s", list_id)
        user_ids = [int(str(user_id)) for (user_id,) in rows]
        stack.query(_INSERT_MAILING, MAILING_ID, list_id, len(user_ids))
        ids = [delivery_for(stack, list_id, user_id, MAILING_ID) for user_id in user_ids]
        reports = [report("opened", delivery_id=each) for each in ids]
        refusing = user_ids[::3]
        with ThreadPoolExecutor(4) as threads, uncommitted(stack, _LOCK_MAILING):
            assert post(client, sender, *reports).status_code == 200
            await_waiter(stack, "UPDATE mailings")
            refusals = [threads.submit(_refuse, stack, list_id, user_id) for user_id in refusing]
            eventually(lambda: any(each.done() for each in refusals), what="a refusal")
            site.kill(site.worker)
            site.services.restart("postgres")
            site.kill(site.api)
            site.api = stack.start_api()
            for refusal in refusals:
                refusal.result()
        site.worker = stack.start_worker(Queue.MAINTENANCE, Queue.MAIL)
        settle(stack, sender)
    outcomes = count_by(stack, "SELECT outcome FROM sender_reports")
    assert outcomes == {"applied": 200, "off": 100}
    rows = stack.query("SELECT user_id FROM member_engagement WHERE list_id = %s", list_id)
    assert {user_id for (user_id,) in rows} == set(user_ids) - set(refusing)
    query = "SELECT user_id FROM mailing_marks WHERE list_id = %s AND kind = 'opened'"
    marked = {user_id for (user_id,) in stack.query(query, list_id)}
    assert marked == set(user_ids) - set(refusing)


def _refuse(stack: Stack, list_id: int, user_id: int) -> None:
    """Repeat a refusal until the API accepts it."""
    query = {"trace_id": trace_for(stack, list_id, user_id)}
    ends_at = time.monotonic() + 3 * HEALTHY_WITHIN
    with stack.client() as client:
        while time.monotonic() < ends_at:
            with suppress(httpx2.HTTPError):
                path = f"/subscriptions/{list_id}/engagement"
                reply = client.put(path, params=query, json={"enabled": False})
                if reply.status_code == 200:
                    return
            time.sleep(0.1)
    raise AssertionError("the refusal was never accepted")


def _kill_worker(site: Site, poster: Poster) -> None:
    """Kill the worker in the middle of a transaction that processes reports."""
    with uncommitted(site.stack, _LOCK_MAILING):
        poster.gate.release(50)
        await_waiter(site.stack, "UPDATE mailings")
        site.kill(site.worker)
    site.worker = site.stack.start_worker(Queue.MAINTENANCE, Queue.MAIL)


def _kill_postgres(site: Site, poster: Poster) -> None:
    """Kill Postgres during a transaction of the worker, while reports are posted."""
    with uncommitted(site.stack, _LOCK_MAILING):
        poster.gate.release(25)
        await_waiter(site.stack, "UPDATE mailings")
        poster.gate.release(25)
        site.services.restart("postgres")
    eventually(lambda: poster.acknowledged == 100, within=HEALTHY_WITHIN, what="the responses")
    assert poster.busy > 0


def _kill_api(site: Site, poster: Poster) -> None:
    """Kill the API while reports are posted."""
    poster.gate.release(50)
    eventually(lambda: poster.acknowledged > 100, what="a response")
    site.kill(site.api)
    site.api = site.stack.start_api()
    eventually(
        lambda: is_responding(site.stack.api_port, "/readyz"), within=HEALTHY_WITHIN, what="/readyz"
    )
    assert poster.broken > 0


def count_by(stack: Stack, query: str, *values: object) -> Counter[object]:
    """Return how often each value appears in the result of a query with one column."""
    return Counter(value for (value,) in stack.query(query, *values))


def test_two_hosts_apply_bodies_that_both_received_only_once(
    stack: Stack, client: httpx2.Client
) -> None:
    list_id = int(new_list(client)["id"])
    sender = new_sender(client)
    insert_members(stack, list_id, [f"{number}.{list_id}@example.com" for number in range(200)])
    rows = stack.query("SELECT user_id FROM subscriptions WHERE list_id = %s", list_id)
    mailing_id = new_mailing(stack, list_id, rows=200)
    ids = [delivery_for(stack, list_id, int(str(row[0])), mailing_id) for row in rows]
    reports = [
        *(report("delivered", delivery_id=each) for each in ids),
        *(bounce(delivery_id=each) for each in ids[:100]),
        *(report("complained", delivery_id=each) for each in ids[100:110]),
    ]
    bodies = [reports[start : start + 10] for start in range(0, len(reports), 10)]
    worker = stack.start_worker(Queue.MAINTENANCE)
    try:
        with (
            stack.run_second_api() as second_api,
            second_api.client() as other_client,
            ThreadPoolExecutor(4) as threads,
        ):
            for body in bodies:
                for each in (client, other_client):
                    threads.submit(post, each, sender, *body)
        settle(stack, sender)
    finally:
        worker.stop()
        stack.processes.remove(worker)
    query = "SELECT outcome FROM sender_reports WHERE sender_id = %s"
    assert count_by(stack, query, sender["id"]) == {"applied": 310, "duplicate": 310}
    query = "SELECT delivered, hard_bounced, complained FROM mailings WHERE id = %s"
    assert stack.query(query, mailing_id) == [(200, 100, 10)]
