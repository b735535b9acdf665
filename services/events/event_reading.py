from sqlalchemy import select

from models import RecordedEvent
from services import paging
from services.paging import PageOfRows, PageRequest
from storage.unit_of_work import UnitOfWork


def page(uow: UnitOfWork, user_id: int, wanted: PageRequest) -> PageOfRows[RecordedEvent]:
    """The user's events, newest first; raises ``cursor.invalid``.

    The ids are in the order of the rows' writing, which may differ from that of their commits by
    the length of a transaction.
    """
    event = RecordedEvent
    query = paging.of_owner(select(event), event.user_id, user_id, event.id, wanted)
    found = uow.session.scalars(query).all()
    return paging.cut(found, wanted.limit, lambda event: str(event.id))
