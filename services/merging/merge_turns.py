"""The job of a merge: one batch a transaction, in turns of a few seconds.

A worker that dies leaves whole batches. The next one goes on at the bookmark.
"""

import time
from datetime import timedelta

from sqlalchemy import Interval, delete, func, select, type_coerce

from core.errors import DomainError, TransientError
from core.keyring import Keyring
from models import AccountMerge, FormerAddress, MailedLink, MergeStatus, User
from services.events.catalogue import EventType
from services.events.recording import record
from services.jobs import lease as leases
from services.jobs.lease import Lease
from services.mailing.subscriptions import locks
from services.merging.merge_stages import STAGES
from services.merging.merge_work import AccountGone, MergeWork
from services.people import account_mails
from services.people.account_mails import MailKind
from services.people.account_merges import merge_jobs
from services.people.mailed_tokens import Purpose
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# Other work of the lane comes in between.
MERGING_TURN_SECONDS = 4.0
# No request that read the other record before it was marked is under way for longer.
LOOK_AGAIN_AFTER = timedelta(hours=1)


def run(resources: Resources, lease: Lease) -> None:
    """Take one turn."""
    ends_by = time.monotonic() + MERGING_TURN_SECONDS
    while time.monotonic() < ends_by:
        try:
            with resources.unit_of_work() as uow:
                has_ended = _take_step(uow, resources.keyring, lease)
        except DomainError as error:
            # No refusal ends a merge: what stands in its way now may be gone later.
            raise TransientError(error.message) from error
        if has_ended:
            return
    with resources.unit_of_work() as uow:
        leases.yield_turn(uow, lease)


def _take_step(uow: UnitOfWork, keyring: Keyring, lease: Lease) -> bool:
    """Begin, merge one batch or end; whether it was the end."""
    merge = uow.session.get(AccountMerge, lease.subject_id)
    if merge is not None and merge.status == MergeStatus.AGREED and merge.finished_at is None:
        return _begin(uow, lease, merge)
    is_marked = merge is not None and merge.status in (MergeStatus.MERGING, MergeStatus.MERGED)
    if merge is None or not is_marked:
        # Undone, or the person was erased.
        leases.succeed(uow, lease, {"merged": False})
        return True
    try:
        return _merge_batch(uow, keyring, lease, merge)
    except AccountGone:
        leases.succeed(uow, lease, {"merged": False})
        return True


def _begin(uow: UnitOfWork, lease: Lease, merge: AccountMerge) -> bool:
    """Mark the other record, once no transaction writes about it; whether that is for later."""
    # Fails if another worker has the job now.
    leases.progress(uow, lease, done=0)
    # The account's person first, as everywhere. An import may hold one of them for seconds.
    with locks.waiting_briefly(uow):
        person = uow.session.get_one(User, merge.user_id, with_for_update=True)
        other = uow.session.get_one(User, merge.merged_id, with_for_update=True)
    found = uow.session.get(AccountMerge, merge.id, populate_existing=True, with_for_update=True)
    if found is None or found.finished_at is not None or found.status != MergeStatus.AGREED:
        return False
    if other.erased_at is not None:
        found.email = found.former_email = None
        found.finished_at = func.now()
        return False
    left = _undo_left(uow, found)
    if left is not None:
        merge_jobs.enqueue(uow, found, after=left)
        leases.succeed(uow, lease, {"merged": False})
        return True
    other.merged_into = person.id
    found.status = MergeStatus.MERGING
    return False


def _undo_left(uow: UnitOfWork, merge: AccountMerge) -> timedelta | None:
    """For how long the change may still be undone: its link may have been mailed late."""
    query = select(type_coerce(func.max(MailedLink.expires_at) - func.now(), Interval)).where(
        MailedLink.user_id == merge.user_id,
        MailedLink.purpose == Purpose.UNDO_ADDRESS,
        MailedLink.created_at <= merge.agreed_at,
        MailedLink.used_at.is_(None),
        MailedLink.expires_at > func.now(),
    )
    return uow.session.scalar(query)


def _merge_batch(uow: UnitOfWork, keyring: Keyring, lease: Lease, merge: AccountMerge) -> bool:
    assert merge.merged_id is not None
    addresses = tuple(filter(None, (merge.email, merge.former_email)))
    work = MergeWork(keyring, merge.id, merge.user_id, merge.merged_id, addresses)
    names = list(STAGES)
    # A stage that this release does not know: another release began, so begin anew.
    place = names.index(merge.stage) if merge.stage in names else 0
    rows, bookmark = 0, merge.bookmark
    while place < len(names):
        rows, bookmark = STAGES[names[place]](uow, work, bookmark)
        if rows or bookmark is not None:
            break
        place += 1
    else:
        _end(uow, lease, merge)
        return True
    counts = {**merge.counts, names[place]: merge.counts.get(names[place], 0) + rows}
    leases.progress(uow, lease, done=sum(counts.values()))
    place += bookmark is None and place < len(names) - 1
    merge.stage, merge.bookmark, merge.counts = names[place], bookmark, counts
    return False


def _end(uow: UnitOfWork, lease: Lease, merge: AccountMerge) -> None:
    leases.succeed(uow, lease, {"merged": True})
    merge.stage = merge.bookmark = merge.email = merge.former_email = None
    if merge.finished_at is not None:
        return
    merge.status, merge.finished_at = MergeStatus.MERGED, func.now()
    # Its lists have gone to the person, who has the address.
    uow.session.execute(delete(FormerAddress).where(FormerAddress.user_id == merge.merged_id))
    person = uow.session.get_one(User, merge.user_id)
    uow.session.get_one(User, merge.merged_id).name = None
    record(uow, person.id, EventType.RECORDS_MERGED)
    account_mails.enqueue_mail(
        uow, MailKind.RECORDS_MERGED, person.email, user_id=person.id, request_id=None
    )
    # Requests that were under way may have written about the other record all the time.
    merge_jobs.enqueue(uow, merge, after=LOOK_AGAIN_AFTER)
