"""Stores and reads consent wordings, the texts that people agree to when they join a list."""

from collections.abc import Iterable, Mapping

from sqlalchemy import func, select, tuple_

from core.errors.mailing import LIST_CONSENT_WORDINGS
from models import ConsentWording, MailingList
from storage.unit_of_work import UnitOfWork

MAX_WORDING_CHARACTERS = 2_000
MAX_WORDINGS = 1_000


def choose_wording(uow: UnitOfWork, mailing_list: MailingList, wording: str | None) -> None:
    """Set or remove a wording. A wording that was used before gets its old version number."""
    wording = (wording or "").strip()
    if not wording:
        mailing_list.consent_wording_version = None
        uow.session.flush()
        return
    # Lock the list's row, so that two transactions can't change the consent wording at the same
    # time. With ``key_share``, concurrent transactions can still add members to the list.
    row = select(MailingList.id).where(MailingList.id == mailing_list.id)
    uow.session.execute(row.with_for_update(key_share=True))
    of_list = ConsentWording.list_id == mailing_list.id
    earlier = select(ConsentWording.version).where(of_list, ConsentWording.wording == wording)
    version = uow.session.scalar(earlier)
    if version is None:
        newest = select(func.max(ConsentWording.version)).where(of_list)
        version = (uow.session.scalar(newest) or 0) + 1
        if version > MAX_WORDINGS:
            raise LIST_CONSENT_WORDINGS(most=MAX_WORDINGS)
        uow.session.add(ConsentWording(list_id=mailing_list.id, version=version, wording=wording))
    mailing_list.consent_wording_version = version
    uow.session.flush()


def read_current_wordings(uow: UnitOfWork, lists: Iterable[MailingList]) -> Mapping[int, str]:
    """Omit lists without a wording."""
    versions = [
        (each.id, each.consent_wording_version)
        for each in lists
        if each.consent_wording_version is not None
    ]
    if not versions:
        return {}
    key = tuple_(ConsentWording.list_id, ConsentWording.version)
    query = select(ConsentWording.list_id, ConsentWording.wording).where(key.in_(versions))
    return dict(uow.session.execute(query).all())
