"""What tests of quotas need: an owner who has nearly all that the plan allows, made in no time."""

from devstack.harness.stack import Stack

# The product's default for members on the paid plan, which the stacks of tests have too.
MOST_MEMBERS = 10_000_000
MB = 2**20


def leave_room_for_members(stack: Stack, list_id: int, room: int) -> None:
    """As if the list had all the members but ``room`` that its owner may have."""
    stack.query(
        "INSERT INTO subscriber_counts (list_id, active) SELECT %s, %s - coalesce("
        " (SELECT sum(active) FROM subscriber_deltas WHERE list_id = %s), 0)::bigint"
        " ON CONFLICT (list_id) DO UPDATE SET active = excluded.active",
        list_id,
        MOST_MEMBERS - room,
        list_id,
    )


def store(stack: Stack, user_id: int, size: int) -> None:
    """As if the user had stored so many bytes."""
    stack.query(
        "INSERT INTO storage_uses (user_id, bytes) VALUES (%s, %s)"
        " ON CONFLICT (user_id) DO UPDATE SET bytes = excluded.bytes",
        user_id,
        size,
    )


def stored_bytes(stack: Stack, user_id: int) -> int:
    """As the triggers have counted them."""
    found = stack.query("SELECT bytes FROM storage_uses WHERE user_id = %s", user_id)
    return int(str(found[0][0])) if found else 0


def begin_jobs(stack: Stack, user_id: int, count: int) -> None:
    """Jobs of the user that no worker does."""
    stack.query(
        "INSERT INTO jobs (kind, queue, user_id, on_behalf_of, status, run_at, send_after)"
        " SELECT 'export.members', 'export', %s, %s, 'queued', 'infinity', 'infinity'"
        " FROM generate_series(1, %s)",
        user_id,
        user_id,
        count,
    )


def end_jobs(stack: Stack, user_id: int) -> None:
    """Before the stack goes on: no worker will."""
    stack.query("DELETE FROM jobs WHERE user_id = %s AND run_at = 'infinity'", user_id)
