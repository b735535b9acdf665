"""Trace ids, by which a mail's link or form acts for the person to whom it was sent.

A trace id goes into mail to that person and nowhere else, so a request that carries it comes from
that person. It is written ``1<payload>.<key id>.<mac>``, at most 80 characters of
``[A-Za-z0-9_.-]``. The payload is list, user (7 bytes each: ids are below 2**53) and delivery (8
bytes) in base64url. The MAC is the first 16 bytes of an HMAC-SHA256 of version and payload as
they are written. A trace id does not expire, because people read mail late. The owner of a list
may revoke those of the deliveries so far: they still leave the list, and open nothing else.
"""

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import text

from core.errors.mailing import TRACE_INVALID
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
_PAYLOAD_CHARACTERS = 30  # 22 bytes in base64
MAX_TRACE_ID_CHARACTERS = 80
_NEXT_DELIVERY = text("SELECT nextval(pg_get_serial_sequence('jobs', 'id'))")


@dataclass(frozen=True)
class Trace:
    list_id: int
    user_id: int
    # The delivery in which it was mailed: the id of the job that made the roster or sent the mail,
    # a number from ``new_delivery``, or 0 from a release that gave none.
    delivery: int = 0


def new_delivery(uow: UnitOfWork) -> int:
    """A number behind those of all deliveries so far."""
    # Jobs and deliveries share their numbers, so that none is a table of its own.
    return int(uow.session.execute(_NEXT_DELIVERY).scalar_one())


def revoke_traces(uow: UnitOfWork, caller: Caller, mailing_list: MailingList) -> None:
    """Revoke all mailed trace ids. After that, people can use them only to leave the list.

    Raises ``auth.login_again``.
    """
    require_recent_login(uow, caller)
    mailing_list.traces_revoked_through = new_delivery(uow)


def is_revoked(mailing_list: MailingList, delivery: int) -> bool:
    last = mailing_list.traces_revoked_through
    return last is not None and delivery <= last


def make_trace_id(keyring: Keyring, trace: Trace) -> str:
    return trace_id_factory(keyring, trace.list_id, trace.delivery)(trace.user_id)


def trace_id_factory(keyring: Keyring, list_id: int, delivery: int) -> Callable[[int], str]:
    """A function that makes trace ids of one list: a roster may need a million of them."""
    signer = keyring.signer(_PURPOSE, length=_MAC_BYTES)
    before = list_id.to_bytes(_ID_BYTES, "big")
    after = delivery.to_bytes(_DELIVERY_BYTES, "big")

    def make_for(user_id: int) -> str:
        packed = before + user_id.to_bytes(_ID_BYTES, "big") + after
        signed = _VERSION + base64.urlsafe_b64encode(packed).decode().rstrip("=")
        return f"{signed}.{signer.sign(signed.encode())}"

    return make_for


def read_trace_id(keyring: Keyring, token: str) -> Trace:
    """Return the contents of a trace id; raises ``trace.invalid``.

    A trace id is invalid once its key was removed from the keyring.
    """
    signed, _, signature = token.partition(".")
    if len(token) > MAX_TRACE_ID_CHARACTERS or len(signed) != len(_VERSION) + _PAYLOAD_CHARACTERS:
        raise TRACE_INVALID()
    # The signature covers the text, so another spelling of the same bytes is refused too.
    signer = keyring.signer(_PURPOSE, length=_MAC_BYTES)
    if not token.startswith(_VERSION) or not signer.verify(signed.encode(), signature):
        raise TRACE_INVALID()
    try:
        packed = base64.urlsafe_b64decode(signed.removeprefix(_VERSION) + "==")
    except binascii.Error:
        raise TRACE_INVALID() from None
    ids = 2 * _ID_BYTES
    return Trace(
        list_id=int.from_bytes(packed[:_ID_BYTES], "big"),
        user_id=int.from_bytes(packed[_ID_BYTES:ids], "big"),
        delivery=int.from_bytes(packed[ids:], "big"),
    )
