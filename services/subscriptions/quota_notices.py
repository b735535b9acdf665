"""Sends a mail to each owner whose lists have more members than the plan allows.

An owner gets at most one notice per day.
"""

from collections.abc import Collection

from sqlalchemy import func, select, text

from core.settings.notations import PlanQuota
from models import MailingList, User, active_count
from services.access import quotas
from services.accounts import account_mails
from services.accounts.account_mails import MailKind
from storage.unit_of_work import UnitOfWork

# Lock the notices, so that two concurrent transactions can't send an owner the same notice twice.
_LOCK_NOTICES = text("SELECT pg_advisory_xact_lock(hashtext('quota.notice'), 0)")


def notify_owners(uow: UnitOfWork, list_ids: Collection[int]) -> None:
    if not list_ids:
        return
    owners = select(MailingList.user_id).where(MailingList.id.in_(list_ids))
    query = (
        select(User, func.sum(active_count(MailingList.id)))
        .join(MailingList, MailingList.user_id == User.id)
        .where(User.id.in_(owners), MailingList.archived_at.is_(None))
        .group_by(User.id)
        .order_by(User.id)
    )
    uow.session.execute(_LOCK_NOTICES)
    for owner, members in uow.session.execute(query):
        limit = quotas.plan_limit(uow.settings, owner.plan, PlanQuota.MEMBERS)
        if limit is not None and members > limit:
            detail = f"{members} members, and your plan allows {limit}"
            account_mails.enqueue_mail(
                uow,
                MailKind.MEMBERS_OVER_QUOTA,
                owner,
                detail,
                limit=account_mails.DAILY_LIMIT,
            )
