"""Tests that backups omit stored requests of senders, which Pressroom keeps for a day at most."""

from collections.abc import Callable

import pytest

from devstack.harness.stack import Stack
from tests.support.stack.backups import Backups, open_backups

pytestmark = pytest.mark.stack


def test_backup_contains_senders_without_their_waiting_bodies(
    backups: Backups, open_separate_stack: Callable[..., Stack]
) -> None:
    stack = backups.stack
    [(sender_id,)] = stack.query(
        "INSERT INTO senders (user_id, name, provider) VALUES (%s, 'x', 'generic') RETURNING id",
        stack.create_owner().user_id,
    )
    stack.query(
        "INSERT INTO sender_bodies (sender_id, size, context, wrapped_key, wrapped_by, body)"
        " VALUES (%s, 1, 'x', 'x', 'x', 'x')",
        sender_id,
    )
    backup = backups.run_command("backup", "create")
    target = open_backups(open_separate_stack("bodies", migrated=False), backups.folder)
    target.run_command("backup", "restore", backup["id"])
    restored = target.stack
    assert restored.query("SELECT id FROM senders WHERE id = %s", sender_id) == [(sender_id,)]
    assert restored.query("SELECT 1 FROM sender_bodies") == []
    query = "DELETE FROM sender_bodies WHERE sender_id = %s RETURNING 1"
    assert stack.query(query, sender_id) == [(1,)]
