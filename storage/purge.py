from sqlalchemy import ColumnElement, delete, inspect, select

from models.declarative import Model
from storage.unit_of_work import UnitOfWork


def purge(
    uow: UnitOfWork, model: type[Model], condition: ColumnElement[bool], *, limit: int
) -> int:
    """Delete rows that fit, ``limit`` at most, so that no transaction is long; how many it were."""
    [key] = inspect(model).primary_key
    found = select(key).where(condition).limit(limit)
    statement = delete(model).where(key.in_(found.scalar_subquery())).returning(key)
    return len(uow.session.execute(statement).all())
