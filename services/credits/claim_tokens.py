"""Creates and checks the tokens for claiming orders without an owner.

A claim token has 256 bits, and the database stores only its HMAC. A claim token is derived from the
order's id and a secret key, so that a repeated request returns the same token.
"""

import base64
import re

from sqlalchemy import select

from core import clock
from core.errors import money as errors
from core.ids import AccountId
from core.keyring import Keyring
from models import OrderStatus, OrderVia, PaymentOrder
from services.credits.settlement import apply_facts, lock_order
from storage.unit_of_work import UnitOfWork

_CLAIM_PURPOSE = "topup-claim"
_HMAC_PURPOSE = "topup-claim-hmac"
_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}\Z")
# Failed and refunded orders can't be claimed, because their payers get no credits.
_FINAL_STATUSES = (OrderStatus.FAILED, OrderStatus.REFUNDED)


def derive_token(keyring: Keyring, order_id: int) -> str:
    return _token_text(keyring.signer(_CLAIM_PURPOSE).digest(str(order_id).encode()))


def token_hmac(keyring: Keyring, token: str) -> bytes:
    return keyring.signer(_HMAC_PURPOSE).digest(token.encode())


def restore_token(keyring: Keyring, order: PaymentOrder) -> str | None:
    """Return an order's claim token, or ``None`` if its secret key is no longer configured."""
    digests = keyring.signer(_CLAIM_PURPOSE).digests(str(order.id).encode())
    for token in map(_token_text, digests):
        if order.claim_token_hmac in _hmacs(keyring, token):
            return token
    return None


def find_order(uow: UnitOfWork, token: str) -> PaymentOrder:
    has_token = PaymentOrder.claim_token_hmac.in_(_hmacs(uow.settings.keyring, token))
    query = select(PaymentOrder).where(has_token)
    order = uow.session.scalar(query) if _TOKEN.match(token) else None
    if order is None:
        raise errors.ORDER_NOT_FOUND()
    return order


def claim_order(uow: UnitOfWork, account_id: AccountId, token: str) -> PaymentOrder:
    order = lock_order(uow, find_order(uow, token).id)
    if order.user_id is not None:
        raise errors.ORDER_CLAIMED()
    if order.status in _FINAL_STATUSES:
        raise errors.ORDER_OVER(status=order.status)
    order.user_id = account_id
    order.claimed_at = clock.now()
    apply_facts(uow, order, OrderVia.CLAIM)
    return order


def _hmacs(keyring: Keyring, token: str) -> list[bytes]:
    return keyring.signer(_HMAC_PURPOSE).digests(token.encode())


def _token_text(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")
