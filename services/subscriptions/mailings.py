"""Reads the mailings of lists, with the figures that senders reported."""

from sqlalchemy import select

from core.errors.mailing import MAILING_NOT_FOUND
from models import Mailing
from services import paging
from services.paging import PageOfRows, PageRequest
from storage.unit_of_work import UnitOfWork


def list_mailings(uow: UnitOfWork, list_id: int, page: PageRequest) -> PageOfRows[Mailing]:
    """Return a page of a list's mailings, newest first. Raises ``cursor.invalid``."""
    query = paging.select_owner_page(select(Mailing), Mailing.list_id, list_id, page)
    return paging.read_page(uow, query, page)


def get_mailing(uow: UnitOfWork, list_id: int, mailing_id: int) -> Mailing:
    """Return a mailing of a list. Raises ``mailing.not_found``."""
    query = select(Mailing).where(Mailing.id == mailing_id, Mailing.list_id == list_id)
    mailing = uow.session.scalar(query)
    if mailing is None:
        raise MAILING_NOT_FOUND()
    return mailing
