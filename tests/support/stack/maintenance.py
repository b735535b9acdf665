"""Starts maintenance when a test needs it, or keeps all maintenance from running."""

from collections.abc import Iterator
from contextlib import contextmanager

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack


def run_maintenance(stack: Stack, name: str) -> None:
    """Make the maintenance due, and wait until a new run of it has succeeded.

    If a run fails, make the maintenance due again immediately, because the product retries it only
    later.
    """
    [(before,)] = stack.query("SELECT now()")

    def has_run() -> bool:
        # Repeat the update, because a run in progress may set the time of the next run.
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
    """Keep all maintenance from running until the block ends."""

    def is_resting() -> bool:
        # Repeat the update, because a run in progress may set the time of the next run.
        later = "now() + interval '1 day'"
        stack.query(f"UPDATE maintenance SET due_at = {later}, send_after = {later}")
        return not stack.query("SELECT 1 FROM maintenance WHERE lease_expires_at IS NOT NULL")

    try:
        eventually(is_resting, what="the end of all maintenance")
        yield
    finally:
        stack.query("UPDATE maintenance SET due_at = now(), send_after = now()")
