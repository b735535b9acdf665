"""Tests that no event of a watched segment is lost or repeated.

The tests kill the worker and Postgres while they write 10,000 differences.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from core.queues import Queue
from devstack.harness.embedded_services import Services, embedded_services
from devstack.harness.free_ports import free_port
from devstack.harness.opening import open_stack
from devstack.harness.polling import eventually
from devstack.harness.running import Running
from devstack.harness.stack import Stack
from tests.support.imports.bulk import build_addresses
from tests.support.lists.segments import ALL_MEMBERS_FILTER
from tests.support.lists.subscribers import insert_members, new_list
from tests.support.lists.watched_segments import WatchedSegment, watch_segment
from tests.support.stack.held_rows import await_waiter, locked_row
from tests.support.stack.maintenance import run_maintenance
from tests.support.stack.programs import TEST_PROGRAMS
from tests.support.stack.signals import kill_with_children

pytestmark = [pytest.mark.stack, pytest.mark.tier("faults")]

# The first words of the statement, because Postgres shows only its beginning.
_WRITING = "WITH matching AS"
# Ends the lease of a killed run too, so that the test needn't wait until the lease expires.
_MAKE_DUE = """
UPDATE maintenance SET due_at = now(), send_after = now(), lease_expires_at = NULL
WHERE name = 'segments.compare'
"""
_LAST_MEMBER = "SELECT user_id FROM subscriptions WHERE list_id = %s ORDER BY id DESC LIMIT 1"


@dataclass
class Site:
    """A stack with its own services, which a test can kill without affecting other tests."""

    stack: Stack
    services: Services
    worker: Running

    def kill_worker(self) -> None:
        kill_with_children(self.worker)
        self.stack.processes.remove(self.worker)

    def start_worker(self) -> None:
        self.worker = self.stack.start_worker(Queue.MAINTENANCE)

    def restart_worker(self) -> None:
        self.kill_worker()
        self.start_worker()

    def restart_postgres(self) -> None:
        self.services.restart("postgres")


@pytest.fixture
def watching_site(tmp_path: Path) -> Iterator[Site]:
    port = free_port()
    with (
        embedded_services(tmp_path) as services,
        open_stack(services, tmp_path, "watched", 1, port, programs=TEST_PROGRAMS) as stack,
    ):
        stack.start_api()
        yield Site(stack, services, stack.start_worker(Queue.MAINTENANCE))


@pytest.mark.parametrize("members", [10_000, 25_000])
def test_each_difference_is_written_once_while_each_process_is_killed(
    watching_site: Site, members: int
) -> None:
    stack = watching_site.stack
    with stack.client(stack.create_owner().key) as client:
        list_id = int(new_list(client)["id"])
        segment = watch_segment(stack, client, list_id, ALL_MEMBERS_FILTER)
        insert_members(stack, list_id, build_addresses(members))
        _kill_during_a_write(watching_site, segment, watching_site.restart_worker)
        _kill_during_a_write(watching_site, segment, watching_site.restart_postgres)
        eventually(lambda: _is_compared(segment, members), within=120, what="all differences")
        happenings = Counter(segment.list_happenings())
        if members > 10_000:
            [event] = segment.list_events()
            assert (event["data"]["entered"], event["data"]["left"]) == (members, 0)
        else:
            assert happenings == {("entered", 1): members}
    changes = stack.query("SELECT user_id FROM segment_changes")
    assert len({user_id for (user_id,) in changes}) == len(changes) == members
    assert stack.query("SELECT count(*) FROM segment_members WHERE is_in") == [(members,)]
    assert stack.query("SELECT members, recorded FROM segment_watches") == [(members, members)]


def _kill_during_a_write(site: Site, segment: WatchedSegment, kill: Callable[[], None]) -> None:
    """Kill a process while a transaction that writes differences waits for a member's row."""
    [(user_id,)] = site.stack.query(_LAST_MEMBER, segment.list_id)
    with locked_row(site.stack, "users", user_id):
        segment.change(watch={})
        site.stack.query(_MAKE_DUE)
        await_waiter(site.stack, _WRITING)
        kill()


def _is_compared(segment: WatchedSegment, members: int) -> bool:
    segment.stack.query(f"{_MAKE_DUE} AND due_at > now()")
    return segment.read_watch()["members"] == members and bool(segment.list_events())


def test_stop_of_four_days_loses_no_birthday_of_the_last_three_days(watching_site: Site) -> None:
    stack = watching_site.stack
    with stack.client(stack.create_owner().key) as client:
        list_id = int(new_list(client)["id"])
        # Member 1 has the day of the segment four days ago, member 5 has today's day.
        watch_segment(stack, client, list_id, {"field": "joined_at", "is": {"days_ago": 7}})
        insert_members(stack, list_id, build_addresses(5))
        stack.query(
            "UPDATE subscriptions AS s SET joined_at = now() - make_interval(days => 12 - n::int)"
            " FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM subscriptions) AS numbered"
            " WHERE numbered.id = s.id"
        )
        stack.query(
            "UPDATE segment_watches SET compared_day = CURRENT_DATE - 5,"
            " due_at = now() - interval '4 days', is_silent = false"
        )
        run_maintenance(stack, "segments.compare")
        rows = stack.query(
            "SELECT c.change, c.day - CURRENT_DATE, n FROM segment_changes AS c JOIN ("
            "   SELECT user_id, row_number() OVER (ORDER BY id) AS n FROM subscriptions"
            ") AS numbered USING (user_id) ORDER BY c.id"
        )
    entered = [(day, number) for change, day, number in rows if change == "entered"]
    assert entered == [(-3, 2), (-2, 3), (-1, 4), (0, 5)]
    left = [(day, number) for change, day, number in rows if change == "left"]
    assert left == [(-2, 2), (-1, 3), (0, 4)]
