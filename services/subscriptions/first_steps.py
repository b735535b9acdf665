"""Finds out which steps of the checklist for new owners are done, such as a first sign-up."""

from dataclasses import dataclass

from sqlalchemy import exists, func, select

from core.ids import AccountId
from models import (
    DAYS_AND_DELTAS,
    ConsentEntry,
    ConsentHow,
    Mailing,
    MailingList,
    Subscription,
    SubscriptionStatus,
)
from services.subscriptions.members.changes import Via
from storage.unit_of_work import UnitOfWork

# The values of the column ``source`` for people who signed up themselves.
_SIGN_UP_SOURCES: frozenset[str] = frozenset((Via.FORM, Via.CHALLENGE, Via.LOGIN))
# The maximum number of consent entries that ``find_first_steps`` reads, so that the function is
# fast even if the owner has large lists.
_MAX_ENTRIES_READ = 1_000
_DAYS = DAYS_AND_DELTAS.c


@dataclass(frozen=True)
class FirstSteps:
    """The steps that an owner has done on unarchived lists.

    ``has_form_or_import``: whether people joined through a form outside Pressroom's own pages, or
    the owner imported, added or moved members. ``has_sign_up``: whether anyone has ever signed up.
    ``has_mailing``: whether a program has downloaded a roster.
    """

    has_form_or_import: bool
    has_sign_up: bool
    has_mailing: bool


def find_first_steps(uow: UnitOfWork, account_id: AccountId) -> FirstSteps:
    list_ids = select(MailingList.id).where(
        MailingList.user_id == account_id, MailingList.archived_at.is_(None)
    )
    sources_query = (
        select(_DAYS.source)
        .where(_DAYS.list_id.in_(list_ids))
        .group_by(_DAYS.source)
        .having(func.sum(_DAYS.joined) > 0)
    )
    sources = set(uow.session.scalars(sources_query))
    is_pending = exists().where(
        Subscription.list_id.in_(list_ids), Subscription.status == SubscriptionStatus.PENDING
    )
    # Without the condition on ``ip``, the query couldn't use ``ix_consent_entries_network``, which
    # contains only entries with an IP address.
    form_entries = (
        select(ConsentEntry.url)
        .where(
            ConsentEntry.list_id.in_(list_ids),
            ConsentEntry.how == ConsentHow.FORM,
            ConsentEntry.ip.is_not(None),
        )
        .limit(_MAX_ENTRIES_READ)
        .subquery()
    )
    own_pages = f"{uow.settings.pages_base}/"
    has_form = exists().where(
        form_entries.c.url.is_not(None),
        ~form_entries.c.url.startswith(own_pages, autoescape=True),
    )
    has_mailing = exists().where(Mailing.list_id.in_(list_ids))
    has_pending_sign_up, has_form_sign_up, was_mailed = uow.session.execute(
        select(is_pending, has_form, has_mailing)
    ).one()
    return FirstSteps(
        has_form_or_import=has_form_sign_up or not sources <= _SIGN_UP_SOURCES,
        has_sign_up=has_pending_sign_up or not sources.isdisjoint(_SIGN_UP_SOURCES),
        has_mailing=was_mailed,
    )
