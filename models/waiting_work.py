"""The columns of tables whose rows wait until a worker has processed them."""

from datetime import datetime

from sqlalchemy import SmallInteger, func
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import SerialId


class WaitingWork:
    """``services.jobs.waiting_work`` changes these columns."""

    id: Mapped[SerialId]
    # The number of tries that began, but whose end isn't recorded. The last try may be in progress.
    # The other tries ended with their process or with their connection to the database.
    unfinished_tries: Mapped[int] = mapped_column(SmallInteger, default=0, server_default="0")
    # A worker makes the next try at this time or later.
    due_at: Mapped[datetime] = mapped_column(server_default=func.now())
