"""Departures: what a restored backup must be told, since it may be older.

Triggers write them with each opt-out and each erasure, so no way to leave can forget it. Upkeep
moves them to the journal beside the backups within a minute. Without backups nothing reads them.
"""

from enum import StrEnum

from sqlalchemy.orm import Mapped

from models.declarative import CreatedAt, Model, SerialId, known


class DepartureKind(StrEnum):
    LIST = "list"  # an opt-out of a list
    EMAIL = "email"  # an opt-out of a list's mail
    ERASED = "erased"  # the person was erased, and the row names the person alone


class Departure(Model):
    __tablename__ = "departures"
    __table_args__ = (known("kind", DepartureKind),)

    id: Mapped[SerialId]
    kind: Mapped[str]
    # Without foreign keys: the row is a message, and no part of what it tells of.
    list_id: Mapped[int | None]
    user_id: Mapped[int | None]
    address_hmac: Mapped[bytes | None]
    source: Mapped[str | None]
    created_at: Mapped[CreatedAt]
