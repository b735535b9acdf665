"""Changes stored counts, so that an owner quickly comes close to the quotas of the plan."""

from devstack.harness.stack import Stack

# The maximum number of members on the paid plan. Test stacks use the product's default.
MAX_MEMBERS = 10_000_000
MB = 2**20


def leave_room_for_members(stack: Stack, list_id: int, room: int) -> None:
    """Change the stored count, as if the list's owner could add only ``room`` more members."""
    stack.query(
        "INSERT INTO subscriber_counts (list_id, active) SELECT %s, %s - coalesce("
        " (SELECT sum(active) FROM subscriber_deltas WHERE list_id = %s), 0)::bigint"
        " ON CONFLICT (list_id) DO UPDATE SET active = excluded.active",
        list_id,
        MAX_MEMBERS - room,
        list_id,
    )


def set_stored_bytes(stack: Stack, user_id: int, size: int) -> None:
    """Change the stored count, as if the user had stored this many bytes."""
    stack.query(
        "INSERT INTO storage_uses (user_id, bytes) VALUES (%s, %s)"
        " ON CONFLICT (user_id) DO UPDATE SET bytes = excluded.bytes",
        user_id,
        size,
    )


def stored_bytes(stack: Stack, user_id: int) -> int:
    """Return the number of the user's stored bytes, which database triggers count."""
    rows = stack.query("SELECT bytes FROM storage_uses WHERE user_id = %s", user_id)
    return int(str(rows[0][0])) if rows else 0


def begin_jobs(stack: Stack, user_id: int, count: int) -> None:
    """Insert jobs of the user that never become due."""
    stack.query(
        "INSERT INTO jobs (kind, queue, user_id, on_behalf_of, status, run_at, send_after)"
        " SELECT 'export.members', 'export', %s, %s, 'queued', 'infinity', 'infinity'"
        " FROM generate_series(1, %s)",
        user_id,
        user_id,
        count,
    )


def end_jobs(stack: Stack, user_id: int) -> None:
    """Delete the jobs from ``begin_jobs``, because no worker would ever end them."""
    stack.query("DELETE FROM jobs WHERE user_id = %s AND run_at = 'infinity'", user_id)
