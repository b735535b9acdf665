"""Erases people by deleting their personal data.

The first transaction erases everything that other people can see, and a job erases the remaining
rows. The command `pressroom users erase` itself erases the memberships, because mail must end even
without a worker.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from psycopg2.errors import DeadlockDetected, LockNotAvailable
from sqlalchemy import ColumnElement, and_, delete, exists, func, or_, select
from sqlalchemy.exc import OperationalError

import models
from core.errors import DomainError, TransientError
from core.errors.mailing import LIST_BUSY
from core.errors.people import USER_HAS_ACCOUNT, USER_NOT_FOUND_BY_EMAIL, USER_OWNS_LISTS
from core.ids import AccountId, PersonId
from core.queues import Queue
from core.scopes import Scope
from models import Erasure, Job, JobStatus, MailingList, Subscription, User
from services.accounts import email_addresses, teams
from services.jobs import records
from services.jobs.batches import work_in_turns
from services.jobs.kinds import JobKind, register_kind
from services.jobs.lease import Lease
from services.jobs.outbox import enqueue_job
from services.jobs.transitions import complete_job, record_progress
from services.privacy import stages
from services.senders import report_history
from services.subscriptions import deny_lists, lists
from services.subscriptions.members import engagement_choices, opt_outs
from storage.expected_errors import raise_instead
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# How long an erasure waits if an import or a payment has locked the person's row.
MAX_WAIT_SECONDS = 60.0
# The time between the two jobs of an erasure. After this time, every request that had read the
# person before the erasure has ended.
_REPEAT_AFTER = timedelta(hours=1)
_PURPOSE = "erasure"

Result = TypeVar("Result")


def begin_erasure(resources: Resources, email: str) -> int:
    """Mark a person as erased, and return the id of the job that erases the remaining data.

    For an erased address, return the id of the earlier job, and retry a failed job. Raises
    ``user.owns_lists`` if the person owns lists.
    """
    return _retry_locked(resources, partial(mark_erased, email=email))


def end_memberships(resources: Resources, job_id: int) -> None:
    """Erase the person's memberships in this process. The job ``job_id`` erases the other data.

    Raises ``list.busy`` if another transaction keeps a list locked for a minute.
    """
    try:
        while _retry_locked(resources, partial(_end_next_memberships, job_id=job_id)):
            pass
    except TransientError as error:
        raise LIST_BUSY() from error


def read_unfinished_result(uow: UnitOfWork, job: Job) -> dict[str, Any]:
    result = _count_erased_rows(uow.session.get_one(Erasure, job.subject_id))
    return {**result, "job_id": job.id, "status": job.status}


def _retry_locked(resources: Resources, work: Callable[[UnitOfWork], Result]) -> Result:
    """Return the result of a transaction, which is retried for a minute while rows are locked."""
    ends_by = time.monotonic() + MAX_WAIT_SECONDS
    while True:
        try:
            with resources.unit_of_work() as uow:
                return work(uow)
        except TransientError:
            if time.monotonic() > ends_by:
                raise
        except OperationalError as error:
            is_locked = isinstance(error.orig, LockNotAvailable | DeadlockDetected)
            if not is_locked or time.monotonic() > ends_by:
                raise


def _end_next_memberships(uow: UnitOfWork, job_id: int) -> bool:
    erasure = _lock_erasure(uow, uow.session.get_one(Job, job_id).subject_id)
    return erasure.finished_at is None and _erase_next_rows(uow, erasure, max_stages=1)


def mark_erased(uow: UnitOfWork, email: str) -> int:
    """Mark a person as erased in the caller's transaction, and return the id of the erasure job.

    Unlike ``begin_erasure``, this function doesn't retry if the person's row is locked.
    """
    address = email_addresses.normalise_address(email)
    # Lock the person's row to wait for running transactions that write data about the person. Later
    # transactions see that the person is erased, and write nothing about the person.
    person = uow.session.scalar(select(User).where(User.email == address).with_for_update())
    if person is None:
        return _resume_erasure(uow, address)
    slugs = list(uow.session.scalars(select(MailingList.slug).where(_is_owned_by(person))))
    if slugs:
        raise USER_OWNS_LISTS(slugs=", ".join(slugs))
    teams.require_no_team(uow, person.id)
    return _mark_person(uow, person)


def mark_own_erasure(uow: UnitOfWork, person: User) -> None:
    """Erase a person who has requested the erasure through a mailed link.

    Raises ``user.has_account`` if the person has a password, because a mailed link must not suffice
    to erase lists and credits.
    """
    uow.session.refresh(person, with_for_update=True)
    if person.password_hash is not None:
        raise USER_HAS_ACCOUNT()
    mark_erased(uow, person.email)


def mark_erased_again(uow: UnitOfWork, person_id: PersonId) -> bool:
    """Erase a person again after a backup has restored the person's erased data.

    Return false if the restored database doesn't contain the person's data. The function first
    archives the person's restored lists, because a person who owns active lists can't be erased.
    """
    person = uow.session.get(User, person_id, with_for_update=True)
    if person is None or person.erased_at is not None:
        return False
    for mailing_list in uow.session.scalars(select(MailingList).where(_is_owned_by(person))):
        lists.archive_list(uow, mailing_list)
    _mark_person(uow, person)
    return True


def mark_record_erased(uow: UnitOfWork, record: User) -> None:
    """Mark a list's record as erased. Move the record's opt-outs to the account first."""
    for model in (models.MailedLink, models.AccountMail):
        uow.session.execute(delete(model).where(model.user_id == record.id))
    _blank_person(uow, record, {"counts": {"opt_outs_kept": 0}})


def _resume_erasure(uow: UnitOfWork, address: str) -> int:
    digests = uow.settings.keyring.signer(_PURPOSE).digests(address.encode())
    query = select(Erasure).where(Erasure.address_hmac.in_(digests))
    newest = query.order_by(Erasure.created_at.desc()).limit(1)
    erasure = uow.session.scalar(newest.with_for_update())
    if erasure is None:
        raise USER_NOT_FOUND_BY_EMAIL(email=address)
    job = uow.session.get(Job, erasure.job_id, with_for_update=True)
    if job is None:
        erasure.job_id = _enqueue_erasure(uow, erasure.user_id).id
    elif job.status in (JobStatus.FAILED, JobStatus.CANCELLED):
        records.retry_locked_job(uow, job)
    return erasure.job_id


def _is_owned_by(person: User) -> ColumnElement[bool]:
    return and_(MailingList.user_id == person.account_id, MailingList.archived_at.is_(None))


def _mark_person(uow: UnitOfWork, person: User) -> int:
    address = person.email
    opt_out_count = opt_outs.detach_opt_outs(uow, person, address)
    engagement_choices.detach_refusals(uow, person)
    teams.end_teams(uow, person.id)
    for model in (models.MailedLink, models.AccountMail):
        # Find rows by address too, because some rows contain the person's address but not the user
        # id.
        is_about_person = or_(model.user_id == person.id, model.email == person.email)
        uow.session.execute(delete(model).where(is_about_person))
    deny_lists.hash_entries(uow, address)
    former_addresses = select(models.FormerAddress.email).where(
        models.FormerAddress.user_id == person.id
    )
    report_history.forget_recipients(uow, {address, *uow.session.scalars(former_addresses)})
    digest = uow.settings.keyring.signer(_PURPOSE).digest(address.encode())
    counts = {"opt_outs_kept": opt_out_count}
    return _blank_person(uow, person, {"address_hmac": digest, "counts": counts})


def _blank_person(uow: UnitOfWork, person: User, erasure: dict[str, Any]) -> int:
    person.email = f"erased-{person.id}@erased.invalid"
    person.name = None
    person.password_hash = None
    person.is_operator = False
    person.erased_at = func.now()
    uow.session.flush()
    job = _enqueue_erasure(uow, person.id)
    uow.session.add(Erasure(user_id=person.id, job_id=job.id, **erasure))
    return job.id


def _enqueue_erasure(uow: UnitOfWork, person_id: PersonId) -> Job:
    # The erasure job has no owner, because the erasure deletes all jobs that the person owns.
    return enqueue_job(
        uow, ERASE_PERSON, account_id=None, on_behalf_of=person_id, subject_id=person_id
    )


@dataclass(frozen=True)
class ErasureReach:
    """Facts that the erasure page shows to a person.

    Attributes:
        has_account: whether the person has an account, which can't be erased through a mailed link.
        is_elsewhere: whether the person is also on a list of another owner.
    """

    has_account: bool
    is_elsewhere: bool


def assess_erasure(uow: UnitOfWork, person: User, account_id: AccountId) -> ErasureReach:
    elsewhere = (
        exists()
        .where(Subscription.user_id == person.id, Subscription.email.is_not(None))
        .where(MailingList.id == Subscription.list_id, MailingList.user_id != account_id)
    )
    is_elsewhere = bool(uow.session.scalar(select(elsewhere)))
    return ErasureReach(person.password_hash is not None, is_elsewhere)


def run_erasure(resources: Resources, lease: Lease) -> None:
    try:
        work_in_turns(resources, lease, partial(_erase_batch, lease=lease))
    except DomainError as error:
        # Raise a transient error, so that the erasure job is retried.
        raise TransientError(error.message) from error


ERASE_PERSON = register_kind(
    JobKind(
        name="person.erase",
        run=run_erasure,
        queue=Queue.MAINTENANCE,
        # The job's scope doesn't matter, because no user can see an erasure job.
        scope=Scope.SUBSCRIPTION_FULL,
        permissions=None,
        retryable=True,
        # Retry an erasure for a long time, because Pressroom has promised the erasure to the
        # person.
        patience=timedelta(days=30),
    )
)


def _erase_batch(uow: UnitOfWork, lease: Lease) -> bool:
    erasure = _lock_erasure(uow, lease.subject_id)
    if not _erase_next_rows(uow, erasure):
        _complete_erasure(uow, lease, erasure)
        return True
    # If another worker has taken over the job, ``record_progress`` raises an error, which rolls the
    # batch back.
    record_progress(uow, lease, done=sum(erasure.counts.values()))
    return False


def _lock_erasure(uow: UnitOfWork, user_id: int | None) -> Erasure:
    """Lock an erasure, because the command and a worker can erase the same person at a time."""
    with raise_instead(LockNotAvailable, TransientError("Another process erases the person.")):
        return uow.session.get_one(Erasure, user_id, with_for_update=True)


def _erase_next_rows(
    uow: UnitOfWork, erasure: Erasure, *, max_stages: int = len(stages.STAGES)
) -> bool:
    """Erase a batch of rows. Return false if the first ``max_stages`` stages have no rows left."""
    names = list(stages.STAGES)
    # Repeat all stages of the erasure if another release has stored a stage that this release
    # doesn't know.
    place = names.index(erasure.stage) if erasure.stage in names else 0
    rows = 0
    bookmark = erasure.bookmark
    while place < max_stages:
        rows, bookmark = stages.STAGES[names[place]](uow, erasure.user_id, bookmark)
        if rows or bookmark is not None:
            break
        place += 1
    else:
        return False
    counts = {**erasure.counts, names[place]: erasure.counts.get(names[place], 0) + rows}
    place += bookmark is None and place < len(names) - 1
    erasure.stage = names[place]
    erasure.bookmark = bookmark
    erasure.counts = counts
    return True


def _count_erased_rows(erasure: Erasure) -> dict[str, Any]:
    counts = {name: erasure.counts.get(name, 0) for name in stages.REPORTED}
    return {"user_id": erasure.user_id, **counts}


def _complete_erasure(uow: UnitOfWork, lease: Lease, erasure: Erasure) -> None:
    """Complete an erasure job. After the first job, schedule a second one.

    The second job erases rows that requests have written during the first job.
    """
    complete_job(uow, lease, _count_erased_rows(erasure))
    erasure.stage = None
    erasure.bookmark = None
    erasure.address_hmac = None
    if erasure.finished_at is None:
        erasure.finished_at = func.now()
        job = _enqueue_erasure(uow, erasure.user_id)
        job.sends = 0
        job.run_at = func.now() + _REPEAT_AFTER
        job.send_after = func.now() + _REPEAT_AFTER
        erasure.job_id = job.id
