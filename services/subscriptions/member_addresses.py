"""The addresses of members who moved: where their mail goes, and the address that owners see.

A list's own record keeps the address that its owner knows, until the member says otherwise. No undo
takes back what an owner has seen, so a new address is shown once the change can't be undone.
"""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, Interval, Row, case, func, select, text, type_coerce

from core.errors import DomainError, TransientError
from core.keyring import Keyring
from core.queues import Queue
from core.scopes import Scope
from models import AccountMail, FormerAddress, MailedLink, Subscription, User
from services.accounts.account_mails import MailKind
from services.accounts.mailed_tokens import TOKEN_LIFETIMES, Purpose
from services.jobs import kinds, outbox
from services.jobs import lease as leases
from services.jobs.batches import work_in_turns
from services.jobs.lease import Lease
from services.subscriptions.members import changes, locks, opt_outs
from services.subscriptions.members.changes import Actor, ActorKind, Via
from storage.resources import Resources
from storage.unit_of_work import UnitOfWork

# A batch keeps bulk actions off all these lists.
MAX_LISTS = 20
# An undo that was asked for at the last moment has ended by then.
_MARGIN = timedelta(minutes=1)


def begin(
    uow: UnitOfWork,
    user_id: int,
    *,
    request_id: str | None,
    after: timedelta = TOKEN_LIFETIMES[Purpose.UNDO_ADDRESS],
) -> None:
    """Have all lists of the person show their owners the address that the account has now."""
    job = outbox.enqueue(
        uow,
        SHOW_ADDRESS,
        user_id=None,
        on_behalf_of=user_id,
        subject_id=user_id,
        request_id=request_id,
    )
    job.sends = 0
    job.run_at = job.send_after = func.now() + after + _MARGIN


def run(resources: Resources, lease: Lease) -> None:
    """Take one turn. Records that show the address already are left alone."""
    user_id = lease.subject_id
    assert user_id is not None
    with resources.unit_of_work() as uow:
        links = select(func.max(MailedLink.expires_at)).where(
            MailedLink.user_id == user_id,
            MailedLink.purpose == Purpose.UNDO_ADDRESS,
            MailedLink.used_at.is_(None),
        )
        # A link is made when its mail is sent.
        until = func.now() + TOKEN_LIFETIMES[Purpose.UNDO_ADDRESS]
        unsent = select(case((func.count() > 0, until))).where(
            AccountMail.user_id == user_id,
            AccountMail.kind == MailKind.ADDRESS_CHANGED,
            AccountMail.sent_at.is_(None),
        )
        last = func.greatest(links.scalar_subquery(), unsent.scalar_subquery())
        # For how long a change may still be undone.
        left = uow.session.scalar(select(type_coerce(last - func.now(), Interval)))
        if left is not None and left > timedelta(0):
            begin(uow, user_id, request_id=lease.request_id, after=left)
            leases.succeed(uow, lease, {})
            return
    reached: int | None = 0

    def show_batch(uow: UnitOfWork) -> bool:
        nonlocal reached
        reached = _show_batch(uow, lease, user_id, reached or 0)
        return reached is None

    try:
        work_in_turns(resources, lease, show_batch)
    except DomainError as error:
        raise TransientError(error.message) from error


SHOW_ADDRESS = kinds.register(
    kinds.JobKind(
        "account.show_address", Queue.MAINTENANCE, Scope.SUBSCRIPTION_FULL, retryable=True, run=run
    )
)


def _show_batch(uow: UnitOfWork, lease: Lease, user_id: int, after: int) -> int | None:
    """Return the last list of the batch, ``None`` once the job has ended."""
    # Finds nothing after an undo, or after another move.
    said = FormerAddress.user_id == User.id, FormerAddress.shown == User.email
    wanted = select(User.email).where(User.id == user_id, *said).limit(1)
    s = Subscription
    is_behind = s.user_id == user_id, s.list_id > after, s.email != wanted.scalar_subquery()
    query = select(s.list_id).where(*is_behind).order_by(s.list_id).limit(MAX_LISTS)
    list_ids = list(uow.session.scalars(query))
    if not list_ids:
        leases.succeed(uow, lease, {})
        return None
    # Fails if another worker has the job now, and takes the batch back.
    leases.progress(uow, lease, done=0)
    locks.share_lists(uow, *list_ids)
    if not locks.lock_pair(uow, user_id, *list_ids):
        raise TransientError("The person is gone.")
    address = uow.session.scalar(wanted)
    if address is None:
        return after
    actor = Actor(ActorKind.USER, Via.LOGIN, user_id, request_id=lease.request_id)
    for each in list_ids:
        record = changes.find(uow, each, user_id)
        if record is not None and record.email is not None:
            changes.change(uow, record, "edited", actor, email=address)
    return list_ids[-1]


_MOVED = text("""
SELECT u.id, u.email FROM users AS u
WHERE u.id IN (SELECT user_id FROM former_addresses WHERE user_id = ANY(:ids))
""")
_REFUSED = text("""
SELECT address_hmac FROM opt_outs WHERE list_id = :list_id AND address_hmac = ANY(:digests)
""")


class RosterAddresses:
    """The addresses of one roster, whose rows come in batches."""

    def __init__(self, keyring: Keyring, list_id: int) -> None:
        self._digests = opt_outs.address_digester(keyring)
        self._list_id = list_id

    def of(
        self, reading: Connection, rows: Sequence[Row[*tuple[Any, ...]]]
    ) -> Iterator[tuple[str, str | None, int]]:
        """Address, name and person of each row ``(email, name, user_id)`` that gets mail."""
        ids = [user_id for _, _, user_id in rows]
        moved = {row.id: row.email for row in reading.execute(_MOVED, {"ids": ids})}
        # People under whose new address an opt-out is kept.
        pairs = ((self._digests(address), user_id) for user_id, address in moved.items())
        whose = {digest: user_id for digests, user_id in pairs for digest in digests}
        about = {"list_id": self._list_id, "digests": list(whose)}
        found = reading.execute(_REFUSED, about) if moved else ()
        refused = {whose[bytes(digest)] for (digest,) in found}
        for email, name, user_id in rows:
            if user_id not in refused:
                yield moved.get(user_id, email), name, user_id


def person_of(*, list_id: str, email: str, holder: str) -> str:
    """Return SQL for one row, whose ``id`` is that of the person.

    The list's own copy of the address comes first, since the owner may know a member who moved by
    no other; then who has the address now, and then who had it.

    OFFSET 0 has Postgres look up one row at a time, and take the id for a value like any other when
    it chooses an index for what belongs to it. There is no LIMIT, for which it would rather read a
    table from its beginning than an index.

    Args:
        list_id, email, holder: expressions. The holder is the id of who has the address, or NULL.
    """
    return f"""
SELECT CASE WHEN former.known IS NULL OR EXISTS (
    SELECT FROM subscriptions
    WHERE list_id = {list_id} AND user_id = {holder} AND email = {email} OFFSET 0
) THEN coalesce({holder}, former.member, former.id) ELSE former.known END AS id
FROM (
    SELECT max(f.user_id) AS id, max(m.user_id) AS member,
        max(m.user_id) FILTER (WHERE m.email = {email}) AS known
    FROM (
        SELECT user_id FROM former_addresses WHERE email = {email} OFFSET 0
    ) AS f CROSS JOIN LATERAL (
        SELECT FROM users WHERE id = f.user_id AND erased_at IS NULL OFFSET 0
    ) AS present LEFT JOIN LATERAL (
        SELECT user_id, email FROM subscriptions
        WHERE list_id = {list_id} AND user_id = f.user_id OFFSET 0
    ) AS m ON true
) AS former OFFSET 0
"""  # noqa: S608
