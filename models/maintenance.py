"""Periodic tasks, with their schedules and latest results.

Any maintenance worker can run a task that is due. Only one worker of the deployment runs a task at
a time.
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
    # The earliest time of the next message that the sweep sends for a due task.
    send_after: Mapped[CreatedAt]
    # The number of started runs, which serves as a fencing token. Only the latest run can write its
    # result.
    attempt: Mapped[int] = mapped_column(default=0, server_default="0")
    lease_expires_at: Mapped[datetime | None]
    last_started_at: Mapped[datetime | None]
    last_finished_at: Mapped[datetime | None]
    # The position at which the next run resumes, for tasks that need several runs for a large
    # table.
    bookmark: Mapped[int | None]
    last_result: Mapped[dict[str, Any] | None]
    last_error: Mapped[str | None]
