"""Periodic work is rows: what is due, and what came of it, is the same for every process.

Any worker of its lane runs what is due, one worker at a time in the whole deployment.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import CreatedAt, Model


class Upkeep(Model):
    __tablename__ = "upkeep"

    name: Mapped[str] = mapped_column(primary_key=True)
    every_seconds: Mapped[int]
    due_at: Mapped[CreatedAt]
    # The sweep sends a due one again after this time.
    send_after: Mapped[CreatedAt]
    # A fencing token, as of a job: the number of runs that were begun.
    attempt: Mapped[int] = mapped_column(default=0, server_default="0")
    lease_expires_at: Mapped[datetime | None]
    last_started_at: Mapped[datetime | None]
    last_finished_at: Mapped[datetime | None]
    # Where work that goes through a large table in several runs goes on.
    bookmark: Mapped[int | None]
    last_result: Mapped[dict[str, Any] | None]
    last_error: Mapped[str | None]


# Ids rise with time. A partition has room for more ids than will be given while it is the current
# one: after a while the ids go on in the next, so one holds the rows of some days.


class Partition(Model):
    """A partition: a table with this name, of the rows whose ids are in its range.

    The functions of the owner's role that make, turn and drop partitions write these rows.
    """

    __tablename__ = "partitions"
    __table_args__ = (UniqueConstraint("parent", "from_id"),)

    name: Mapped[str] = mapped_column(primary_key=True)
    parent: Mapped[str]
    from_id: Mapped[int]
    to_id: Mapped[int]  # the first id that is not in it
    made_at: Mapped[CreatedAt]
    # Since when ids are those of a later one. Every row's id is older than this.
    closed_at: Mapped[datetime | None]
