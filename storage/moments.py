"""Moments that a row gets once, such as when a key was revoked."""

from datetime import datetime

from sqlalchemy import ColumnElement, func, update
from sqlalchemy.orm import InstrumentedAttribute

from storage.unit_of_work import UnitOfWork


def note_once(
    uow: UnitOfWork,
    moment: InstrumentedAttribute[datetime | None],
    *conditions: ColumnElement[bool],
) -> int:
    """Set this moment to now in rows that fit and don't have it yet; returns their number."""
    statement = update(moment.class_).where(*conditions, moment.is_(None))
    noted = statement.values({moment: func.now()}).returning(moment)
    return len(uow.session.execute(noted).all())
