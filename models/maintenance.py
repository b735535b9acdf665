"""Periodic work is rows: what is due, and what came of it, is the same for every process.

Any worker of its queue runs what is due, one worker at a time in the whole deployment.
"""

from datetime import datetime
from typing import Any

from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import CreatedAt, Model


class Maintenance(Model):
    __tablename__ = "maintenance"

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
