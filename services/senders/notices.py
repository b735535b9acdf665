"""Notifies owners about failing senders, recovered senders, and mailings with many bounces.

Each notification consists of a feed event and a mail. An owner gets the same mail at most once a
day. Otherwise, strangers could flood the owner with mails by sending invalid requests, which make a
sender fail.
"""

from enum import StrEnum

from core.ids import AccountId
from models import Mailing, MailingList, Sender, SenderState
from services.accounts import account_mails, accounts
from services.accounts.account_mails import MailKind
from services.feed.catalogue import FeedEventType, announce_event
from storage.unit_of_work import UnitOfWork


class FailureReason(StrEnum):
    CALLS_REJECTED = "calls_rejected"
    # The sender's URL is no longer subscribed to the topic of Amazon SNS.
    TOPIC_UNSUBSCRIBED = "topic_unsubscribed"
    NO_REPORTS = "no_reports"


# The texts of the mails to the owner of a failing sender. The first sentence of each mail describes
# the problem with the sender, and the second sentence asks the owner to solve the problem.
FAILURE_SENTENCES = {
    FailureReason.CALLS_REJECTED: (
        "Pressroom rejected at least 20 calls within an hour, because their signature, password or "
        "API key was invalid. "
        "Check the secret or key at your provider."
    ),
    FailureReason.TOPIC_UNSUBSCRIBED: (
        "Amazon SNS sends no more reports, because the subscription to the topic has ended. "
        "Subscribe the URL of the sender to the topic again."
    ),
    FailureReason.NO_REPORTS: (
        "No report arrived within 48 hours after a mailing to at least 1,000 people. "
        "Check the webhook at your provider."
    ),
}


def report_failure(uow: UnitOfWork, sender: Sender, reason: FailureReason) -> None:
    announce_event(
        uow,
        sender.user_id,
        FeedEventType.SENDER_FAILING,
        sender.id,
        state=SenderState.FAILING.value,
        reason=reason.value,
    )
    detail = f"{sender.id} is failing. {FAILURE_SENTENCES[reason]}"
    _mail(uow, sender.user_id, MailKind.SENDER_FAILING, detail)


def report_recovery(uow: UnitOfWork, sender: Sender, state: SenderState) -> None:
    announce_event(
        uow, sender.user_id, FeedEventType.SENDER_RECOVERED, sender.id, state=state.value
    )
    _mail(uow, sender.user_id, MailKind.SENDER_RECOVERED, str(sender.id))


def report_alarm(uow: UnitOfWork, sender: Sender, mailing_id: int) -> None:
    mailing = uow.session.get_one(Mailing, mailing_id, populate_existing=True)
    mailing_list = uow.session.get_one(MailingList, mailing.list_id)
    announce_event(
        uow,
        mailing_list.user_id,
        FeedEventType.MAILING_ALARM,
        sender.id,
        list_id=mailing.list_id,
        mailing_id=mailing.id,
        rows=mailing.rows,
        hard_bounced=mailing.hard_bounced,
        complained=mailing.complained,
    )
    detail = (
        f"Of {mailing.rows:,} mails of mailing {mailing.id} on the list “{mailing_list.title}”, "
        f"{mailing.hard_bounced:,} bounced permanently and {mailing.complained:,} caused "
        "complaints."
    )
    _mail(uow, mailing_list.user_id, MailKind.MAILING_ALARM, detail)


def _mail(uow: UnitOfWork, account_id: AccountId, kind: MailKind, detail: str) -> None:
    owner = accounts.get_owner(uow, account_id)
    if owner.erased_at is None:
        # Without a limit, strangers could flood the owner with mails.
        limit = account_mails.DAILY_LIMIT_PER_DETAIL
        account_mails.enqueue_mail(uow, kind, owner, detail, limit=limit)
