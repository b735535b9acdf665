"""Bulk acts as their owner finds and lists them."""

from datetime import datetime, timedelta

from sqlalchemy import select

from core.refusals.segments import BULK_NOT_FOUND
from models import BulkAct, Job
from services import paging
from services.access.caller import Caller
from services.jobs import records
from services.mailing.bulk_acts.acting import CHANGE_MEMBERS
from services.paging import PageOfRows, PageRequest
from storage.unit_of_work import UnitOfWork

# What an undo needs is kept for this long after it was written, which is after `created_at`.
BULK_UNDO_TIME = timedelta(days=90)


def get(uow: UnitOfWork, caller: Caller, bulk_id: int, *, lock: bool = False) -> BulkAct:
    """One of the caller's acts; raises ``bulk.not_found``."""
    query = select(BulkAct).where(BulkAct.id == bulk_id, BulkAct.user_id == caller.user_id)
    locked = query.with_for_update().execution_options(populate_existing=True)
    found = uow.session.scalar(locked if lock else query)
    if found is None:
        raise BULK_NOT_FOUND()
    return found


def list_of(
    uow: UnitOfWork, caller: Caller, wanted: PageRequest, *, list_id: int
) -> PageOfRows[BulkAct]:
    """The caller's acts on one list, newest first. Raises ``cursor.invalid``."""
    query = select(BulkAct).where(BulkAct.list_id == list_id, BulkAct.user_id == caller.user_id)
    found = uow.session.scalars(paging.by_id(query, BulkAct.id, wanted)).all()
    return paging.cut(found, wanted.limit, lambda act: str(act.id))


def job_of(uow: UnitOfWork, act: BulkAct) -> Job | None:
    """The job that does the act; ``None`` once it has ended."""
    return records.find_unfinished(uow, act.user_id, [CHANGE_MEMBERS], act.id)


def undo_until(act: BulkAct) -> datetime | None:
    """Until when the act can be undone; ``None`` while it runs, and after its undo."""
    if act.finished_at is None or act.undone_at is not None:
        return None
    return act.created_at + BULK_UNDO_TIME
