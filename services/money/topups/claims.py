"""Claim tokens: who made an order without credentials takes its credits with one.

A token is 256 bits, derived from the order's id under a key that only our processes have, so that
an answer can be given again without the token resting anywhere. The database keeps an HMAC of it.
"""

import base64
import re

from sqlalchemy import select

from core import clock
from core.keyring import Keyring
from core.refusals.money import ORDER_CLAIMED, ORDER_NOT_FOUND, ORDER_OVER
from models import OrderStatus, OrderVia, PaymentOrder
from services.money.topups.settlement import apply_facts, lock
from storage.unit_of_work import UnitOfWork

_CLAIM_PURPOSE = "topup-claim"
_HMAC_PURPOSE = "topup-claim-hmac"
_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}\Z")
# Nothing comes of them any more.
_OVER = (OrderStatus.FAILED, OrderStatus.REFUNDED)


def make_token(keyring: Keyring, order_id: int) -> str:
    return _spelt(keyring.signer(_CLAIM_PURPOSE).digest(_message(order_id)))


def token_hmac(keyring: Keyring, token: str) -> bytes:
    """What the database keeps of a token."""
    return keyring.signer(_HMAC_PURPOSE).digest(token.encode())


def token_of(keyring: Keyring, order: PaymentOrder) -> str | None:
    """The token that was made for the order; ``None`` when its key or its HMAC is gone."""
    for digest in keyring.signer(_CLAIM_PURPOSE).digests(_message(order.id)):
        token = _spelt(digest)
        if order.claim_token_hmac in _hmacs(keyring, token):
            return token
    return None


def find(uow: UnitOfWork, keyring: Keyring, token: str) -> PaymentOrder:
    """The order that a token was made for; raises ``order.not_found``."""
    order = None
    if _TOKEN.match(token):
        query = select(PaymentOrder).where(
            PaymentOrder.claim_token_hmac.in_(_hmacs(keyring, token))
        )
        order = uow.session.scalar(query)
    if order is None:
        raise ORDER_NOT_FOUND()
    return order


def claim(uow: UnitOfWork, keyring: Keyring, user_id: int, token: str) -> PaymentOrder:
    """Make the order this user's, and its credits too once it is paid. The first one gets it.

    Raises ``order.not_found``, ``order.claimed``, ``order.over``.
    """
    order = lock(uow, find(uow, keyring, token).id)
    if order.user_id is not None:
        raise ORDER_CLAIMED()
    if order.status in _OVER:
        raise ORDER_OVER(status=order.status)
    order.user_id, order.claimed_at = user_id, clock.now()
    apply_facts(uow, order, OrderVia.CLAIM)
    return order


def _hmacs(keyring: Keyring, token: str) -> list[bytes]:
    return keyring.signer(_HMAC_PURPOSE).digests(token.encode())


def _message(order_id: int) -> bytes:
    return str(order_id).encode()


def _spelt(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
