"""Verifies requests in which senders post reports, and stores the request bodies for a worker.

A response must not reveal whether a sender exists. A request with a wrong signature, password or
API key therefore gets the same response as one for an unknown or paused sender. The API delays
these responses, because their duration must not reveal whether the sender exists. If the sender is
unknown, the API checks the request with the secret of a dummy sender, which takes equally long.
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
from core.ids import AccountId
from core.scopes import Scope
from integrations.senders.json_body import MAX_SIGNED_BODY_BYTES
from integrations.senders.port import ReusableProof, SenderProof, SenderProvider, SenderRequest
from models import SenderState
from services.access.caller import Caller
from services.senders.adapters import get_adapter
from services.senders.notices import FailureReason
from services.senders.posted_bodies import PostedBody
from services.senders.states import mark_failing
from services.webhooks.signing import SECRET_PREFIX
from storage.database import Statement
from storage.encryption import DecryptionFailed, WrappedKey, encrypt
from storage.resources import Resources

MAX_WAITING_BODIES = 10_000
MAX_WAITING_BYTES = 256 * 1024 * 1024
_MEGABYTE = 1024 * 1024
# The providers whose signature is in the body. Their bodies are decompressed before the signature
# is verified.
_SIGNED_IN_BODY = frozenset({SenderProvider.MAILGUN, SenderProvider.SES})
_PROOF_PURPOSE = "sender-proof"
# A sender gets the state ``failing`` after MAX_REFUSED_CALLS_PER_HOUR rejected requests in one
# hour, if more requests were rejected than reports accepted in this hour.
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
# Stores a proof with the hash of its event, unless the proof is already stored. Returns whether the
# proof is stored with this event.
_SPEND_PROOF = Statement("""
INSERT INTO spent_proofs AS p (proof_hash, event_hash, expires_at)
VALUES (:proof_hash, :event_hash, :expires_at)
ON CONFLICT (proof_hash) DO UPDATE SET event_hash = p.event_hash
RETURNING event_hash = :event_hash
""")
# Increases the number of rejected requests of each sender in the current hour. Returns the id of
# each sender, and whether the sender has just had too many rejected requests in this hour: at least
# the maximum, and more than accepted reports. Otherwise, strangers could make a working sender
# fail.
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
), limits AS (
    SELECT counted.*, counted.count - refused.count AS count_before, greatest(:max_refused, 1 + (
        SELECT coalesce(sum(c.count), 0) FROM sender_counts AS c
        WHERE c.sender_id = refused.id AND c.hour = date_trunc('hour', now())
            AND c.outcome <> 'refused'
    )) AS max_count
    FROM counted JOIN refused ON refused.id = counted.sender_id
)
UPDATE senders AS s SET last_refused_at = now()
FROM limits AS l WHERE s.id = l.sender_id
RETURNING s.id, l.count >= l.max_count AND l.count_before < l.max_count AS is_too_many
""")


@dataclass(frozen=True)
class StoredSender:
    """``id`` is ``None`` for the dummy sender that replaces an unknown sender."""

    id: int | None
    provider: SenderProvider
    proof: SenderProof
    account_id: AccountId | None = None
    any_list: bool = False
    is_paused: bool = False


class RefusedCalls:
    """Counts the rejected requests of each sender in memory, until a thread stores the counts.

    If the API wrote each rejected request immediately, the response time would reveal whether the
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
        """Senders with too many rejected requests get the state ``failing``."""
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
    """Return the sender, or the dummy sender if there is no such sender."""
    rows = resources.database.rows(_FIND_SENDER, sender_id=sender_id)
    if not rows:
        dummy_sender, wrapped, context = resources.shared(_create_dummy_sender)
        # Decrypt the dummy sender's secret, so that the duration is the same as for a real sender.
        resources.key_wrapper.unwrap(wrapped, context)
        return dummy_sender
    provider, account_id, any_list, topic_arn, state, *_ = rows[0]
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
        account_id=account_id,
        any_list=any_list,
        is_paused=state == SenderState.PAUSED,
    )


def _create_dummy_sender(resources: Resources) -> tuple[StoredSender, WrappedKey, str]:
    secret = SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()
    context = "sender-decoy"
    wrapped = resources.key_wrapper.wrap(secret.encode(), context)
    return StoredSender(None, SenderProvider.GENERIC, SenderProof((secret,))), wrapped, context


def verify_call(
    resources: Resources, sender: StoredSender, headers: Mapping[str, str], body: PostedBody
) -> None:
    """Verify the signature or password of a request. ``headers`` has names in lower case.

    Raises ``KeyMissing`` if a public key must be fetched first.
    """
    content: bytes | None = body.content
    if sender.provider in _SIGNED_IN_BODY:
        content = body.read(MAX_SIGNED_BODY_BYTES)
    if content is None:
        raise SENDER_SIGNATURE_INVALID()
    request = SenderRequest(headers=headers, body=content, received_at=clock.now())
    proof = get_adapter(resources, sender.provider).verify(request, sender.proof)
    if proof is not None:
        _spend_proof(resources, sender, proof)


def _spend_proof(resources: Resources, sender: StoredSender, proof: ReusableProof) -> None:
    """Store the proof, or raise ``sender.signature_invalid`` if it is stored with another event.

    All senders of an account share the stored proofs, because they may share a signing key.
    """
    signer = resources.keyring.signer(_PROOF_PURPOSE)
    subject = f"{sender.account_id}.".encode()
    [(is_same_event,)] = resources.database.rows(
        _SPEND_PROOF,
        proof_hash=signer.digest(subject + proof.token),
        event_hash=signer.digest(proof.event),
        expires_at=proof.expires_at,
    )
    if not is_same_event:
        raise SENDER_SIGNATURE_INVALID()


def require_active(sender: StoredSender) -> None:
    if sender.id is None or sender.is_paused:
        raise SENDER_SIGNATURE_INVALID()


def require_key(sender: StoredSender, caller: Caller) -> None:
    needs = {Scope.SENDER, Scope.DELIVERY} if sender.any_list else {Scope.SENDER}
    is_own = sender.account_id == caller.account_id
    is_key = caller.key_id is not None
    if not (is_own and is_key and needs <= caller.scopes):
        raise SENDER_SIGNATURE_INVALID()


def store_body(resources: Resources, sender: StoredSender, body: PostedBody) -> None:
    is_generic = sender.provider is SenderProvider.GENERIC
    max_megabytes = 2 if is_generic else 1
    content = body.read(max_megabytes * _MEGABYTE)
    if content is None:
        raise BODY_TOO_LARGE(most=f"{max_megabytes} MB")
    if is_generic:
        get_adapter(resources, sender.provider).parse(content)
    context = f"body-{secrets.token_hex(16)}"
    data_key, wrapped = resources.key_wrapper.create_key(context)
    sealed = encrypt(content, data_key, context)
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
