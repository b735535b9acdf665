"""Adds mailings to the database, with the bounces and other figures that a test chooses."""

import time
from collections.abc import Mapping
from datetime import timedelta

from devstack.harness.stack import Stack


def new_mailing(
    stack: Stack,
    list_id: int,
    *,
    rows: int,
    age: timedelta = timedelta(),
    figures: Mapping[str, int] | None = None,
    label: str | None = None,
) -> int:
    """Add a mailing of a list, and return its id.

    ``rows``: the number of recipients. ``figures``: maps columns of the table ``mailings``, such as
    ``hard_bounced``, to values.
    """
    # As in production, a later mailing must have a higher id than an earlier mailing.
    mailing_id = time.time_ns() // 1000
    figures = figures or {}
    columns = ["id", "list_id", "label", "rows", "created_at", *figures]
    stack.query(
        f"INSERT INTO mailings ({', '.join(columns)})"
        f" VALUES (%s, %s, %s, %s, now() - %s{', %s' * len(figures)})",
        *(mailing_id, list_id, label, rows, age, *figures.values()),
    )
    return mailing_id
