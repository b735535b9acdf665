"""Tells owners whose lists have more members than their plan has room for.

A reader's own act is always done, so readers alone can bring an owner there. The mail is written in
the transaction that adds up the readers' acts, so it is sent whatever is killed.
"""

from collections.abc import Collection
from datetime import timedelta

from sqlalchemy import exists, func, select, text

from core.settings import Settings
from core.settings.plan_quotas import PlanQuota
from models import AccountMail, MailingList, User, active_count
from services.access import quotas
from services.people import account_mails
from services.people.account_mails import MailKind
from storage.unit_of_work import UnitOfWork

MIN_NOTICE_INTERVAL = timedelta(days=1)
# Two processes that add up at the same moment must not both find an owner who was not told.
_ALONE = text("SELECT pg_advisory_xact_lock(hashtext('quota.notice'), 0)")


def tell_owners(uow: UnitOfWork, settings: Settings, list_ids: Collection[int]) -> None:
    """Mail each owner of these lists who has too many members, unless they were told in a day."""
    owners = select(MailingList.user_id).where(MailingList.id.in_(list_ids))
    told = exists().where(
        AccountMail.user_id == User.id,
        AccountMail.kind == MailKind.MEMBERS_OVER_QUOTA,
        AccountMail.created_at > func.now() - MIN_NOTICE_INTERVAL,
    )
    query = (
        select(User, func.sum(active_count(MailingList.id)))
        .join(MailingList, MailingList.user_id == User.id)
        .where(User.id.in_(owners), MailingList.archived_at.is_(None), ~told)
        .group_by(User.id)
        .order_by(User.id)
    )
    if not list_ids:
        return
    uow.session.execute(_ALONE)
    for owner, members in uow.session.execute(query):
        limit = quotas.limit_of(settings, owner.plan, PlanQuota.MEMBERS)
        if limit is not None and members > limit:
            account_mails.enqueue_mail(
                uow,
                MailKind.MEMBERS_OVER_QUOTA,
                owner.email,
                user_id=owner.id,
                detail=f"{members} members, and your plan has room for {limit}",
                request_id=None,
            )
