"""Authorization codes. A code is valid for a minute and for one exchange, even a failed one."""

from collections.abc import Collection
from datetime import timedelta

from sqlalchemy import func, select

from core.keyring import Keyring
from core.scopes import Scope
from core.secret_form import AUTHORIZATION_CODE
from models import OAuthCode, OAuthGrant
from services.oauth import grants, tokens
from storage.unit_of_work import UnitOfWork

CODE_LIFETIME = timedelta(seconds=60)
_PURPOSE = "oauth-code"


def store_code(
    uow: UnitOfWork,
    keyring: Keyring,
    secret: str,
    grant: OAuthGrant,
    *,
    scopes: Collection[Scope],
    redirect_uri: str,
    challenge: str,
) -> None:
    """Store a new code of the grant, by the HMAC of its secret."""
    uow.session.add(
        OAuthCode(
            grant_id=grant.id,
            secret_hmac=keyring.signer(_PURPOSE).digest(secret.encode()),
            redirect_uri=redirect_uri,
            scopes=sorted(scopes),
            challenge=challenge,
            expires_at=func.now() + CODE_LIFETIME,
        )
    )


def redeem(uow: UnitOfWork, keyring: Keyring, secret: str, *, client_id: str) -> OAuthCode | None:
    """Use up the client's code; ``None`` when it is not valid.

    A code that is used a second time counts as stolen, so the tokens that it gave are revoked.
    """
    if not AUTHORIZATION_CODE.matches(secret):
        return None
    query = (
        select(OAuthCode)
        .join(OAuthGrant, OAuthGrant.id == OAuthCode.grant_id)
        .where(
            OAuthCode.secret_hmac.in_(keyring.signer(_PURPOSE).digests(secret.encode())),
            OAuthGrant.client_id == client_id,
        )
    )
    code = uow.session.scalar(query)
    if code is None or grants.lock_grant(uow, code.grant_id) is None:
        return None
    uow.session.refresh(code)
    if code.used_at is not None:
        tokens.revoke_family(uow, code.id)
        return None
    # By the database's clock, as the expiry was set.
    code.used_at = uow.session.scalar(select(func.clock_timestamp()))
    uow.session.flush()
    return code if code.used_at is not None and code.used_at < code.expires_at else None
