"""Tests that each report is applied exactly once while the API, worker and Postgres are killed."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from core.queues import Queue
from devstack.harness.embedded_services import Services, embedded_services
from devstack.harness.free_ports import free_port
from devstack.harness.opening import open_stack
from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from devstack.supervisor.programs import is_responding
from tests.support.lists.subscribers import fill, new_list
from tests.support.senders.own_senders import new_sender
from tests.support.senders.posting import Report, bounce, delivery_for, post, report
from tests.support.stack.programs import TEST_PROGRAMS
from tests.support.stack.signals import kill_with_children

pytestmark = [pytest.mark.stack, pytest.mark.tier("faults")]

MAILING_ID = 77
MEMBERS = 3_300
COMPLAINTS = 100
REPORTS_PER_BODY = 50
HEALTHY_WITHIN = 60.0
_INSERT_MAILING = "INSERT INTO mailings (id, list_id, created_at, rows) VALUES (%s, %s, now(), %s)"


@dataclass
class Site:
    """A stack with its own services, so that killing them doesn't affect other tests."""

    stack: Stack
    services: Services
    worker: Any = None


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    port = free_port()
    with (
        embedded_services(tmp_path) as services,
        open_stack(services, tmp_path, "reports", 1, port, programs=TEST_PROGRAMS) as stack,
    ):
        stack.start_api()
        yield Site(stack, services, stack.start_worker(Queue.MAINTENANCE, Queue.MAIL))


@dataclass
class Poster:
    """Posts each request body again until Pressroom accepts it."""

    client: httpx2.Client
    sender: dict[str, Any]
    acknowledged: int = 0
    strange: list[str] = field(default_factory=list)

    def post(self, reports: list[Report]) -> None:
        ends_at = time.monotonic() + 3 * HEALTHY_WITHIN
        while time.monotonic() < ends_at:
            try:
                reply = post(self.client, self.sender, *reports)
            except httpx2.HTTPError:
                time.sleep(0.2)
                continue
            if reply.status_code == 200:
                self.acknowledged += 1
                return
            if reply.status_code != 429:
                self.strange.append(reply.text)
            time.sleep(0.2)
        self.strange.append("a body was never acknowledged")


def kill_each(site: Site) -> None:
    """Kill the worker, the API and Postgres one after another, and start them again."""
    stack = site.stack
    kill_with_children(site.worker)
    stack.processes.remove(site.worker)
    site.worker = stack.start_worker(Queue.MAINTENANCE, Queue.MAIL)
    site.services.restart("postgres")
    [api] = [each for each in stack.processes if each is not site.worker]
    kill_with_children(api)
    stack.processes.remove(api)
    stack.start_api()
    eventually(
        lambda: is_responding(stack.api_port, "/readyz"), within=HEALTHY_WITHIN, what="/readyz"
    )


def test_10000_reports_are_applied_exactly_once_while_each_process_is_killed(site: Site) -> None:
    stack = site.stack
    with stack.client(stack.create_owner().key) as client:
        list_id = int(new_list(client)["id"])
        sender = new_sender(client)
        fill(stack, list_id, [f"{number}.{list_id}@example.com" for number in range(MEMBERS)])
        rows = stack.query("SELECT user_id FROM subscriptions WHERE list_id = %s", list_id)
        stack.query(_INSERT_MAILING, MAILING_ID, list_id, MEMBERS)
        ids = [delivery_for(stack, list_id, int(str(row[0])), MAILING_ID) for row in rows]
        reports = [
            *(report("delivered", delivery_id=each) for each in ids),
            *(bounce("blocked", "5.7.1", delivery_id=each) for each in ids),
            *(bounce("soft", "4.2.2", delivery_id=each) for each in ids),
            *(report("complained", delivery_id=each) for each in ids[:COMPLAINTS]),
        ]
        assert len(reports) == 10_000
        poster = Poster(client, sender)
        starts = range(0, len(reports), REPORTS_PER_BODY)
        bodies = [reports[start : start + REPORTS_PER_BODY] for start in starts]
        with ThreadPoolExecutor(4) as threads:
            posted = [threads.submit(poster.post, body) for body in bodies]
            while not all(each.done() for each in posted):
                kill_each(site)
        assert poster.strange == []
        assert poster.acknowledged == len(bodies)
        waiting = "SELECT count(*) FROM sender_bodies"
        eventually(lambda: stack.query(waiting) == [(0,)], within=120, what="no waiting body")
        figures = "SELECT delivered, blocked, soft_bounced, complained FROM mailings WHERE id = %s"
        assert stack.query(figures, MAILING_ID) == [(MEMBERS, MEMBERS, MEMBERS, COMPLAINTS)]
        applied = "SELECT count(*) FROM sender_reports WHERE outcome = 'applied'"
        assert stack.query(applied) == [(10_000,)]
        left = "SELECT count(*) FROM subscriptions WHERE list_id = %s AND status = 'unsubscribed'"
        eventually(
            lambda: stack.query(left, list_id) == [(COMPLAINTS,)], within=120, what="the opt-outs"
        )
        told = "SELECT count(*) FROM subscription_events WHERE action = 'complained'"
        assert stack.query(told) == [(COMPLAINTS,)]
