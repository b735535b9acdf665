"""Pretends that an owner has used most of a quota, so that tests quickly reach the quota."""

from devstack.harness.stack import Stack

# The product's default for the maximum number of members on the paid plan.
MAX_MEMBERS = 10_000_000
MB = 2**20


def leave_room_for_members(stack: Stack, list_id: int, room: int) -> None:
    """Raise the stored number of members, so that the owner can add only ``room`` more members."""
    stack.query(
        "INSERT INTO subscriber_counts (list_id, active) SELECT %s, %s - coalesce("
        " (SELECT sum(active) FROM subscriber_deltas WHERE list_id = %s), 0)::bigint"
        " ON CONFLICT (list_id) DO UPDATE SET active = excluded.active",
        list_id,
        MAX_MEMBERS - room,
        list_id,
    )


def set_stored_bytes(stack: Stack, user_id: int, size: int) -> None:
    stack.query(
        "INSERT INTO storage_uses (user_id, bytes) VALUES (%s, %s)"
        " ON CONFLICT (user_id) DO UPDATE SET bytes = excluded.bytes",
        user_id,
        size,
    )


def stored_bytes(stack: Stack, user_id: int) -> int:
    rows = stack.query("SELECT bytes FROM storage_uses WHERE user_id = %s", user_id)
    return int(str(rows[0][0])) if rows else 0


def begin_jobs(stack: Stack, user_id: int, count: int) -> None:
    """Insert queued jobs for the user. The jobs never become due, so no worker runs them."""
    stack.query(
        "INSERT INTO jobs (kind, queue, user_id, on_behalf_of, status, run_at, send_after)"
        " SELECT 'export.members', 'export', %s, %s, 'queued', 'infinity', 'infinity'"
        " FROM generate_series(1, %s)",
        user_id,
        user_id,
        count,
    )


def end_jobs(stack: Stack, user_id: int) -> None:
    stack.query("DELETE FROM jobs WHERE user_id = %s AND run_at = 'infinity'", user_id)
