"""Figures of lists that had members before there were figures."""

from collections.abc import Iterator

import pytest
from sqlalchemy import text

from tests.scratch import ScratchDatabase, scratch_database
from tests.stack import Stack

pytestmark = pytest.mark.check

# 1 came by an import, 2 asked and confirmed, 3 left and came back, 4 left, 5 waits, and of 6 the
# event of their coming is gone. The second list has a member of another tier.
BEFORE = """
INSERT INTO users (id, email) SELECT n, n || '@example.com' FROM generate_series(1, 9) AS n;
INSERT INTO lists (id, user_id, slug, title) VALUES (1, 9, 'one', 'One'), (2, 9, 'two', 'Two');
INSERT INTO subscriptions (list_id, user_id, status, source, type, created_at) VALUES
    (1, 1, 'active', 'import', 'free', '2026-01-01T12:00Z'),
    (1, 2, 'active', 'challenge', 'free', '2026-01-01T12:00Z'),
    (1, 3, 'active', 'login', 'gold', '2026-01-03T12:00Z'),
    (1, 4, 'unsubscribed', 'challenge', 'free', '2026-01-01T12:00Z'),
    (1, 5, 'pending', 'challenge', 'free', '2026-01-01T12:00Z'),
    (1, 6, 'removed', 'login', 'free', '2025-06-01T23:30Z'),
    (2, 1, 'active', 'transfer', 'silver', '2026-01-09T12:00Z');
INSERT INTO subscription_events
    (list_id, user_id, action, actor, via, status_before, status_after, created_at) VALUES
    (1, 1, 'edited', 'owner', 'login', 'active', 'active', '2026-01-02T12:00Z'),
    (1, 2, 'requested', 'stranger', 'challenge', NULL, 'pending', '2026-01-01T12:00Z'),
    (1, 2, 'confirmed', 'user', 'confirmation', 'pending', 'active', '2026-01-02T12:00Z'),
    (1, 3, 'subscribed', 'user', 'login', NULL, 'active', '2026-01-03T12:00Z'),
    (1, 3, 'unsubscribed', 'user', 'login', 'active', 'unsubscribed', '2026-01-04T12:00Z'),
    (1, 3, 'subscribed', 'user', 'login', 'unsubscribed', 'active', '2026-01-05T12:00Z'),
    (1, 4, 'requested', 'stranger', 'challenge', NULL, 'active', '2026-01-01T12:00Z'),
    (1, 4, 'unsubscribed', 'user', 'trace', 'active', 'unsubscribed', '2026-01-04T12:00Z'),
    (1, 5, 'requested', 'stranger', 'challenge', NULL, 'pending', '2026-01-01T12:00Z'),
    (1, 6, 'removed', 'owner', 'login', 'active', 'removed', '2026-01-04T12:00Z'),
    (2, 1, 'transferred_in', 'owner', 'login', NULL, 'active', '2026-01-09T12:00Z');
"""
EXPECTED = [
    (1, "2025-06-01", "login", "free", 1, 0),
    (1, "2026-01-01", "challenge", "free", 1, 0),
    (1, "2026-01-01", "import", "free", 1, 0),
    (1, "2026-01-02", "challenge", "free", 1, 0),
    (1, "2026-01-03", "login", "gold", 1, 0),
    (1, "2026-01-04", "challenge", "free", 0, 1),
    (1, "2026-01-04", "login", "free", 0, 1),
    (1, "2026-01-04", "login", "gold", 0, 1),
    (1, "2026-01-05", "login", "gold", 1, 0),
    (2, "2026-01-09", "transfer", "silver", 1, 0),
]
FIGURES = """
SELECT list_id, CAST(day AS text), source, type, CAST(sum(joined) AS int), CAST(sum(gone) AS int)
FROM (SELECT list_id, day, source, type, joined, gone FROM member_days
    UNION ALL SELECT list_id, day, source, type, joined, gone FROM member_day_deltas) AS both_kinds
GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
"""


@pytest.fixture
def scratch(stack: Stack) -> Iterator[ScratchDatabase]:
    with scratch_database(stack) as opened:
        opened.upgrade("0032c")
        opened.execute(BEFORE)
        yield opened


def figures(scratch: ScratchDatabase) -> list[tuple[object, ...]]:
    with scratch.engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text(FIGURES))]


def test_what_happened_before_is_counted_on_its_day(scratch: ScratchDatabase) -> None:
    scratch.upgrade("0038b")
    assert figures(scratch) == EXPECTED


def test_what_the_trigger_counts_meanwhile_is_counted_once(scratch: ScratchDatabase) -> None:
    scratch.upgrade("0038")
    event = (
        "INSERT INTO subscription_events (list_id, user_id, action, actor, via, status_before,"
        " status_after) VALUES (1, 5, 'confirmed', 'user', 'confirmation', 'pending', 'active')"
    )
    scratch.execute("UPDATE subscriptions SET status = 'active' WHERE user_id = 5", event)
    today = str(scratch.scalar("SELECT CAST(now() AT TIME ZONE 'UTC' AS date)"))
    meanwhile = (1, today, "challenge", "free", 1, 0)
    assert figures(scratch) == [meanwhile]
    # As by the release before, or by a member who comes after one half of a killed migration.
    scratch.upgrade("0038b")
    assert figures(scratch) == sorted([*EXPECTED, meanwhile])
    scratch.execute("UPDATE alembic_version SET version_num = '0038'")
    scratch.upgrade("0038b")
    assert figures(scratch) == sorted([*EXPECTED, meanwhile])
