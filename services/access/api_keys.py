"""Creates, authenticates and revokes API keys.

The database stores only the HMACs of keys, so a copy of the database gives no access. A key can
create further keys. Revoking a key also revokes these keys, so revoking a stolen key is enough.
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
from services.paging import UNPAGED, PageOfRows, PageRequest
from services.security_events import EventType, record_event
from storage.database import Database, Statement
from storage.unit_of_work import UnitOfWork, record_moment_once

# The last use of a key is updated at most once per interval, to avoid a hot row.
_LAST_USE_RESOLUTION = timedelta(minutes=1)
MAX_KEY_NAME_CHARACTERS = 200
_MAX_CACHED_CALLERS = 10_000
_NO_CALLER: tuple[None, datetime] = (None, datetime.min.replace(tzinfo=UTC))
_PURPOSE = "api-key"


def create_key(
    uow: UnitOfWork,
    *,
    user_id: int,
    name: str,
    scopes: Iterable[Scope] | None = None,
    expires_at: datetime | None = None,
    maker_id: int | None = None,
) -> tuple[ApiKey, str]:
    """Create a key, and return the key and its secret, which is not stored.

    Raises ``api_key.name`` and ``api_key.expiry``.

    Args:
        scopes: the key's scopes. ``None`` creates an unrestricted key.
        maker_id: the key that creates this key, if any. The new key expires no later than its
            maker.
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
    record_event(uow, user_id, EventType.KEY_CREATED, key_id=key.id)
    return key, secret


class UsedKeys:
    """The API keys that this process has used recently.

    The object collects the times of last use until ``write_uses`` stores the times. A process that
    is killed loses the uses of its last second. The object also caches the keys' callers.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._key_ids: set[int] = set()
        # Maps the digest of a key to the key's caller and the time when the entry expires.
        self._callers: dict[bytes, tuple[Caller, datetime]] = {}

    def find_caller(self, digest: bytes, now: datetime) -> Caller | None:
        """Return the cached caller of a key, which may have been revoked since."""
        caller, expires_at = self._callers.get(digest, _NO_CALLER)
        return caller if now < expires_at else None

    def cache_caller(self, digest: bytes, caller: Caller, now: datetime) -> None:
        if len(self._callers) >= _MAX_CACHED_CALLERS:
            self._callers.clear()
        self._callers[digest] = (caller, now + _LAST_USE_RESOLUTION)

    def record_use(self, key_id: int) -> None:
        with self._lock:
            self._key_ids.add(key_id)

    def write_uses(self, database: Database) -> None:
        with self._lock:
            key_ids = self._key_ids
            self._key_ids = set()
        if key_ids:
            database.rows(_UPDATE_LAST_USES, key_ids=list(key_ids), now=clock.now())


def authenticate_key(
    database: Database, uses: UsedKeys, keyring: Keyring, secret: str, *, recent: bool = False
) -> Caller:
    """Return the caller of a key. Raises ``auth.invalid_credentials``.

    Args:
        recent: whether a cached caller is enough. The key may have been revoked since the caller
            was cached, so the request's SQL statement must check the key again.
    """
    if not API_KEY.matches(secret):
        raise errors.AUTH_INVALID_API_KEY()
    now = clock.now()
    digests = keyring.signer(_PURPOSE).digests(secret.encode())
    # Optimization: cache of the callers of API keys (decision 17).
    if recent and (caller := uses.find_caller(digests[0], now)):
        return caller
    rows = database.rows(_ACTIVE_KEY, digests=digests, now=now)
    if not rows:
        raise errors.AUTH_INVALID_API_KEY()
    [(key_id, user_id, stored_scopes, last_used_at)] = rows
    if last_used_at is None or now - last_used_at >= _LAST_USE_RESOLUTION:
        uses.record_use(key_id)
    unrestricted = stored_scopes is None
    scopes = USER_SCOPES if unrestricted else expand_scopes(map(Scope, stored_scopes))
    caller = Caller(user_id, scopes, unrestricted=unrestricted, key_id=key_id)
    uses.cache_caller(digests[0], caller, now)
    return caller


def list_keys(
    uow: UnitOfWork, user_id: int, page_request: PageRequest = UNPAGED
) -> PageOfRows[ApiKey]:
    """Return a page of a user's keys, newest first, including revoked keys.

    Raises ``cursor.invalid``.
    """
    query = paging.select_owner_page(select(ApiKey), ApiKey.user_id, user_id, page_request)
    return paging.read_page(uow, query, page_request)


def list_active_keys(uow: UnitOfWork, user_id: int) -> list[ApiKey]:
    """Return a user's keys that are neither revoked nor expired, newest first."""
    active_keys = select(ApiKey).where(*active_key_conditions(clock.now()))
    query = paging.order_newest_first(active_keys, ApiKey.user_id, user_id, ApiKey.id)
    return list(uow.session.scalars(query))


def revoke_key(uow: UnitOfWork, *, key_id: int, user_id: int | None = None) -> int:
    """Revoke a key and the keys that it created. Return 1, or 0 for a revoked key.

    With a ``user_id``, the key must belong to this user. Raises ``api_key.not_found``.
    """
    key = uow.session.get(ApiKey, key_id)
    if key is None or user_id not in (None, key.user_id):
        raise errors.API_KEY_NOT_FOUND()
    # Lock the person first, so that the key can't create another key at the same time.
    sessions.lock_person(uow, key.user_id)
    is_descendant = (ApiKey.id.in_(select_key_family(key_id)), ApiKey.id != key_id)
    revoked_descendants = record_moment_once(uow, ApiKey.revoked_at, *is_descendant)
    revoked_keys = record_moment_once(uow, ApiKey.revoked_at, ApiKey.id == key_id)
    if keys := revoked_keys + revoked_descendants:
        record_event(uow, key.user_id, EventType.KEY_ENDED, key_id=key_id, keys=keys)
    return revoked_keys


def select_key_family(key_id: int) -> Select[tuple[int]]:
    """Build the query for the ids of a key and of all keys that descend from the key."""
    keys = select(ApiKey.id).where(ApiKey.id == key_id).cte(recursive=True)
    keys = keys.union_all(select(ApiKey.id).join(keys, ApiKey.maker_id == keys.c.id))
    return select(keys.c.id)


def revoke_keys(uow: UnitOfWork, user_id: int, *, kept_key_ids: Collection[int]) -> None:
    """Revoke a person's keys except ``kept_key_ids``. The caller has locked the person."""
    conditions = (ApiKey.user_id == user_id, ApiKey.id.not_in(kept_key_ids))
    revoked_keys = record_moment_once(uow, ApiKey.revoked_at, *conditions)
    if revoked_keys:
        record_event(uow, user_id, EventType.KEY_ENDED, keys=revoked_keys)


def is_active_key(uow: UnitOfWork, key_id: int) -> bool:
    """Return whether a key is neither revoked nor expired."""
    query = select(ApiKey.id).where(ApiKey.id == key_id, *active_key_conditions(clock.now()))
    return uow.session.scalar(query) is not None


def active_key_conditions(
    now: datetime | BindParameter[datetime],
) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions that a key is neither revoked nor expired."""
    is_unexpired = or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > now)
    return ApiKey.revoked_at.is_(None), is_unexpired


_ACTIVE_KEY = Statement(
    select(ApiKey.id, ApiKey.user_id, ApiKey.scopes, ApiKey.last_used_at)
    .join(User, User.id == ApiKey.user_id)
    .where(
        ApiKey.secret_hmac == any_(bindparam("digests")),
        *active_key_conditions(bindparam("now")),
        User.erased_at.is_(None),
    )
)
_UPDATE_LAST_USES = sessions.build_last_use_update(ApiKey, ApiKey.id == any_(bindparam("key_ids")))
