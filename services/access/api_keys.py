"""API keys. Only an HMAC of a key is stored, so a copy of the database gives no access."""

from collections.abc import Iterable
from datetime import timedelta
from threading import Lock

from sqlalchemy import any_, bindparam, select, update

from core import clock
from core.keyring import Keyring
from core.refusals.access import API_KEY_NAME, API_KEY_NOT_FOUND, AUTH_INVALID_API_KEY
from core.scopes import EVERYTHING_OF_A_USER, Scope, effective
from core.secret_form import API_KEY
from models import ApiKey
from services.access.caller import Caller
from storage.database import Database, Statement
from storage.moments import note_once
from storage.unit_of_work import UnitOfWork

# The last use of a key is written at most this often, so that a busy key is no hot row.
_LAST_USE_RESOLUTION = timedelta(minutes=1)
MAX_KEY_NAME_CHARACTERS = 200
_PURPOSE = "api-key"


def create(
    uow: UnitOfWork,
    keyring: Keyring,
    *,
    user_id: int,
    name: str,
    scopes: Iterable[Scope] | None = None,
) -> tuple[ApiKey, str]:
    """A new key and its secret, which is never shown again. ``scopes=None``: unrestricted."""
    name = name.strip()
    if not 1 <= len(name) <= MAX_KEY_NAME_CHARACTERS:
        raise API_KEY_NAME(most=MAX_KEY_NAME_CHARACTERS)
    secret = API_KEY.generate()
    key = ApiKey(
        user_id=user_id,
        name=name,
        secret_hmac=keyring.signer(_PURPOSE).digest(secret.encode()),
        last_four=secret[-4:],
        scopes=None if scopes is None else sorted(set(scopes)),
    )
    uow.session.add(key)
    uow.session.flush()
    return key, secret


class LastUseBuffer:
    """The ids of keys that were used lately, until ``write`` stores the time for all of them.

    A process that is killed loses the uses of its last second.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._key_ids: set[int] = set()

    def note(self, key_id: int) -> None:
        with self._lock:
            self._key_ids.add(key_id)

    def write(self, database: Database) -> None:
        with self._lock:
            noted, self._key_ids = self._key_ids, set()
        if noted:
            database.rows(_NOTE_USES, key_ids=list(noted), now=clock.now())


def authenticate(database: Database, uses: LastUseBuffer, keyring: Keyring, secret: str) -> Caller:
    """The caller of a key; raises ``auth.invalid_credentials``."""
    if not API_KEY.matches(secret):
        raise AUTH_INVALID_API_KEY()
    found = database.rows(_CREDENTIAL, digests=keyring.signer(_PURPOSE).digests(secret.encode()))
    if not found:
        raise AUTH_INVALID_API_KEY()
    [(key_id, user_id, sent_scopes, last_used_at)] = found
    if last_used_at is None or clock.now() - last_used_at >= _LAST_USE_RESOLUTION:
        uses.note(key_id)
    unrestricted = sent_scopes is None
    scopes = EVERYTHING_OF_A_USER if unrestricted else effective(map(Scope, sent_scopes))
    return Caller(user_id, scopes, unrestricted=unrestricted, key_id=key_id)


def list_of(uow: UnitOfWork, user_id: int, *, limit: int = 1000) -> list[ApiKey]:
    """The user's keys, newest first, revoked ones too."""
    query = select(ApiKey).where(ApiKey.user_id == user_id).order_by(ApiKey.id.desc())
    return list(uow.session.scalars(query.limit(limit)))


def revoke(uow: UnitOfWork, *, key_id: int, user_id: int | None = None) -> int:
    """Revoke a key (of ``user_id``, where given): 1, or 0 when it was revoked already.

    Raises ``api_key.not_found``.
    """
    key = uow.session.get(ApiKey, key_id)
    if key is None or user_id not in (None, key.user_id):
        raise API_KEY_NOT_FOUND()
    return note_once(uow, ApiKey.revoked_at, ApiKey.id == key_id)


_CREDENTIAL = Statement(
    select(ApiKey.id, ApiKey.user_id, ApiKey.scopes, ApiKey.last_used_at).where(
        ApiKey.secret_hmac == any_(bindparam("digests")), ApiKey.revoked_at.is_(None)
    )
)
# Rows that another process updates are skipped: it writes the same minute.
_UNLOCKED = (
    select(ApiKey.id)
    .where(ApiKey.id == any_(bindparam("key_ids")))
    .with_for_update(skip_locked=True)
)
_NOTE_USES = Statement(
    update(ApiKey)
    .where(ApiKey.id.in_(_UNLOCKED.scalar_subquery()))
    .values(last_used_at=bindparam("now"))
)
