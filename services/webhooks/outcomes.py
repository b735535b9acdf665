"""Records the outcomes of delivery attempts."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from http import HTTPStatus

from sqlalchemy import exists, func, select, text, update

from core.logging import get_logger
from integrations.http_client import retry_after
from integrations.receivers import Outcome
from models import DeliveryStatus, EndpointState, User, WebhookDelivery, WebhookEndpoint
from services.accounts import account_mails, accounts
from services.accounts.account_mails import MailKind
from services.webhooks.claims import FIRST_PAUSES
from storage.unit_of_work import UnitOfWork

log = get_logger(__name__)

# A receiver that says nothing keeps a thread waiting, which others need. After the second
# such call in a row its endpoint therefore rests, for longer each time: then the threads of one
# process have room for more than a hundred of them.

TRIED_FOR = timedelta(days=3)
# A receiver may ask for a longer pause than any of ours.
MAX_RETRY_AFTER = timedelta(hours=12)
# A call that got no answer in less time kept nobody waiting.
SILENCE = timedelta(seconds=5)
FIRST_REST = timedelta(seconds=30)
MAX_REST = timedelta(minutes=5)

FAILED_FOR_DAYS = "It failed for three days."
ANSWERED_GONE = "Its receiver answered 410."


def rest_after(silences: int) -> timedelta | None:
    """How long an endpoint rests after so many calls in a row that were kept waiting in vain."""
    return min(FIRST_REST * (1 << min(silences - 2, 10)), MAX_REST) if silences > 1 else None


# A single statement for all: most tries succeed, and come many at a time.
_WRITE_TAKEN = text("""
    UPDATE webhook_deliveries AS d
    SET status = 'delivered', delivered_at = now(), error = NULL,
        status_code = made.code, milliseconds = made.milliseconds, answer = made.answer
    FROM unnest(
        CAST(:ids AS bigint[]), CAST(:codes AS integer[]), CAST(:milliseconds AS integer[]),
        CAST(:answers AS bytea[])
    ) AS made (id, code, milliseconds, answer)
    WHERE d.id = made.id
""")


def write(
    uow: UnitOfWork, endpoint: WebhookEndpoint, url: str, made: Mapping[int, Outcome]
) -> None:
    """Write the outcomes of tries, by the delivery's id and in the order in which they were made.

    The endpoint is locked, and they went to this URL. Only the last one may be a failure.
    """
    if url == endpoint.url:
        for outcome in made.values():
            # We waited for an answer that did not come.
            waited = timedelta(milliseconds=outcome.milliseconds)
            is_silence = outcome.status is None and waited >= SILENCE
            endpoint.silences = endpoint.silences + 1 if is_silence else 0
        rest = rest_after(endpoint.silences)
        endpoint.rests_until = None if rest is None else _now(uow) + rest
    taken = {each: outcome for each, outcome in made.items() if outcome.is_success}
    if taken:
        values = {
            "ids": list(taken),
            "codes": [each.status for each in taken.values()],
            "milliseconds": [each.milliseconds for each in taken.values()],
            "answers": [each.body or None for each in taken.values()],
        }
        uow.session.execute(_WRITE_TAKEN, values)
        endpoint.failing_since = None
    for delivery_id in made.keys() - taken:
        delivery = uow.session.get(WebhookDelivery, delivery_id)
        if delivery is not None:  # it was not past its time
            _write_failure(uow, endpoint, delivery, made[delivery_id], url)
    # Blank the answers about erased persons: those from before may have been looked for by now.
    row = WebhookDelivery
    is_erased = exists().where(User.id == row.person_id, User.erased_at.is_not(None))
    blanked = update(row).where(row.id.in_(made), is_erased).values(answer=None)
    uow.session.execute(blanked)


def _now(uow: UnitOfWork) -> datetime:
    return uow.session.scalars(select(func.now())).one()


def _write_failure(
    uow: UnitOfWork,
    endpoint: WebhookEndpoint,
    delivery: WebhookDelivery,
    outcome: Outcome,
    url: str,
) -> None:
    delivery.status_code, delivery.milliseconds = outcome.status, outcome.milliseconds
    delivery.answer, delivery.error = outcome.body or None, outcome.error
    # A receiver that is gone since its owner named another one ends nothing.
    if outcome.status == HTTPStatus.GONE and url == endpoint.url:
        delivery.status = DeliveryStatus.FAILED
        _stop(uow, endpoint, EndpointState.ENDED, ANSWERED_GONE)
        return
    now = _now(uow)
    # Since this try, not since its event was queued: others may have succeeded in between. The
    # first try of an event that finds nothing else to send is as old as its place in the queue, so
    # the last one pauses an endpoint that got nothing else meanwhile.
    failing_since = endpoint.failing_since or delivery.last_attempt_at or now
    fails_for_days = now >= failing_since + TRIED_FOR
    is_given_up = now >= delivery.queued_at + TRIED_FOR
    if is_given_up:
        delivery.status = DeliveryStatus.FAILED
    else:
        # By the schedule or, in its place, as the receiver asks; the last one is after three days.
        asked = retry_after(outcome.retry_after, max_seconds=MAX_RETRY_AFTER.total_seconds())
        due_at = delivery.due_at
        if asked is not None:
            # No receiver has itself called without a pause.
            due_at = now + max(timedelta(seconds=asked), FIRST_PAUSES[0])
        delivery.due_at = min(due_at, delivery.queued_at + TRIED_FOR)
    # Nothing fails any more: the days without an event before the next one count for nothing.
    is_over = is_given_up and not fails_for_days and not _has_others(uow, delivery)
    endpoint.failing_since = None if is_over else failing_since
    if fails_for_days:
        _stop(uow, endpoint, EndpointState.PAUSED, FAILED_FOR_DAYS)


def _has_others(uow: UnitOfWork, delivery: WebhookDelivery) -> bool:
    """Return whether the endpoint has other deliveries that are not done."""
    row = WebhookDelivery
    own = row.endpoint_id == delivery.endpoint_id, row.status == DeliveryStatus.PENDING
    others = select(row.id).where(*own, row.id != delivery.id)
    return uow.session.scalar(others.limit(1)) is not None


def _stop(uow: UnitOfWork, endpoint: WebhookEndpoint, state: EndpointState, reason: str) -> None:
    """Send nothing more, unless it was stopped meanwhile, and tell the owner."""
    if endpoint.state != EndpointState.ACTIVE:
        return
    endpoint.state, endpoint.reason, endpoint.due_at = state, reason, None
    log.info("webhook.stopped", endpoint_id=endpoint.id, state=state)
    person = accounts.get(uow, endpoint.user_id)
    detail = f"{endpoint.id} is {state} now. {reason}"
    account_mails.mail_person(uow, MailKind.WEBHOOK_STOPPED, person, detail)
