"""Checks whether the database has space for new data."""

import time

from storage.database import Database, Statement
from storage.full_disks import FULL_DISKS, Store

# The kind of maintenance that checks the space each minute. The check writes the row of this kind.
MAINTENANCE_NAME = "stores.check"
# The update can succeed even on a full disk, because the table's file contains unused space. The
# sort needs a temporary file, because it has little memory. The join sorts only after the memory
# has been limited.
_CHECK = Statement("""
    WITH written AS (UPDATE maintenance SET send_after = send_after WHERE name = :name RETURNING 1),
        limited AS MATERIALIZED (SELECT set_config('work_mem', '64kB', true) AS memory)
    SELECT count(*) FROM limited CROSS JOIN LATERAL (
        SELECT md5(memory || CAST(number AS text)) FROM generate_series(1, 5000) AS number
        ORDER BY 1 OFFSET 0
    ) AS sorted
    """)


def check_database_space(database: Database) -> None:
    """Write a row and a temporary file."""
    began_at = time.monotonic()
    database.rows(_CHECK, name=MAINTENANCE_NAME)
    FULL_DISKS.report_write(Store.DATABASE, began_at)
