"""The beginning of an erasure: from this transaction's commit on, the person is erased."""

import time
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from psycopg2.errors import DeadlockDetected, LockNotAvailable
from sqlalchemy import ColumnElement, and_, delete, exists, func, or_, select
from sqlalchemy.exc import OperationalError

import models
from core.errors import DomainError, TransientError
from core.errors.people import USER_HAS_ACCOUNT, USER_NOT_FOUND_BY_EMAIL, USER_OWNS_LISTS
from core.queues import Queue
from core.scopes import Scope
from models import Erasure, Job, JobStatus, MailingList, Subscription, User
from services.accounts import email_addresses
from services.jobs import records
from services.jobs.batches import work_in_turns
from services.jobs.kinds import JobKind, register_kind
from services.jobs.lease import Lease
from services.jobs.outbox import enqueue_job
from services.jobs.transitions import complete_job, record_progress
from services.privacy import stages
from services.subscriptions import deny_lists, lists
from services.subscriptions.members import opt_outs
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# An import or a payment may hold the person for some seconds.
MAX_WAIT_SECONDS = 60.0
_PURPOSE = "erasure"


def begin(resources: Resources, email: str) -> int:
    """Mark the person as erased, and have the rest erased; returns the job.

    For an address whose erasure has not ended it is the same job, started again if it failed.
    Raises ``user.not_found``, ``user.owns_lists``.
    """
    ends_by = time.monotonic() + MAX_WAIT_SECONDS
    while True:
        try:
            with resources.unit_of_work() as uow:
                return mark(uow, email)
        except OperationalError as error:
            is_held = isinstance(error.orig, LockNotAvailable | DeadlockDetected)
            if not is_held or time.monotonic() > ends_by:
                raise


def mark(uow: UnitOfWork, email: str) -> int:
    """As ``begin``, in the caller's transaction."""
    address = email_addresses.normalise(email)
    # Once no other transaction writes about them; none does afterwards.
    person = uow.session.scalar(select(User).where(User.email == address).with_for_update())
    if person is None:
        digests = uow.settings.keyring.signer(_PURPOSE).digests(address.encode())
        query = select(Erasure).where(Erasure.address_hmac.in_(digests))
        newest = query.order_by(Erasure.created_at.desc()).limit(1)
        erasure = uow.session.scalar(newest.with_for_update())
        if erasure is None:
            raise USER_NOT_FOUND_BY_EMAIL(email=address)
        job = uow.session.get(Job, erasure.job_id, with_for_update=True)
        if job is None:
            erasure.job_id = _enqueue(uow, erasure.user_id).id
        elif job.status in (JobStatus.FAILED, JobStatus.CANCELLED):
            records.retry_locked_job(uow, job)
        return erasure.job_id
    slugs = list(uow.session.scalars(select(MailingList.slug).where(_is_own(person))))
    if slugs:
        raise USER_OWNS_LISTS(slugs=", ".join(slugs))
    return _mark(uow, person)


def mark_again(uow: UnitOfWork, user_id: int) -> bool:
    """Mark a person whom a restored database has back; False if it has them not, or marked.

    They owned no list when they were erased: the lists that they own again are archived.
    """
    person = uow.session.get(User, user_id, with_for_update=True)
    if person is None or person.erased_at is not None:
        return False
    for each in uow.session.scalars(select(MailingList).where(_is_own(person))):
        lists.archive(uow, each)
    _mark(uow, person)
    return True


def _mark(uow: UnitOfWork, person: User) -> int:
    address = person.email
    kept = opt_outs.keep_for_erasure(uow, person, address)
    for kind in (models.MailedLink, models.AccountMail):
        # Recent ones, unsent ones, and those by the address.
        is_about_person = or_(kind.user_id == person.id, kind.email == person.email)
        uow.session.execute(delete(kind).where(is_about_person))
    deny_lists.keep_for_erasure(uow, address)
    digest = uow.settings.keyring.signer(_PURPOSE).digest(address.encode())
    return _blank(uow, person, {"address_hmac": digest, "counts": {"opt_outs_kept": kept}})


def mark_record(uow: UnitOfWork, record: User) -> None:
    """Mark a record whose address and opt-outs an account takes over, in its transaction."""
    for kind in (models.MailedLink, models.AccountMail):
        uow.session.execute(delete(kind).where(kind.user_id == record.id))
    _blank(uow, record, {"counts": {"opt_outs_kept": 0}})


def _enqueue(uow: UnitOfWork, user_id: int) -> Job:
    # The person's own jobs end with them, so this is none of theirs. It takes turns as if it was.
    return enqueue_job(uow, ERASE_PERSON, user_id=None, on_behalf_of=user_id, subject_id=user_id)


def _is_own(person: User) -> ColumnElement[bool]:
    return and_(MailingList.user_id == person.id, MailingList.archived_at.is_(None))


def _blank(uow: UnitOfWork, person: User, erasure: dict[str, Any]) -> int:
    """Blank the person's own row, and begin the job that erases the rest."""
    person.email = f"erased-{person.id}@erased.invalid"
    person.name = None
    person.password_hash = None
    person.is_operator = False
    person.erased_at = func.now()
    uow.session.flush()
    job = _enqueue(uow, person.id)
    uow.session.add(Erasure(user_id=person.id, job_id=job.id, **erasure))
    return job.id


@dataclass(frozen=True)
class ErasureReach:
    """The consequences that the person is to know beforehand.

    Attributes:
        has_account: no mailed link erases an account, which may own lists and credits.
        is_elsewhere: whether lists of other owners have them too.
    """

    has_account: bool
    is_elsewhere: bool


def reach(uow: UnitOfWork, person: User, owner_id: int) -> ErasureReach:
    elsewhere = (
        exists()
        .where(Subscription.user_id == person.id, Subscription.email.is_not(None))
        .where(MailingList.id == Subscription.list_id, MailingList.user_id != owner_id)
    )
    is_elsewhere = bool(uow.session.scalar(select(elsewhere)))
    return ErasureReach(person.password_hash is not None, is_elsewhere)


def begin_own(uow: UnitOfWork, person: User) -> None:
    """As the operator's command does; raises ``user.has_account``."""
    uow.session.refresh(person, with_for_update=True)
    if person.password_hash is not None:
        raise USER_HAS_ACCOUNT()
    mark(uow, person.email)


# No request that read the person before they were marked is under way for longer.
LOOK_AGAIN_AFTER = timedelta(hours=1)


def run(resources: Resources, lease: Lease) -> None:
    """Erase batches for one turn."""
    try:
        work_in_turns(resources, lease, partial(_erase_batch, lease=lease))
    except DomainError as error:
        # No error ends an erasure: what stands in its way now may be gone later.
        raise TransientError(error.message) from error


ERASE_PERSON = register_kind(
    JobKind(
        name="person.erase",
        run=run,
        queue=Queue.MAINTENANCE,
        # No user sees such a job.
        scope=Scope.SUBSCRIPTION_FULL,
        retryable=True,
        # An erasure that was begun has to end: the person has been told so.
        patience=timedelta(days=30),
    )
)


def _erase_batch(uow: UnitOfWork, lease: Lease) -> bool:
    """Erase one batch, of the next stage that finds anything; return whether none is left."""
    erasure = uow.session.get_one(Erasure, lease.subject_id)
    names = list(stages.STAGES)
    # A stage that this release does not know: another release began, so begin anew.
    place = names.index(erasure.stage) if erasure.stage in names else 0
    rows, bookmark = 0, erasure.bookmark
    while place < len(names):
        rows, bookmark = stages.STAGES[names[place]](uow, erasure.user_id, bookmark)
        if rows or bookmark is not None:
            break
        place += 1
    else:
        told = {name: erasure.counts.get(name, 0) for name in stages.TOLD}
        complete_job(uow, lease, {"user_id": erasure.user_id, **told})
        erasure.stage = erasure.bookmark = erasure.address_hmac = None
        if erasure.finished_at is None:
            erasure.finished_at = func.now()
            # For what requests wrote that were under way all the time.
            job = _enqueue(uow, erasure.user_id)
            job.sends = 0
            job.run_at = job.send_after = func.now() + LOOK_AGAIN_AFTER
            erasure.job_id = job.id
        return True
    counts = {**erasure.counts, names[place]: erasure.counts.get(names[place], 0) + rows}
    # Fails if another worker has the job now, and takes the batch back.
    record_progress(uow, lease, done=sum(counts.values()))
    place += bookmark is None and place < len(names) - 1
    erasure.stage, erasure.bookmark, erasure.counts = names[place], bookmark, counts
    return False
