"""The tokens by which payers claim the orders that nobody owns yet."""

import base64
import re

from sqlalchemy import select

from core import clock
from core.errors import money as errors
from core.keyring import Keyring
from models import OrderStatus, OrderVia, PaymentOrder
from services.credits.settlement import apply_facts, lock
from storage.unit_of_work import UnitOfWork

_CLAIM_PURPOSE = "topup-claim"
_HMAC_PURPOSE = "topup-claim-hmac"
_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}\Z")
# Statuses of orders that give no credits any more.
_OVER = (OrderStatus.FAILED, OrderStatus.REFUNDED)


def make_token(keyring: Keyring, order_id: int) -> str:
    return _spelt(keyring.signer(_CLAIM_PURPOSE).digest(str(order_id).encode()))


def token_hmac(keyring: Keyring, token: str) -> bytes:
    """Return the HMAC of a token, which the database keeps."""
    return keyring.signer(_HMAC_PURPOSE).digest(token.encode())


def token_of(keyring: Keyring, order: PaymentOrder) -> str | None:
    """Return the order's token; ``None`` if the key that made it or its HMAC is gone."""
    digests = keyring.signer(_CLAIM_PURPOSE).digests(str(order.id).encode())
    ours = (
        each for each in map(_spelt, digests) if order.claim_token_hmac in _hmacs(keyring, each)
    )
    return next(ours, None)


def find(uow: UnitOfWork, token: str) -> PaymentOrder:
    """Return the order of a token; raises ``order.not_found``."""
    of_token = PaymentOrder.claim_token_hmac.in_(_hmacs(uow.settings.keyring, token))
    query = select(PaymentOrder).where(of_token)
    order = uow.session.scalar(query) if _TOKEN.match(token) else None
    if order is None:
        raise errors.ORDER_NOT_FOUND()
    return order


def claim(uow: UnitOfWork, user_id: int, token: str) -> PaymentOrder:
    """Give the order to this user, and its credits once it is paid. The first claim wins.

    Raises ``order.not_found``, ``order.claimed``, ``order.over``.
    """
    order = lock(uow, find(uow, token).id)
    if order.user_id is not None:
        raise errors.ORDER_CLAIMED()
    if order.status in _OVER:
        raise errors.ORDER_OVER(status=order.status)
    order.user_id, order.claimed_at = user_id, clock.now()
    apply_facts(uow, order, OrderVia.CLAIM)
    return order


def _hmacs(keyring: Keyring, token: str) -> list[bytes]:
    return keyring.signer(_HMAC_PURPOSE).digests(token.encode())


def _spelt(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
