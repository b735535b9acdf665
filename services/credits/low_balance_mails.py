"""Mails owners whose balance of credits became low, at most once a day.

A database trigger (``note_low_balance.sql``) sets ``low_mail_due`` together with the event
``credits.low``, because charges don't wait for a mail.
"""

from datetime import timedelta

from sqlalchemy import select

from models import CreditAccount, User
from services.accounts import account_mails
from services.accounts.account_mails import MailKind
from services.jobs.maintenance import register_maintenance
from storage.resources import Resources

_MAX_BATCH_ACCOUNTS = 100


def mail_owners(resources: Resources) -> int:
    """Return the number of accounts whose balance became low since the last run."""
    total = 0
    batch_size = _MAX_BATCH_ACCOUNTS
    while batch_size == _MAX_BATCH_ACCOUNTS:
        batch_size = _mail_batch(resources)
        total += batch_size
    return total


register_maintenance(
    "credits.low_balance",
    every=timedelta(minutes=1),
    run=lambda resources, _: mail_owners(resources),
)


def _mail_batch(resources: Resources) -> int:
    # Skip locked accounts, because a charge locks the account. The next run finds them.
    query = (
        select(CreditAccount, User)
        .join(User, User.id == CreditAccount.user_id)
        .where(CreditAccount.low_mail_due)
        .order_by(CreditAccount.user_id)
        .limit(_MAX_BATCH_ACCOUNTS)
        .with_for_update(of=CreditAccount, key_share=True, skip_locked=True)
    )
    with resources.unit_of_work() as uow:
        rows = uow.session.execute(query).all()
        for account, owner in rows:
            account.low_mail_due = False
            # The owner may have bought credits in the meantime.
            if account.balance < account.low_below and owner.erased_at is None:
                account_mails.enqueue_mail(
                    uow,
                    MailKind.LOW_BALANCE,
                    owner,
                    f"{account.balance.normalize():,f}",
                    limit=account_mails.DAILY_LIMIT,
                )
    return len(rows)
