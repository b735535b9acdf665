"""Lets people say whether a list may record on which days they open and click its mails.

A refusal needs no lock on the list, and is never delayed by a bulk action.
"""

from core.languages.reader_languages import marked, translate
from models import MailingList, Subscription, SubscriptionStatus, User
from services.engagement import answers
from services.subscriptions.consent import entries
from services.subscriptions.members import changes, locks, opt_out_checks, opt_outs
from services.subscriptions.members.changes import Actor
from storage.unit_of_work import UnitOfWork

DEFAULT_WORDING = marked(
    "This list may record how many of its e-mails I open and click, and on which day I last did so."
)


def get_wording(mailing_list: MailingList, language: str) -> str:
    """Return the question to which people say yes or no."""
    return mailing_list.engagement_wording or translate(language, DEFAULT_WORDING)


def allow_engagement(
    uow: UnitOfWork, mailing_list: MailingList, person: User, actor: Actor, *, wording: str
) -> None:
    """Store a yes of an active member, with the ``wording`` that the person read.

    A person who isn't an active member has nothing to allow.
    """
    if not locks.lock_pair(uow, person.id, mailing_list.id):
        return
    record = changes.find_record(uow, mailing_list.id, person.id)
    if record is not None:
        record_yes(uow, record, person, actor, wording=wording)


def record_yes(
    uow: UnitOfWork, record: Subscription, person: User, actor: Actor, *, wording: str
) -> None:
    """Store a yes for a locked subscription, if the subscription is active."""
    if record.status != SubscriptionStatus.ACTIVE:
        return
    digests = opt_out_checks.compute_address_digests(uow.settings.keyring, person.email)
    if answers.allow(uow, record.list_id, person.id, digests):
        entries.record_engagement(
            uow,
            record,
            entries.HOW_BY_VIA[actor.via],
            wording=wording,
            ip=actor.ip,
            url=actor.page_url,
            browser=actor.browser,
        )
        _record_event(uow, record, changes.ENGAGEMENT_ALLOWED, actor)


def refuse_engagement(
    uow: UnitOfWork, mailing_list: MailingList, person: User, actor: Actor
) -> bool:
    """Store a no, and delete the list's counts. Return whether the no is new."""
    if not locks.lock_person_shared(uow, person.id):
        return False
    digest = opt_out_checks.compute_address_digest(uow.settings.keyring, person.email)
    is_new = answers.refuse(uow, mailing_list.id, person.id, digest)
    record = changes.find_record(uow, mailing_list.id, person.id)
    if is_new and record is not None:
        _record_event(uow, record, changes.ENGAGEMENT_REFUSED, actor)
    return is_new


def transfer_answer(
    uow: UnitOfWork, source: Subscription, target: Subscription, person: User
) -> None:
    """Copy the answer on the source list of a transfer. A no on either list wins.

    The caller must have locked both subscriptions, and must not have ended the source yet.
    """
    pairs = {(each.list_id, person.id): each for each in (source, target)}
    stored_answers = answers.find_answers(uow, pairs)
    answer = stored_answers.get((source.list_id, person.id))
    if answer is None:
        return
    keyring = uow.settings.keyring
    if not answer.is_allowed:
        digest = opt_out_checks.compute_address_digest(keyring, person.email)
        answers.refuse(uow, target.list_id, person.id, digest)
    elif (
        target.list_id,
        person.id,
    ) not in stored_answers and target.status == SubscriptionStatus.ACTIVE:
        answers.allow(uow, target.list_id, person.id, [])


def detach_refusals(uow: UnitOfWork, person: User) -> None:
    """Remove the person's id from refusals before an erasure.

    The refusals stay valid for the verified address and for former addresses.
    """
    addresses = {person.email, *opt_outs.list_former_addresses(uow, person)}
    digests = [
        opt_out_checks.compute_address_digest(uow.settings.keyring, address)
        for address in sorted(addresses)
    ]
    answers.detach_refusals(uow, person.id, digests)


def claim_refusals(uow: UnitOfWork, person: User) -> None:
    """Apply the refusals of erased people who had the person's address."""
    digests = opt_out_checks.compute_address_digests(uow.settings.keyring, person.email)
    answers.claim_refusals(uow, person.id, digests)


def _record_event(uow: UnitOfWork, record: Subscription, action: str, actor: Actor) -> None:
    changes.record_event(
        uow, record, action, actor, status=record.status, email_enabled=record.email_enabled
    )
