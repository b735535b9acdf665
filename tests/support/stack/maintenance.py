"""Maintenance at the moment at which a test wants it."""

from collections.abc import Iterator
from contextlib import contextmanager

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack


def run_maintenance(stack: Stack, name: str) -> None:
    """Make the maintenance due, and wait until a worker has begun a run of it and done the work.

    A run that failed did a part of it; the product tries again later, and so does this, at once.
    """
    [(before,)] = stack.query("SELECT now()")

    def has_run() -> bool:
        # Each time, since a run that is under way sets the time of the next one.
        stack.query(
            "UPDATE maintenance SET due_at = now(), send_after = now() WHERE name = %s"
            " AND due_at > now() AND (last_started_at < %s OR last_error IS NOT NULL)",
            name,
            before,
        )
        return bool(
            stack.query(
                "SELECT 1 FROM maintenance WHERE name = %s AND last_started_at >= %s"
                " AND last_finished_at > last_started_at AND last_error IS NULL",
                name,
                before,
            )
        )

    try:
        eventually(has_run, within=30, what=f"a run of {name}")
    except AssertionError as error:
        row = "SELECT row_to_json(maintenance)::text FROM maintenance WHERE name = %s"
        error.add_note(str(stack.query(row, name)))
        raise


@contextmanager
def resting_maintenance(stack: Stack) -> Iterator[None]:
    """No maintenance changes a row while the block lasts."""

    def rests() -> bool:
        # Each time, since a run that is under way sets the time of the next one.
        later = "now() + interval '1 day'"
        stack.query(f"UPDATE maintenance SET due_at = {later}, send_after = {later}")
        return not stack.query("SELECT 1 FROM maintenance WHERE lease_expires_at IS NOT NULL")

    try:
        eventually(rests, what="the end of all maintenance")
        yield
    finally:
        stack.query("UPDATE maintenance SET due_at = now(), send_after = now()")
