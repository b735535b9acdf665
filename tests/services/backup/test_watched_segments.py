"""Tests that the first comparison after a restore causes no events."""

from collections.abc import Callable

import pytest

from devstack.harness.stack import Stack
from tests.support.lists.segments import ALL_MEMBERS_FILTER
from tests.support.lists.subscribers import insert_members, new_address, new_list
from tests.support.lists.watched_segments import WatchedSegment, watch_segment
from tests.support.stack.backups import Backups, open_backups

pytestmark = pytest.mark.stack


def test_first_comparison_after_a_restore_is_silent(
    backups: Backups, open_separate_stack: Callable[..., Stack]
) -> None:
    stack = backups.stack
    api = stack.start_api()
    with stack.client(stack.create_owner().key) as client:
        list_id = int(new_list(client)["id"])
        segment = watch_segment(stack, client, list_id, ALL_MEMBERS_FILTER)
        insert_members(stack, list_id, [new_address()])
        backup = backups.run_command("backup", "create")
        restored = open_backups(open_separate_stack("watched", migrated=False), backups.folder)
        restored.run_command("backup", "restore", backup["id"])
        other = restored.stack
        copy = WatchedSegment(other, client, list_id, segment.id)
        other.query("UPDATE segment_watches SET due_at = now()")
        copy.compare_after(minutes=1)
        assert other.query("SELECT members FROM segment_watches") == [(1,)]
        assert copy.list_events() == []
        insert_members(other, list_id, [new_address()])
        copy.compare_after(hours=1)
        assert copy.list_happenings() == [("entered", 1)]
    api.stop()
    stack.processes.remove(api)
