"""The tokens with which users claim orders that have no owner.

A token has 256 bits and is derived from the order's id under a key that only our processes have.
The same response can therefore be sent again although no token is stored. The database stores the
HMAC of the token.
"""

import base64
import re

from sqlalchemy import select

from core import clock
from core.errors import money as errors
from core.keyring import Keyring
from models import OrderStatus, OrderVia, PaymentOrder
from services.credits.settlement import apply_facts, lock_order
from storage.unit_of_work import UnitOfWork

_CLAIM_PURPOSE = "topup-claim"
_HMAC_PURPOSE = "topup-claim-hmac"
_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}\Z")
# Orders in these statuses can't give credits again.
_OVER = (OrderStatus.FAILED, OrderStatus.REFUNDED)


def make_token(keyring: Keyring, order_id: int) -> str:
    return _token_text(keyring.signer(_CLAIM_PURPOSE).digest(str(order_id).encode()))


def token_hmac(keyring: Keyring, token: str) -> bytes:
    """Return the HMAC of a token that the database stores."""
    return keyring.signer(_HMAC_PURPOSE).digest(token.encode())


def token_of(keyring: Keyring, order: PaymentOrder) -> str | None:
    """Return the order's token, or ``None`` if the key of the token or its HMAC is gone."""
    digests = keyring.signer(_CLAIM_PURPOSE).digests(str(order.id).encode())
    for token in map(_token_text, digests):
        if order.claim_token_hmac in _hmacs(keyring, token):
            return token
    return None


def find_order(uow: UnitOfWork, token: str) -> PaymentOrder:
    """Return the order of a token. Raises ``order.not_found``."""
    of_token = PaymentOrder.claim_token_hmac.in_(_hmacs(uow.settings.keyring, token))
    query = select(PaymentOrder).where(of_token)
    order = uow.session.scalar(query) if _TOKEN.match(token) else None
    if order is None:
        raise errors.ORDER_NOT_FOUND()
    return order


def claim_order(uow: UnitOfWork, user_id: int, token: str) -> PaymentOrder:
    """Assign the order to this user, who gets the credits when it is paid. The first claim wins.

    Raises ``order.not_found``, ``order.claimed``, ``order.over``.
    """
    order = lock_order(uow, find_order(uow, token).id)
    if order.user_id is not None:
        raise errors.ORDER_CLAIMED()
    if order.status in _OVER:
        raise errors.ORDER_OVER(status=order.status)
    order.user_id = user_id
    order.claimed_at = clock.now()
    apply_facts(uow, order, OrderVia.CLAIM)
    return order


def _hmacs(keyring: Keyring, token: str) -> list[bytes]:
    return keyring.signer(_HMAC_PURPOSE).digests(token.encode())


def _token_text(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
