"""Upkeep at the moment at which a test wants it."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.stack import Stack, eventually


def run_upkeep(stack: Stack, name: str) -> None:
    """Make the upkeep due, and wait until a worker has begun and ended a run of it."""
    [(before,)] = stack.query("SELECT now()")

    def has_run() -> bool:
        # Each time, since a run that is under way sets the time of the next one.
        stack.query(
            "UPDATE upkeep SET due_at = now(), send_after = now()"
            " WHERE name = %s AND due_at > now() AND last_started_at < %s",
            name,
            before,
        )
        return bool(
            stack.query(
                "SELECT 1 FROM upkeep WHERE name = %s AND last_started_at >= %s"
                " AND last_finished_at > last_started_at",
                name,
                before,
            )
        )

    eventually(has_run, within=30, what=f"a run of {name}")


@contextmanager
def resting_upkeep(stack: Stack) -> Iterator[None]:
    """No upkeep changes a row while the block lasts."""

    def rests() -> bool:
        # Each time, since a run that is under way sets the time of the next one.
        later = "now() + interval '1 day'"
        stack.query(f"UPDATE upkeep SET due_at = {later}, send_after = {later}")
        return not stack.query("SELECT 1 FROM upkeep WHERE lease_expires_at IS NOT NULL")

    eventually(rests, what="the end of all upkeep")
    yield
    stack.query("UPDATE upkeep SET due_at = now(), send_after = now()")
