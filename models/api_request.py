"""The log of requests that were authenticated with an API key."""

from datetime import datetime

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import Model


class ApiRequest(Model):
    """The row contains no path, no body and no IP address, because these can identify people.

    The table keeps about the latest 1,000 requests of each API key.
    """

    __tablename__ = "api_requests"
    # The job that deletes expired rows uses the index on ``occurred_at``.
    __table_args__ = (Index(None, "occurred_at"),)

    key_id: Mapped[int] = mapped_column(
        ForeignKey("api_keys.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    # When the request began, according to the clock of the API process.
    occurred_at: Mapped[datetime] = mapped_column(primary_key=True)
    # A random number that the API process chooses for each request. If the process inserts the row
    # of a request twice, for example after a broken connection, the primary key rejects the second
    # row.
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    method: Mapped[str]
    # The path with placeholders for its parameters, such as ``/lists/{list_id}``.
    route: Mapped[str]
    # The status of the response, or 499 if the caller disconnected before the response.
    status: Mapped[int]
    # The error code of the response, or NULL for a response without an error.
    code: Mapped[str | None]
    request_id: Mapped[str]
    milliseconds: Mapped[int]
