"""Verifies that a request with reports comes from the sender that the URL names.

Verifying a signature takes CPU time, and Mailgun and Amazon SNS put their signatures into the
request's body. All verification therefore runs in the bulkhead ``REPORTS``.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import Request

from api.auth.identification import identify_caller
from api.client_details import client_address
from api.limits.bulkheads import REPORTS
from api.limits.keyed_bulkheads import PROOFS_BY_ADDRESS
from api.limits.rate_limits import RateLimitName, RejectionCount, build_address_rate_key
from api.state import State
from core.errors import DomainError, Kind
from core.errors.senders import SENDER_SIGNATURE_INVALID
from integrations.senders import standard_webhooks
from integrations.senders.port import KeyMissing, SenderProvider
from services.senders import intake
from services.senders.intake import StoredSender
from services.senders.posted_bodies import PostedBody

_SIGNATURE_HEADER = standard_webhooks.STANDARD_HEADERS.signatures


async def verify_sender(
    request: Request, state: State, sender_id: int, body: PostedBody
) -> StoredSender:
    """Return the sender if the request's signature, secret or API key is valid.

    The request counts against the rate limit of its IP address until it is verified.
    """
    key = build_address_rate_key(client_address(request))
    count = RejectionCount(state.rate_limiter, request.scope, RateLimitName.ANONYMOUS, key)
    with count:
        sender, is_permitted, missing_key = await REPORTS.run(
            _find_and_verify, request, state, sender_id, body, count
        )
        if not is_permitted:
            missing_key = await PROOFS_BY_ADDRESS.run(key, _verify, request, state, sender, body)
        if missing_key is not None:
            with _recording_rejection(state, sender):
                await REPORTS.run(await missing_key.fetch())
                intake.require_active(sender)
    return sender


def _find_and_verify(
    request: Request, state: State, sender_id: int, body: PostedBody, count: RejectionCount
) -> tuple[StoredSender, bool, KeyMissing | None]:
    """The request is counted only while a thread verifies it. Many simultaneous requests with valid
    signatures can therefore not exceed the rate limit.
    """
    sender = intake.find_sender(state.resources, sender_id)
    is_permitted = count.begin()
    if not is_permitted:
        return sender, False, None
    missing_key = _verify(request, state, sender, body)
    if missing_key is None:
        count.accept()
    return sender, True, missing_key


def _verify(
    request: Request, state: State, sender: StoredSender, body: PostedBody
) -> KeyMissing | None:
    """Verify the request, or return the public key that must be fetched first."""
    with _recording_rejection(state, sender):
        try:
            _verify_proof(request, state, sender, body)
        except KeyMissing as missing_key:
            return missing_key
        intake.require_active(sender)
    return None


def _verify_proof(request: Request, state: State, sender: StoredSender, body: PostedBody) -> None:
    has_key = "authorization" in request.headers and _SIGNATURE_HEADER not in request.headers
    if sender.provider is SenderProvider.GENERIC and has_key:
        caller = identify_caller(request)
        if caller is None:
            raise SENDER_SIGNATURE_INVALID()
        intake.require_key(sender, caller)
    else:
        headers = {name.lower(): value for name, value in request.headers.items()}
        intake.verify_call(state.resources, sender, headers, body)


@contextmanager
def _recording_rejection(state: State, sender: StoredSender) -> Iterator[None]:
    try:
        yield
    except DomainError as error:
        if error.kind is not Kind.UNAUTHENTICATED:
            raise
        if sender.id is not None:
            state.refused_calls.record(sender.id)
        raise SENDER_SIGNATURE_INVALID() from None
