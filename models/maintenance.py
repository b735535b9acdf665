"""Periodic tasks, with their schedules and latest results.

Any maintenance worker can run a periodic task that is due. A periodic task runs in only one worker
of the deployment at a time.
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
    # The earliest time at which the sweep sends a broker message for the due task.
    send_after: Mapped[CreatedAt]
    # How many times the task was started, which serves as a fencing token. Only the latest run of a
    # task can store the task's result.
    attempt: Mapped[int] = mapped_column(default=0, server_default="0")
    lease_expires_at: Mapped[datetime | None]
    last_started_at: Mapped[datetime | None]
    last_finished_at: Mapped[datetime | None]
    # The position in a large table at which the task's next run resumes.
    bookmark: Mapped[int | None]
    # The data that a run of the task stores for the next run.
    state: Mapped[dict[str, Any] | None]
    last_result: Mapped[dict[str, Any] | None]
    last_error: Mapped[str | None]
