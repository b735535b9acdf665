"""Verifies requests in which senders post reports, and stores the request bodies for a worker.

A sender is a registered source of reports, such as a mail provider. A signature, password or API
key proves that a request comes from the sender.

A response must not reveal whether a sender exists. A request with a wrong signature, password or
API key therefore gets the same response as a request for an unknown or paused sender. The API
delays the responses to rejected requests, because their duration must not reveal whether the sender
exists. If the sender is unknown, the API checks the request with the secret of a dummy sender,
which takes equally long.
"""

import base64
import secrets
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock

from sqlalchemy import text

from core import clock
from core.errors.requests import BODY_TOO_LARGE
from core.errors.senders import SENDER_BUSY, SENDER_SIGNATURE_INVALID
from core.scopes import Scope
from integrations.senders.port import SenderProof, SenderProvider, SenderRequest
from models import SenderState
from services.access.caller import Caller
from services.senders.adapters import get_adapter
from services.senders.notices import FailureReason
from services.senders.states import mark_failing
from services.webhooks.signing import SECRET_PREFIX
from storage.database import Statement
from storage.encryption import DecryptionFailed, WrappedKey, encrypt
from storage.resources import Resources

MAX_WAITING_BODIES = 10_000
MAX_WAITING_BYTES = 256 * 1024 * 1024
MAX_PROVIDER_BODY_BYTES = 1024 * 1024
# After MAX_REFUSED_CALLS_PER_HOUR rejected requests in one hour, a sender gets the state
# ``failing``.
MAX_REFUSED_CALLS_PER_HOUR = 20
SNS_HEADER = "x-amz-sns-message-type"
_MAX_COUNTED_SENDERS = 10_000

_FIND_SENDER = Statement("""
SELECT s.provider, s.user_id, s.any_list, s.topic_arn, s.state, k.context, k.wrapped_by,
    k.wrapped_key
FROM senders AS s LEFT JOIN sender_secrets AS k
    ON k.sender_id = s.id AND (k.expires_at IS NULL OR k.expires_at > now())
WHERE s.id = :sender_id AND s.deleted_at IS NULL
ORDER BY k.id DESC
""")
# Stores a request body, unless the sender was deleted in the meantime, or has too many unprocessed
# request bodies. The number and the total size of a sender's unprocessed request bodies are
# limited. Storing a request body enqueues no job, because workers look for new request bodies every
# second.
_STORE_BODY = Statement("""
INSERT INTO sender_bodies (sender_id, size, context, wrapped_key, wrapped_by, body)
SELECT id, :size, :context, :wrapped_key, :wrapped_by, :body FROM senders
WHERE id = :sender_id AND deleted_at IS NULL AND (
    SELECT count(*) < :max_bodies AND coalesce(sum(size), 0) < :max_bytes
    FROM sender_bodies WHERE sender_id = :sender_id
)
RETURNING id
""")
# Increases the number of rejected requests of each sender in the current hour. Returns the id of
# each sender, and whether the sender has just reached the limit of rejected requests per hour.
_COUNT_REFUSED = text("""
WITH refused AS (
    SELECT s.id, r.count
    FROM unnest(CAST(:sender_ids AS bigint[]), CAST(:counts AS bigint[])) AS r (id, count)
    JOIN senders AS s ON s.id = r.id
), counted AS (
    INSERT INTO sender_counts AS c (sender_id, hour, outcome, count)
    SELECT id, date_trunc('hour', now()), 'refused', count FROM refused ORDER BY id
    ON CONFLICT (sender_id, hour, outcome) DO UPDATE SET count = c.count + excluded.count
    RETURNING sender_id, count
)
UPDATE senders AS s SET last_refused_at = now()
FROM counted JOIN refused ON refused.id = counted.sender_id
WHERE s.id = counted.sender_id
RETURNING s.id,
    counted.count >= :max_refused AND counted.count - refused.count < :max_refused AS is_too_many
""")


@dataclass(frozen=True)
class StoredSender:
    """A sender, with the secrets and the topic for verifying the sender's requests.

    Attributes:
        id: the sender's id, or ``None`` for the dummy sender that replaces an unknown sender.
        user_id: the id of the sender's owner.
        any_list: whether the sender covers the lists of all owners.
    """

    id: int | None
    provider: SenderProvider
    proof: SenderProof
    user_id: int | None = None
    any_list: bool = False
    is_paused: bool = False


class RefusedCalls:
    """Counts the rejected requests of each sender in memory.

    A background thread writes the numbers of rejected requests to the database. If the API wrote
    each rejected request to the database immediately, the response time would reveal whether the
    sender exists.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: Counter[int] = Counter()

    def record(self, sender_id: int) -> None:
        with self._lock:
            if sender_id in self._counts or len(self._counts) < _MAX_COUNTED_SENDERS:
                self._counts[sender_id] += 1

    def write_counts(self, resources: Resources) -> None:
        """Write the numbers of rejected requests to the database, and reset the numbers in memory.

        Senders with too many rejected requests get the state ``failing``. Raises
        ``SQLAlchemyError``.
        """
        with self._lock:
            counts = self._counts
            self._counts = Counter()
        if not counts:
            return
        values = {
            "sender_ids": sorted(counts),
            "counts": [counts[sender_id] for sender_id in sorted(counts)],
            "max_refused": MAX_REFUSED_CALLS_PER_HOUR,
        }
        with resources.unit_of_work() as uow:
            rows = uow.session.execute(_COUNT_REFUSED, values).all()
            for sender_id in sorted(row.id for row in rows if row.is_too_many):
                mark_failing(uow, sender_id, FailureReason.CALLS_REJECTED)


def find_sender(resources: Resources, sender_id: int) -> StoredSender:
    """Return the sender with this id, or the dummy sender if there is no such sender.

    Raises ``psycopg2.Error``.
    """
    rows = resources.database.rows(_FIND_SENDER, sender_id=sender_id)
    if not rows:
        dummy_sender, wrapped, context = resources.shared(_create_dummy_sender)
        # Decrypt the dummy sender's secret, so that the duration is the same as for a real sender.
        resources.key_wrapper.unwrap(wrapped, context)
        return dummy_sender
    provider, user_id, any_list, topic_arn, state, *_ = rows[0]
    values: list[str] = []
    for *_, context, wrapped_by, wrapped_key in rows:
        # Skip a secret whose encryption key an operator has removed.
        with suppress(DecryptionFailed):
            if wrapped_key is not None:
                wrapped = WrappedKey(wrapped_by, bytes(wrapped_key))
                values.append(resources.key_wrapper.unwrap(wrapped, context).decode())
    return StoredSender(
        sender_id,
        SenderProvider(provider),
        SenderProof(tuple(values), topic_arn),
        user_id=user_id,
        any_list=any_list,
        is_paused=state == SenderState.PAUSED,
    )


def _create_dummy_sender(resources: Resources) -> tuple[StoredSender, WrappedKey, str]:
    secret = SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()
    context = "sender-decoy"
    wrapped = resources.key_wrapper.wrap(secret.encode(), context)
    return StoredSender(None, SenderProvider.GENERIC, SenderProof((secret,))), wrapped, context


def verify_call(resources: Resources, sender: StoredSender, request: SenderRequest) -> None:
    """Verify the signature or password of a request, which proves that the sender made the request.

    Raises ``sender.signature_invalid`` if the signature or password is wrong. Raises ``KeyMissing``
    if a public key must be fetched first.
    """
    get_adapter(resources, sender.provider).verify(request, sender.proof)


def require_active(sender: StoredSender) -> None:
    """Raise ``sender.signature_invalid`` if the sender is unknown or paused."""
    if sender.id is None or sender.is_paused:
        raise SENDER_SIGNATURE_INVALID()


def require_key(sender: StoredSender, caller: Caller) -> None:
    """Raise ``sender.signature_invalid`` unless the caller may post reports as the sender.

    The caller must use an API key of the sender's owner with the scope ``sender``. If the sender
    covers the lists of all owners, the API key also needs the scope ``delivery``.
    """
    needs = {Scope.SENDER, Scope.DELIVERY} if sender.any_list else {Scope.SENDER}
    is_own = sender.user_id == caller.user_id
    is_key = caller.key_id is not None
    if not (is_own and is_key and needs <= caller.scopes):
        raise SENDER_SIGNATURE_INVALID()


def store_body(resources: Resources, sender: StoredSender, body: bytes) -> None:
    """Encrypt and store the body of a verified request. A worker processes the reports in the body.

    Raises ``body.too_large``, ``psycopg2.Error`` and ``sender.busy``. For the provider ``generic``,
    also raises the errors of ``GenericAdapter.parse``.
    """
    if sender.provider is SenderProvider.GENERIC:
        get_adapter(resources, sender.provider).parse(body)
    elif len(body) > MAX_PROVIDER_BODY_BYTES:
        raise BODY_TOO_LARGE(most="1 MB")
    context = f"body-{secrets.token_hex(16)}"
    data_key, wrapped = resources.key_wrapper.create_key(context)
    sealed = encrypt(body, data_key, context)
    stored = resources.database.rows(
        _STORE_BODY,
        sender_id=sender.id,
        size=len(sealed),
        context=context,
        wrapped_key=wrapped.data,
        wrapped_by=wrapped.wrapped_by,
        body=sealed,
        max_bodies=MAX_WAITING_BODIES,
        max_bytes=MAX_WAITING_BYTES,
    )
    if not stored:
        raise SENDER_BUSY()


def build_request(headers: Mapping[str, str], body: bytes) -> SenderRequest:
    """Return a ``SenderRequest`` with the headers and the body of a request that has just arrived.

    The header names in ``headers`` must be in lower case.
    """
    return SenderRequest(headers=headers, body=body, received_at=clock.now())
