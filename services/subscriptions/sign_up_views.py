"""Counts how often the sign-up pages of lists are requested, per list and day.

Each API process counts in memory, and writes its counts to the database once a minute. A killed
process loses the counts of its last minute. The counts contain no data about visitors, such as
cookies or IP addresses.
"""

from collections import Counter
from datetime import date
from threading import Lock

import orjson

from storage.database import Database, Statement

# The maximum number of counts that a process keeps in memory, one per list and day. A process that
# has reached the maximum doesn't count requests for further sign-up pages until it has written its
# counts to the database.
MAX_COUNTED_LISTS = 50_000

# Sorts the rows, so that all processes lock the rows in the same order and can't deadlock.
_ADD_VIEWS = Statement("""
    INSERT INTO sign_up_views AS v (list_id, day, seen)
    SELECT new.list_id, new.day, new.seen
    FROM json_to_recordset(CAST(:views AS json)) AS new (list_id bigint, day date, seen bigint)
    JOIN lists ON lists.id = new.list_id
    ORDER BY new.list_id, new.day
    ON CONFLICT (list_id, day) DO UPDATE SET seen = v.seen + excluded.seen
""")


class ViewCounter:
    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: Counter[tuple[int, date]] = Counter()

    def count_view(self, list_id: int, day: date) -> None:
        with self._lock:
            key = (list_id, day)
            if key in self._counts or len(self._counts) < MAX_COUNTED_LISTS:
                self._counts[key] += 1

    def write_views(self, database: Database) -> None:
        """The counts are lost after ``psycopg2.Error``, because a retry could count views twice."""
        with self._lock:
            counts = self._counts
            self._counts = Counter()
        if counts:
            rows = [
                {"list_id": list_id, "day": day, "seen": seen}
                for (list_id, day), seen in counts.items()
            ]
            database.rows(_ADD_VIEWS, views=orjson.dumps(rows).decode())
