"""The beginning of an erasure: from this transaction's commit on, the person is erased."""

import time
from datetime import timedelta
from typing import Any

from psycopg2.errors import DeadlockDetected, LockNotAvailable
from sqlalchemy import ColumnElement, and_, delete, func, or_, select
from sqlalchemy.exc import OperationalError

import models
from core.keyring import Keyring
from core.lanes import Lane
from core.refusals.people import USER_NOT_FOUND_BY_EMAIL, USER_OWNS_LISTS
from core.scopes import Scope
from models import Erasure, Job, JobStatus, User
from services.jobs import kinds, outbox, records
from services.mailing import lists
from services.mailing.subscriptions import opt_outs
from services.people import email_addresses
from services.people.account_merges import merge_requests
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

ERASE_PERSON = kinds.register(
    kinds.JobKind(
        name="person.erase",
        lane=Lane.UPKEEP,
        # No user sees such a job.
        scope=Scope.SUBSCRIPTION_FULL,
        retryable=True,
        # What was begun has to end: the person has been told so.
        patience=timedelta(days=30),
    )
)
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
                return mark(uow, resources.keyring, email)
        except OperationalError as error:
            is_held = isinstance(error.orig, LockNotAvailable | DeadlockDetected)
            if not is_held or time.monotonic() > ends_by:
                raise


def mark(uow: UnitOfWork, keyring: Keyring, email: str) -> int:
    """As ``begin``, in the caller's transaction."""
    address = email_addresses.normalise(email)
    # Once no other transaction writes about them; none does afterwards.
    person = uow.session.scalar(select(User).where(User.email == address).with_for_update())
    if person is None:
        return _go_on(uow, keyring, address)
    _require_no_lists(uow, person)
    return _mark(uow, keyring, person)


def mark_again(uow: UnitOfWork, keyring: Keyring, user_id: int) -> bool:
    """Mark a person whom a restored database has back; False if it has them not, or marked.

    They owned no list when they were erased: the lists that they own again are archived.
    """
    person = uow.session.get(User, user_id, with_for_update=True)
    if person is None or person.erased_at is not None:
        return False
    for each in uow.session.scalars(select(models.MailingList).where(_is_own(person))):
        lists.archive(uow, each)
    _mark(uow, keyring, person)
    return True


def _mark(uow: UnitOfWork, keyring: Keyring, person: User) -> int:
    address = person.email
    for each in merge_requests.open_merges(uow, person.id):
        _mark_other(uow, keyring, each)
    kept = opt_outs.keep_for_erasure(uow, keyring, person, address)
    _delete_mails(uow, person)
    # What other owners wrote of the address.
    denials = delete(models.DeniedEntry).where(models.DeniedEntry.entry == person.email)
    uow.session.execute(denials)
    digest = keyring.signer(_PURPOSE).digest(address.encode())
    return _blank(uow, person, {"address_hmac": digest, "counts": {"opt_outs_kept": kept}})


def _mark_other(uow: UnitOfWork, keyring: Keyring, merge: models.AccountMerge) -> None:
    """Erase the record too that the person agreed to merge into their own, and end the merge.

    Its address is the merge's: the person proved it, and their account has it or had it.
    """
    if merge.status == models.MergeStatus.ASKED:
        uow.session.delete(merge)
        return
    other = merge_requests.lock_other(uow, User.id == merge.merged_id)
    if other is not None and other.erased_at is None:
        kept = opt_outs.keep_for_erasure(uow, keyring, other, merge.email or other.email)
        _delete_mails(uow, other)
        _blank(uow, other, {"counts": {"opt_outs_kept": kept}})
    merge.email = merge.former_email = None
    merge.finished_at = func.now()


def look_again(uow: UnitOfWork, erasure: Erasure, *, after: timedelta) -> None:
    """Have the stages run once more: for what requests wrote that were under way all the time."""
    job = _enqueue(uow, erasure.user_id)
    job.sends = 0
    job.run_at = job.send_after = func.now() + after
    erasure.job_id = job.id


def _enqueue(uow: UnitOfWork, user_id: int) -> Job:
    # The person's own jobs end with them, so this is none of theirs. It takes turns as if it was.
    return outbox.enqueue(uow, ERASE_PERSON, user_id=None, on_behalf_of=user_id, subject_id=user_id)


def _go_on(uow: UnitOfWork, keyring: Keyring, address: str) -> int:
    digests = keyring.signer(_PURPOSE).digests(address.encode())
    erasure = uow.session.scalar(
        select(Erasure)
        .where(Erasure.address_hmac.in_(digests))
        .order_by(Erasure.created_at.desc())
        .limit(1)
        .with_for_update()
    )
    if erasure is None:
        raise USER_NOT_FOUND_BY_EMAIL(email=address)
    job = uow.session.get(Job, erasure.job_id, with_for_update=True)
    if job is None:
        erasure.job_id = _enqueue(uow, erasure.user_id).id
    elif job.status in (JobStatus.FAILED, JobStatus.CANCELLED):
        records.restart(uow, job)
    return erasure.job_id


def _require_no_lists(uow: UnitOfWork, person: User) -> None:
    slugs = list(uow.session.scalars(select(models.MailingList.slug).where(_is_own(person))))
    if slugs:
        raise USER_OWNS_LISTS(slugs=", ".join(slugs))


def _is_own(person: User) -> ColumnElement[bool]:
    return and_(models.MailingList.user_id == person.id, models.MailingList.archived_at.is_(None))


def _delete_mails(uow: UnitOfWork, person: User) -> None:
    """Delete mails about the account and their tokens: recent ones, unsent ones, by the address."""
    for kind in (models.MailedLink, models.AccountMail):
        is_about_person = or_(kind.user_id == person.id, kind.email == person.email)
        uow.session.execute(delete(kind).where(is_about_person))


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
