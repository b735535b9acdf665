"""Former addresses of people who moved before there was a table of them."""

from collections.abc import Iterator

import pytest
from sqlalchemy import text

from tests.scratch import ScratchDatabase, scratch_database
from tests.stack import Stack

pytestmark = pytest.mark.check

# 1 moved, and two lists know them by two addresses. 2 has never moved. 3 moved and was erased. 4 is
# to merge into 1. 5 has been merged.
BEFORE = """
INSERT INTO users (id, email, erased_at, merged_into) VALUES
    (1, 'new@example.com', NULL, NULL), (2, 'two@example.com', NULL, NULL),
    (3, 'erased-3@erased.invalid', now(), NULL), (4, 'moved-4@moved.invalid', NULL, NULL),
    (5, 'moved-5@moved.invalid', NULL, 1), (9, 'owner@example.com', NULL, NULL);
INSERT INTO lists (id, user_id, slug, title) VALUES (1, 9, 'one', 'One'), (2, 9, 'two', 'Two');
INSERT INTO subscriptions (list_id, user_id, status, source, email) VALUES
    (1, 1, 'active', 'login', 'old@example.com'), (2, 1, 'active', 'login', 'new@example.com'),
    (1, 2, 'active', 'import', 'two@example.com'), (1, 3, 'removed', 'login', NULL),
    (1, 4, 'active', 'import', 'four@example.com'), (2, 5, 'active', 'import', 'five@example.com');
INSERT INTO moved_accounts (user_id) VALUES (1), (3);
INSERT INTO account_merges (user_id, merged_id, status, finished_at) VALUES
    (1, 4, 'agreed', NULL), (1, 5, 'merged', now());
"""


@pytest.fixture
def scratch(stack: Stack) -> Iterator[ScratchDatabase]:
    with scratch_database(stack) as opened:
        opened.upgrade("0047")
        opened.execute(BEFORE)
        yield opened


def test_lists_tell_what_people_had(scratch: ScratchDatabase) -> None:
    scratch.upgrade("0050")
    with scratch.engine.connect() as connection:
        rows = connection.execute(text("SELECT user_id, email FROM former_addresses ORDER BY 1"))
        found = [tuple(each) for each in rows]
    assert found == [(1, "old@example.com"), (4, "four@example.com")]
