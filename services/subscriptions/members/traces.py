"""Creates and verifies trace ids, which authenticate the recipient of a mail in links and forms.

A person's trace id is secret, and only mails to the person contain it. A request with a trace id is
treated as if the recipient of the mail had made it.

A trace id has the form ``1<payload>.<key id>.<mac>``, with at most 80 characters from
``[A-Za-z0-9_.-]``. The payload consists of the list id, the user id and the delivery number in
base64url. The ids have 7 bytes each, because all ids are below 2**53, and the delivery number has 8
bytes. The MAC consists of the first 16 bytes of the HMAC-SHA256 of the version and the encoded
payload.

A trace id doesn't expire, because people may read a mail much later. A list's owner can revoke the
trace ids in all mails that the list has sent. A revoked trace id still allows a person to
unsubscribe, but nothing else.

A limited trace id comes from a roster or a delivery that a limited API key requested. The list's
owner knows it, so it only allows the person to unsubscribe, turn mail off and report the list. The
first bit of its delivery number is 1. Release 1.1.0 reads it as an ordinary trace id with a large
delivery number.
"""

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import text

from core.errors.mailing import TRACE_INVALID
from core.ids import PersonId
from core.keyring import Keyring
from models import MailingList
from services.access.caller import Caller
from services.access.sessions import require_recent_login
from storage.unit_of_work import UnitOfWork

_PURPOSE = "trace"
_VERSION = "1"
_MAC_BYTES = 16
_ID_BYTES = 7
_DELIVERY_BYTES = 8
_PAYLOAD_CHARACTERS = 30  # A payload of 22 bytes has 30 characters in base64.
_LIMITED = 1 << 63  # Delivery numbers are below 2**53.
MAX_TRACE_ID_CHARACTERS = 80
_NEXT_DELIVERY = text("SELECT nextval(pg_get_serial_sequence('jobs', 'id'))")


@dataclass(frozen=True)
class Trace:
    """The decoded content of a trace id.

    ``delivery`` is the id of a mailing or of a job that sent a mail, or a number from
    ``allocate_delivery_number``. Old releases used 0.
    """

    list_id: int
    user_id: PersonId
    delivery: int = 0
    is_limited: bool = False


def allocate_delivery_number(uow: UnitOfWork) -> int:
    """Return a number that is greater than all previous ones."""
    # Delivery numbers and job ids come from the same database sequence, so that no delivery has a
    # job's number.
    return int(uow.session.execute(_NEXT_DELIVERY).scalar_one())


def revoke_traces(uow: UnitOfWork, caller: Caller, mailing_list: MailingList) -> None:
    require_recent_login(uow, caller)
    mailing_list.traces_revoked_through = allocate_delivery_number(uow)


def is_revoked(mailing_list: MailingList, delivery: int) -> bool:
    last_revoked = mailing_list.traces_revoked_through
    return last_revoked is not None and delivery <= last_revoked


def can_only_leave(mailing_list: MailingList, trace: Trace) -> bool:
    return trace.is_limited or is_revoked(mailing_list, trace.delivery)


def create_trace_id(keyring: Keyring, trace: Trace) -> str:
    create_for_user = build_trace_id_factory(
        keyring, trace.list_id, trace.delivery, is_limited=trace.is_limited
    )
    return create_for_user(trace.user_id)


def build_trace_id_factory(
    keyring: Keyring, list_id: int, delivery: int, *, is_limited: bool = False
) -> Callable[[int], str]:
    """Use one HMAC signer for a roster, which may contain a million trace ids."""
    signer = keyring.signer(_PURPOSE, length=_MAC_BYTES)
    list_bytes = list_id.to_bytes(_ID_BYTES, "big")
    marked_delivery = delivery | _LIMITED if is_limited else delivery
    delivery_bytes = marked_delivery.to_bytes(_DELIVERY_BYTES, "big")

    def create_for_user(user_id: int) -> str:
        payload = list_bytes + user_id.to_bytes(_ID_BYTES, "big") + delivery_bytes
        signed = _VERSION + base64.urlsafe_b64encode(payload).decode().rstrip("=")
        return f"{signed}.{signer.sign(signed.encode())}"

    return create_for_user


def read_trace_id(keyring: Keyring, token: str) -> Trace:
    """Raise ``trace.invalid`` for a forgery, or if the operator has removed the key."""
    signed, _, signature = token.partition(".")
    if len(token) > MAX_TRACE_ID_CHARACTERS or len(signed) != len(_VERSION) + _PAYLOAD_CHARACTERS:
        raise TRACE_INVALID()
    # Verify the signature before decoding the payload, so that only one encoding of a trace id is
    # valid.
    signer = keyring.signer(_PURPOSE, length=_MAC_BYTES)
    if not token.startswith(_VERSION) or not signer.verify(signed.encode(), signature):
        raise TRACE_INVALID()
    try:
        payload = base64.urlsafe_b64decode(signed.removeprefix(_VERSION) + "==")
    except binascii.Error:
        raise TRACE_INVALID() from None
    ids_end = 2 * _ID_BYTES
    delivery = int.from_bytes(payload[ids_end:], "big")
    return Trace(
        list_id=int.from_bytes(payload[:_ID_BYTES], "big"),
        user_id=PersonId(int.from_bytes(payload[_ID_BYTES:ids_end], "big")),
        delivery=delivery & ~_LIMITED,
        is_limited=delivery >= _LIMITED,
    )
