"""Pauses watches that can't be compared, and notifies the owners."""

from datetime import datetime, timedelta

from models import MailingList, PauseReason, Segment, SegmentWatch
from services.accounts import account_mails, accounts
from services.accounts.account_mails import MailKind
from storage.unit_of_work import UnitOfWork

# When a paused watch is tried again. A slow comparison is rarely tried, because it needs much CPU
# time. A change of the filter or of the watch makes the watch due at once.
_RETRY_AFTER = dict.fromkeys(PauseReason, timedelta(hours=1))
_RETRY_AFTER[PauseReason.TOO_SLOW] = timedelta(days=1)
REASON_SENTENCES = {
    PauseReason.FIELD_RETIRED: "Its filter uses a field that was deleted or changed.",
    PauseReason.TAG_DELETED: "Its filter uses a tag that was deleted.",
    PauseReason.TOO_SLOW: "Its filter needs too much computing time.",
    PauseReason.QUOTA_FULL: "The storage of your plan is used up.",
}


def pause_watch(uow: UnitOfWork, watch_id: int, reason: PauseReason, now: datetime) -> None:
    """Pause a watch, and mail its owner if the reason is new."""
    watch = uow.session.get(SegmentWatch, watch_id, with_for_update=True)
    if watch is None:
        return
    watch.due_at = now + _RETRY_AFTER[reason]
    if watch.pause_reason == reason:
        return
    watch.pause_reason = reason
    mailing_list = uow.session.get_one(MailingList, watch.list_id)
    segment = uow.session.get_one(Segment, watch.segment_id)
    owner = accounts.get_owner(uow, mailing_list.user_id)
    if owner.erased_at is None:
        detail = f"“{segment.name}” of the list “{mailing_list.title}”. {REASON_SENTENCES[reason]}"
        limit = account_mails.DAILY_LIMIT_PER_DETAIL
        account_mails.enqueue_mail(uow, MailKind.SEGMENT_PAUSED, owner, detail, limit=limit)
