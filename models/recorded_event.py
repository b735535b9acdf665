from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, Index, func, text
from sqlalchemy.orm import Mapped, mapped_column

from models.declarative import Model, SerialId


class RecordedEvent(Model):
    """A fact about one user's account. Rows are added and, after a year, purged; never changed.

    The database refuses the rest, but for one change: an erased person's rows lose their origin. A
    row holds ids; what they name is looked up when the row is read.
    """

    __tablename__ = "events"
    __table_args__ = (
        Index("ix_events_user_id_id", "user_id", text("id DESC")),
        CheckConstraint("char_length(user_agent) <= 300", name="user_agent_bounded"),
        CheckConstraint("octet_length(detail::text) <= 2000", name="detail_bounded"),
    )

    id: Mapped[SerialId]
    # No foreign key: it would make each event wait for a recovery that has locked the person, which
    # in turn may wait for the row that the event tells of.
    user_id: Mapped[int]
    # One of `services.events.catalogue`.
    type: Mapped[str]
    occurred_at: Mapped[datetime] = mapped_column(server_default=func.now(), index=True)
    # From where, and by which credential: a key, a session, a grant, or the operator's command.
    ip: Mapped[str | None]
    user_agent: Mapped[str | None]
    credential_kind: Mapped[str | None]
    credential_id: Mapped[int | None]
    detail: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'"))
