"""API keys. Only an HMAC of a key is stored, so a copy of the database gives no access.

A key that another key made ends with it, so that revoking a stolen key is enough.
"""

from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from threading import Lock

from sqlalchemy import BindParameter, ColumnElement, Select, any_, bindparam, or_, select

from core import clock
from core.errors import access as errors
from core.keyring import Keyring
from core.scopes import USER_SCOPES, Scope, expand_scopes
from core.secret_form import API_KEY
from models import ApiKey, User
from services import paging
from services.access import sessions
from services.access.caller import Caller
from services.paging import WHOLE, PageOfRows, PageRequest
from services.security_events import EventType, record
from storage.database import Database, Statement
from storage.unit_of_work import UnitOfWork, record_moment_once

# The last use of a key is written at most this often, so that a busy key is no hot row.
_LAST_USE_RESOLUTION = timedelta(minutes=1)
MAX_KEY_NAME_CHARACTERS = 200
_MAX_RECENT_CALLERS = 10_000
_NOBODY: tuple[None, datetime] = None, datetime.min.replace(tzinfo=UTC)
_PURPOSE = "api-key"


def create(
    uow: UnitOfWork,
    *,
    user_id: int,
    name: str,
    scopes: Iterable[Scope] | None = None,
    expires_at: datetime | None = None,
    maker_id: int | None = None,
) -> tuple[ApiKey, str]:
    """A new key and its secret, which is never shown again. ``scopes=None``: unrestricted.

    A key of the key ``maker_id`` expires with it at the latest.
    """
    name = name.strip()
    if not 1 <= len(name) <= MAX_KEY_NAME_CHARACTERS:
        raise errors.API_KEY_NAME(most=MAX_KEY_NAME_CHARACTERS)
    if expires_at is not None and expires_at <= clock.now():
        raise errors.API_KEY_EXPIRY()
    maker = None if maker_id is None else uow.session.get_one(ApiKey, maker_id)
    if maker is not None and maker.expires_at is not None:
        expires_at = min(expires_at or maker.expires_at, maker.expires_at)
    secret = API_KEY.generate()
    key = ApiKey(
        user_id=user_id,
        name=name,
        secret_hmac=uow.settings.keyring.signer(_PURPOSE).digest(secret.encode()),
        last_four=secret[-4:],
        scopes=None if scopes is None else sorted(set(scopes)),
        expires_at=expires_at,
        maker_id=maker_id,
    )
    uow.session.add(key)
    uow.session.flush()
    record(uow, user_id, EventType.KEY_CREATED, key_id=key.id)
    return key, secret


class UsedKeys:
    """The keys that were used in the last minute.

    ``write`` stores the time for those whose use was noted. A process that is killed loses the
    uses of its last second. ``recent`` has their callers.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._key_ids: set[int] = set()
        # By the key's digest, each with the time until which it is kept.
        self._callers: dict[bytes, tuple[Caller, datetime]] = {}

    def recent(self, digest: bytes, now: datetime) -> Caller | None:
        """Return the caller that a key had within the last minute; it may have ended since."""
        caller, until = self._callers.get(digest, _NOBODY)
        return caller if now < until else None

    def keep(self, digest: bytes, caller: Caller, now: datetime) -> None:
        if len(self._callers) >= _MAX_RECENT_CALLERS:
            self._callers.clear()
        self._callers[digest] = caller, now + _LAST_USE_RESOLUTION

    def note(self, key_id: int) -> None:
        with self._lock:
            self._key_ids.add(key_id)

    def write(self, database: Database) -> None:
        with self._lock:
            noted = self._key_ids
            self._key_ids = set()
        if noted:
            database.rows(_NOTE_USES, key_ids=list(noted), now=clock.now())


def authenticate(
    database: Database, uses: UsedKeys, keyring: Keyring, secret: str, *, recent: bool = False
) -> Caller:
    """Return the caller of a key; raises ``auth.invalid_credentials``.

    Args:
        recent: whether the result of an earlier check is enough if it is less than a minute old.
            The key may have been revoked since the earlier check, so the SQL statement of the
            request must check the key again.
    """
    if not API_KEY.matches(secret):
        raise errors.AUTH_INVALID_API_KEY()
    now = clock.now()
    digests = keyring.signer(_PURPOSE).digests(secret.encode())
    # Optimization: cache of the callers of API keys (decision 17).
    if recent and (caller := uses.recent(digests[0], now)):
        return caller
    rows = database.rows(_CREDENTIAL, digests=digests, now=now)
    if not rows:
        raise errors.AUTH_INVALID_API_KEY()
    [(key_id, user_id, sent_scopes, last_used_at)] = rows
    if last_used_at is None or now - last_used_at >= _LAST_USE_RESOLUTION:
        uses.note(key_id)
    unrestricted = sent_scopes is None
    scopes = USER_SCOPES if unrestricted else expand_scopes(map(Scope, sent_scopes))
    caller = Caller(user_id, scopes, unrestricted=unrestricted, key_id=key_id)
    uses.keep(digests[0], caller, now)
    return caller


def list_of(uow: UnitOfWork, user_id: int, wanted: PageRequest = WHOLE) -> PageOfRows[ApiKey]:
    """The user's keys, newest first, revoked ones too. Raises ``cursor.invalid``."""
    query = paging.of_owner(select(ApiKey), ApiKey.user_id, user_id, wanted)
    return paging.read(uow, query, wanted)


def live_of(uow: UnitOfWork, user_id: int) -> list[ApiKey]:
    """The user's keys that open something, newest first."""
    live = select(ApiKey).where(*is_live(clock.now()))
    query = paging.newest_first(live, ApiKey.user_id, user_id, ApiKey.id)
    return list(uow.session.scalars(query))


def revoke(uow: UnitOfWork, *, key_id: int, user_id: int | None = None) -> int:
    """Revoke a key with those that it made: 1, or 0 if it was. Raises ``api_key.not_found``."""
    key = uow.session.get(ApiKey, key_id)
    if key is None or user_id not in (None, key.user_id):
        raise errors.API_KEY_NOT_FOUND()
    # The lock comes first: the key makes no other one meanwhile.
    sessions.lock_person(uow, key.user_id)
    others = ApiKey.id.in_(family(key_id)), ApiKey.id != key_id
    made_by_it = record_moment_once(uow, ApiKey.revoked_at, *others)
    revoked = record_moment_once(uow, ApiKey.revoked_at, ApiKey.id == key_id)
    if keys := revoked + made_by_it:
        record(uow, key.user_id, EventType.KEY_ENDED, key_id=key_id, keys=keys)
    return revoked


def family(key_id: int) -> Select[tuple[int]]:
    """Select the ids of a key and of the keys that it made, and that these made."""
    keys = select(ApiKey.id).where(ApiKey.id == key_id).cte(recursive=True)
    keys = keys.union_all(select(ApiKey.id).join(keys, ApiKey.maker_id == keys.c.id))
    return select(keys.c.id)


def revoke_all(uow: UnitOfWork, user_id: int, *, but: Collection[int]) -> None:
    """Revoke the keys of a person whom the caller has locked, except those that they keep."""
    others = (ApiKey.user_id == user_id, ApiKey.id.not_in(but))
    revoked = record_moment_once(uow, ApiKey.revoked_at, *others)
    if revoked:
        record(uow, user_id, EventType.KEY_ENDED, keys=revoked)


def is_open(uow: UnitOfWork, key_id: int) -> bool:
    """Tell whether the key is neither revoked nor expired."""
    live = select(ApiKey.id).where(ApiKey.id == key_id, *is_live(clock.now()))
    return uow.session.scalar(live) is not None


def is_live(now: datetime | BindParameter[datetime]) -> tuple[ColumnElement[bool], ...]:
    not_expired = or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > now)
    return ApiKey.revoked_at.is_(None), not_expired


_CREDENTIAL = Statement(
    select(ApiKey.id, ApiKey.user_id, ApiKey.scopes, ApiKey.last_used_at)
    .join(User, User.id == ApiKey.user_id)
    .where(
        ApiKey.secret_hmac == any_(bindparam("digests")),
        *is_live(bindparam("now")),
        User.erased_at.is_(None),
    )
)
_NOTE_USES = sessions.noting_use(ApiKey, ApiKey.id == any_(bindparam("key_ids")))
