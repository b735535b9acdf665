"""Creates, authenticates and revokes API keys.

The database stores only the HMACs of API keys, so nobody can log in with a copy of the database.
Revoking an API key also revokes all keys that were created with it, because a thief could have
created them.
"""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from threading import Lock

from sqlalchemy import BindParameter, ColumnElement, Select, any_, bindparam, delete, or_, select

from core import clock
from core.errors import access as errors
from core.ids import AccountId, PersonId
from core.keyring import Keyring
from core.scopes import USER_SCOPES, Scope, expand_scopes, list_known_scopes
from core.secret_form import API_KEY
from models import ApiKey, ApiRequest, User
from services import paging
from services.access import sessions
from services.access.caller import Caller
from services.paging import UNPAGED, PageOfRows, PageRequest
from services.security_events import EventType, record_event
from storage.database import Database, Statement
from storage.unit_of_work import UnitOfWork, record_moment_once

# Store the last use of an API key at most once per minute, because frequent updates of one row are
# slow.
_LAST_USE_RESOLUTION = timedelta(minutes=1)
MAX_KEY_NAME_CHARACTERS = 200
_MAX_CACHED_CALLERS = 10_000
_NO_CALLER: tuple[None, datetime] = (None, datetime.min.replace(tzinfo=UTC))
_PURPOSE = "api-key"
# The HMACs of limited API keys have their own purpose, so that release 1.1.0, which doesn't know
# the limit, can't authenticate these keys.
_LIMITED_PURPOSE = "limited-api-key"


def create_key(
    uow: UnitOfWork,
    *,
    account_id: AccountId,
    name: str,
    scopes: Collection[Scope] | None = None,
    list_ids: Collection[int] | None = None,
    expires_at: datetime | None = None,
    maker_id: int | None = None,
    by_operator: bool = False,
) -> tuple[ApiKey, str]:
    """Create an API key, and return the key and its secret.

    Args:
        scopes: the scopes of the new key, or ``None`` for an unrestricted key.
        list_ids: the lists to which the scope ``delivery`` is limited, or ``None`` for no limit.
        maker_id: the id of the API key that authenticated the request, if any. The new key expires
            no later than that key.
    """
    name = name.strip()
    if not 1 <= len(name) <= MAX_KEY_NAME_CHARACTERS:
        raise errors.API_KEY_NAME(most=MAX_KEY_NAME_CHARACTERS)
    is_limited = list_ids is not None
    if is_limited and Scope.DELIVERY not in (scopes or ()):
        raise errors.API_KEY_LISTS()
    if expires_at is not None and expires_at <= clock.now():
        raise errors.API_KEY_EXPIRY()
    maker = None if maker_id is None else uow.session.get_one(ApiKey, maker_id)
    if maker is not None and maker.expires_at is not None:
        expires_at = min(expires_at or maker.expires_at, maker.expires_at)
    secret = API_KEY.generate()
    signer = uow.settings.keyring.signer(_LIMITED_PURPOSE if is_limited else _PURPOSE)
    key = ApiKey(
        user_id=account_id,
        name=name,
        secret_hmac=signer.digest(secret.encode()),
        last_four=secret[-4:],
        scopes=None if scopes is None else sorted(set(scopes)),
        list_ids=None if list_ids is None else sorted(set(list_ids)),
        by_operator=by_operator,
        expires_at=expires_at,
        maker_id=maker_id,
    )
    uow.session.add(key)
    uow.session.flush()
    record_event(uow, account_id, EventType.KEY_CREATED, key_id=key.id)
    return key, secret


class UsedKeys:
    """Tracks recently used API keys, and caches the caller that each key authenticates.

    ``write_uses`` stores in the database when each key was last used. A killed process loses the
    uses of the last two seconds.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._key_ids: set[int] = set()
        # A cache that maps the digest of an API key to the caller and the expiry time of the cache
        # entry.
        self._callers: dict[bytes, tuple[Caller, datetime]] = {}

    def find_caller(self, digest: bytes, now: datetime) -> Caller | None:
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


def find_cached_caller(uses: UsedKeys, keyring: Keyring, secret: str) -> Caller | None:
    """Return the cached caller of an API key, if any.

    The API key may have been revoked since its caller was cached. A later SQL statement of the
    request must therefore check that the API key isn't revoked.
    """
    # Optimization: cache that maps API keys to callers (decision 17).
    if not API_KEY.matches(secret):
        return None
    digest = keyring.signer(_PURPOSE).digest(secret.encode())
    return uses.find_caller(digest, clock.now())


def authenticate_key(database: Database, uses: UsedKeys, keyring: Keyring, secret: str) -> Caller:
    if not API_KEY.matches(secret):
        raise errors.AUTH_INVALID_API_KEY()
    now = clock.now()
    digests = [
        digest
        for purpose in (_PURPOSE, _LIMITED_PURPOSE)
        for digest in keyring.signer(purpose).digests(secret.encode())
    ]
    rows = database.rows(_ACTIVE_KEY, digests=digests, now=now)
    if not rows:
        raise errors.AUTH_INVALID_API_KEY()
    [(key_id, account_id, stored_scopes, last_used_at, list_ids, by_operator)] = rows
    if last_used_at is None or now - last_used_at >= _LAST_USE_RESOLUTION:
        uses.record_use(key_id)
    unrestricted = stored_scopes is None
    scopes = USER_SCOPES if unrestricted else expand_scopes(list_known_scopes(stored_scopes))
    caller = Caller(
        AccountId(account_id),
        # The owner counts as the maker of each API key.
        PersonId(account_id),
        scopes if list_ids is None else scopes - {Scope.DELIVERY},
        unrestricted=unrestricted,
        key_id=key_id,
        list_ids=frozenset(list_ids or ()),
        by_operator=by_operator,
    )
    uses.cache_caller(digests[0], caller, now)
    return caller


def list_keys(
    uow: UnitOfWork, account_id: AccountId, page_request: PageRequest = UNPAGED
) -> PageOfRows[ApiKey]:
    """Return a page of an account's API keys, newest first, including revoked keys."""
    query = paging.select_owner_page(select(ApiKey), ApiKey.user_id, account_id, page_request)
    return paging.read_page(uow, query, page_request)


def get_key(uow: UnitOfWork, account_id: AccountId, key_id: int) -> ApiKey:
    """Return an account's API key, which may be expired but not revoked."""
    key = uow.session.get(ApiKey, key_id)
    if key is None or key.user_id != account_id or key.revoked_at is not None:
        raise errors.API_KEY_NOT_FOUND()
    return key


def list_active_keys(uow: UnitOfWork, account_id: AccountId) -> list[ApiKey]:
    active_keys = select(ApiKey).where(*active_key_conditions(clock.now()))
    query = paging.order_newest_first(active_keys, ApiKey.user_id, account_id, ApiKey.id)
    return list(uow.session.scalars(query))


def revoke_key(uow: UnitOfWork, *, key_id: int, account_id: AccountId | None = None) -> int:
    """Revoke an API key and all keys that were created with it, directly or indirectly.

    The function also deletes the request logs of the revoked keys. Return 1 if this call revoked
    the API key, or 0 if the key was already revoked.
    """
    key = uow.session.get(ApiKey, key_id)
    if key is None or account_id not in (None, key.user_id):
        raise errors.API_KEY_NOT_FOUND()
    # Lock the account, so that no simultaneous request can create a new key with the revoked key.
    sessions.lock_account(uow, key.user_id)
    is_descendant = (ApiKey.id.in_(select_key_family(key_id)), ApiKey.id != key_id)
    revoked_descendants = record_moment_once(uow, ApiKey.revoked_at, *is_descendant)
    revoked_keys = record_moment_once(uow, ApiKey.revoked_at, ApiKey.id == key_id)
    _delete_requests(uow, ApiKey.id.in_(select_key_family(key_id)))
    if keys := revoked_keys + revoked_descendants:
        record_event(uow, key.user_id, EventType.KEY_ENDED, key_id=key_id, keys=keys)
    return revoked_keys


def select_key_family(key_id: int) -> Select[tuple[int]]:
    keys = select(ApiKey.id).where(ApiKey.id == key_id).cte(recursive=True)
    keys = keys.union_all(select(ApiKey.id).join(keys, ApiKey.maker_id == keys.c.id))
    return select(keys.c.id)


def revoke_keys(uow: UnitOfWork, account_id: AccountId, *, kept_key_ids: Collection[int]) -> None:
    """Revoke an account's API keys except ``kept_key_ids``.

    The function also deletes the request logs of the revoked keys.
    The caller must have locked the account's row.
    """
    conditions = (ApiKey.user_id == account_id, ApiKey.id.not_in(kept_key_ids))
    revoked_keys = record_moment_once(uow, ApiKey.revoked_at, *conditions)
    _delete_requests(uow, *conditions)
    if revoked_keys:
        record_event(uow, account_id, EventType.KEY_ENDED, keys=revoked_keys)


def _delete_requests(uow: UnitOfWork, *conditions: ColumnElement[bool]) -> None:
    key_ids = select(ApiKey.id).where(*conditions)
    uow.session.execute(delete(ApiRequest).where(ApiRequest.key_id.in_(key_ids)))


def is_active_key(uow: UnitOfWork, key_id: int) -> bool:
    query = select(ApiKey.id).where(ApiKey.id == key_id, *active_key_conditions(clock.now()))
    return uow.session.scalar(query) is not None


def active_key_conditions(
    now: datetime | BindParameter[datetime],
) -> tuple[ColumnElement[bool], ...]:
    is_unexpired = or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > now)
    return ApiKey.revoked_at.is_(None), is_unexpired


_ACTIVE_KEY = Statement(
    select(
        ApiKey.id,
        ApiKey.user_id,
        ApiKey.scopes,
        ApiKey.last_used_at,
        ApiKey.list_ids,
        ApiKey.by_operator,
    )
    .join(User, User.id == ApiKey.user_id)
    .where(
        ApiKey.secret_hmac == any_(bindparam("digests")),
        *active_key_conditions(bindparam("now")),
        User.erased_at.is_(None),
    )
)
_UPDATE_LAST_USES = sessions.build_last_use_update(ApiKey, ApiKey.id == any_(bindparam("key_ids")))
