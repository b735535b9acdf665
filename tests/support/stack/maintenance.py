"""Runs a maintenance task when a test needs it, or prevents all maintenance tasks from running."""

from collections.abc import Iterator
from contextlib import contextmanager

from devstack.harness.polling import eventually
from devstack.harness.stack import Stack


def run_maintenance(stack: Stack, name: str) -> None:
    """Make a maintenance task due, and wait until a new run of the task has succeeded.

    If a run fails, make the task due again at once, because the product would retry it only later.
    """
    [(before,)] = stack.query("SELECT now()")

    def has_run() -> bool:
        # Set ``due_at`` in each call of ``has_run``, because a run of the task that is already in
        # progress may overwrite ``due_at`` when the run ends.
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
    """Prevent all maintenance tasks from running until the block ends."""

    def is_resting() -> bool:
        # Postpone all tasks in each call of ``is_resting``, because a task that is already running
        # may overwrite ``due_at`` when the task ends.
        later = "now() + interval '1 day'"
        stack.query(f"UPDATE maintenance SET due_at = {later}, send_after = {later}")
        # The table is empty until the first worker of a new stack has started.
        [(task_count, running_count)] = stack.query(
            "SELECT count(*), count(lease_expires_at) FROM maintenance"
        )
        return bool(task_count) and not running_count

    try:
        eventually(is_resting, what="the end of all maintenance")
        yield
    finally:
        stack.query("UPDATE maintenance SET due_at = now(), send_after = now()")
