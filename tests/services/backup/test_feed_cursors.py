"""Tests that cursors of the event feed stay valid after a backup is restored."""

from collections.abc import Callable

import pytest

from core.ids import random_id
from devstack.harness.polling import eventually
from devstack.harness.stack import Stack
from services.feed.reading import FeedPosition
from tests.support.feed.following import commit_event, read_events
from tests.support.stack.backups import Backups, open_backups

pytestmark = pytest.mark.stack


def test_feed_cursors_issued_before_a_restore_stay_valid_and_miss_no_event(
    backups: Backups, open_separate_stack: Callable[..., Stack]
) -> None:
    resources = backups.stack.resources
    user_id = random_id()
    for _ in range(3):
        commit_event(resources, user_id)
    eventually(lambda: len(read_events(resources, user_id)) == 3, what="the first three events")
    events = read_events(resources, user_id)
    backup = backups.run_command("backup", "create")
    commit_event(resources, user_id)
    eventually(
        lambda: len(read_events(resources, user_id)) == 4, what="the event that will be lost"
    )
    lost_event = read_events(resources, user_id)[-1]

    target = open_backups(open_separate_stack("followed", migrated=False), backups.folder)
    target.run_command("backup", "restore", backup["id"])
    restored_resources = target.stack.resources
    assert [each.id for each in read_events(restored_resources, user_id)] == [
        each.id for each in events
    ]
    commit_event(restored_resources, user_id)
    eventually(
        lambda: len(read_events(restored_resources, user_id)) == 4,
        what="the event after the restore",
    )
    [new_event] = read_events(restored_resources, user_id, FeedPosition.of_event(lost_event))
    assert new_event.id > lost_event.id
    position = FeedPosition.of_event(events[1])
    assert [each.id for each in read_events(restored_resources, user_id, position)] == [
        events[2].id,
        new_event.id,
    ]
