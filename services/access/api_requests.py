"""Keeps a log of the latest requests with each API key, so that owners can debug their programs.

An API process writes new requests to the database in batches, so that no response waits for the
log. A killed process loses the requests of the last two seconds. A request with an unknown, expired
or revoked API key isn't recorded.
"""

import random
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from threading import Lock

import orjson
import psycopg2
from sqlalchemy import select
from sqlalchemy.orm import aliased

from core.counters.store_metrics import UNRECORDED_REQUESTS
from core.ids import MAX_ID, AccountId
from models import ApiRequest
from services import paging
from services.access import api_keys
from services.paging import PageOfRows, PageRequest
from storage.database import Database, Statement
from storage.unit_of_work import UnitOfWork

# The number of latest requests that an owner can see per API key.
MAX_REQUESTS_PER_KEY = 1_000
# The maximum number of requests that a process keeps in memory. While the database is unavailable,
# the process drops new requests above this limit.
MAX_UNWRITTEN_REQUESTS = 10_000
# The maximum number of API keys for which a process remembers when to delete old requests.
_MAX_TRIMMED_KEYS = 10_000
STATUS_PATTERN = r"^[1-5](?:[0-9]{2}|xx)$"
_NO_REQUESTS: deque["NewRequest"] = deque()

_INSERT_REQUESTS = Statement("""
    INSERT INTO api_requests (
        key_id, occurred_at, id, method, route, status, code, request_id, milliseconds
    )
    SELECT new.key_id, to_timestamp(new.started_at), new.id, new.method, new.route, new.status,
        new.code, new.request_id, new.milliseconds
    FROM json_to_recordset(CAST(:requests AS json)) AS new (
        key_id bigint, started_at double precision, id bigint, method text, route text,
        status bigint, code text, request_id text, milliseconds bigint
    )
    -- Skip requests of API keys that have been revoked or deleted.
    JOIN api_keys ON api_keys.id = new.key_id AND api_keys.revoked_at IS NULL
    ON CONFLICT DO NOTHING
""")
# Deletes an API key's requests between ``:since`` and the oldest request that is kept. Earlier runs
# of the query have deleted the rows before ``:since``. Scanning these deleted rows again would be
# slow, because they stay in the index while another transaction has an old snapshot.
_DELETE_OLD_REQUESTS = Statement("""
    WITH oldest_kept AS MATERIALIZED (
        SELECT occurred_at FROM api_requests WHERE key_id = :key_id
        ORDER BY occurred_at DESC, id DESC OFFSET :most - 1 LIMIT 1
    ), old_places AS MATERIALIZED (
        SELECT ctid FROM api_requests
        WHERE key_id = :key_id AND occurred_at >= to_timestamp(:since)
            AND occurred_at < (SELECT occurred_at FROM oldest_kept)
        LIMIT 10000 FOR UPDATE SKIP LOCKED
    ), deleted AS (
        DELETE FROM api_requests WHERE ctid = ANY (ARRAY(SELECT ctid FROM old_places))
    )
    SELECT CAST(extract(epoch FROM occurred_at) AS double precision) FROM oldest_kept
""")


@dataclass(slots=True)
class NewRequest:
    """A request that isn't in the database yet. ``started_at`` is in seconds since 1970."""

    key_id: int
    started_at: float
    method: str
    route: str
    status: int
    code: str | None
    request_id: str
    milliseconds: int
    id: int = field(default_factory=partial(random.randint, 1, MAX_ID))


@dataclass
class _Trim:
    """Counts the new requests with an API key, to decide when to delete the key's old requests.

    Attributes:
        written: the number of requests that this process has written since the last deletion.
        since: the start of the oldest request that the next deletion may delete, in seconds since
            1970. None of the ``written`` requests started earlier, even if the clock of the process
            is slow.
    """

    written: int = 0
    since: float = 0.0


class RequestLog:
    def __init__(self) -> None:
        self._lock = Lock()
        self._requests_by_key: dict[int, deque[NewRequest]] = {}
        # The number of requests in memory, including the batch that is being written.
        self._count = 0
        self._trims: dict[int, _Trim] = {}

    def record(self, request: NewRequest) -> None:
        """Keep a request in memory until ``write_requests`` writes it to the database.

        At most ``MAX_REQUESTS_PER_KEY`` requests per API key are kept, because older requests would
        soon be deleted from the database.
        """
        with self._lock:
            requests = self._requests_by_key.get(request.key_id, _NO_REQUESTS)
            if len(requests) < MAX_REQUESTS_PER_KEY:
                if self._count >= MAX_UNWRITTEN_REQUESTS:
                    UNRECORDED_REQUESTS.inc()
                    return
                self._count += 1
            if requests is _NO_REQUESTS:
                requests = deque(maxlen=MAX_REQUESTS_PER_KEY)
                self._requests_by_key[request.key_id] = requests
            requests.append(request)

    def write_requests(self, database: Database) -> None:
        """Write all requests in memory to the database, and delete old requests of busy API keys.

        If the database is unavailable, the requests stay in memory until the next call.
        """
        with self._lock:
            batch = self._requests_by_key
            self._requests_by_key = {}
        count = sum(map(len, batch.values()))
        if not count:
            return
        try:
            rows = orjson.dumps([*chain.from_iterable(batch.values())]).decode()
            database.rows(_INSERT_REQUESTS, requests=rows)
        except psycopg2.Error:
            self._put_back(batch)
            raise
        with self._lock:
            self._count -= count
        for key_id, requests in batch.items():
            self._trim_key(database, key_id, requests)

    def _put_back(self, batch: Mapping[int, deque[NewRequest]]) -> None:
        with self._lock:
            for key_id, requests in batch.items():
                requests.extend(self._requests_by_key.get(key_id, ()))
                self._requests_by_key[key_id] = requests
            self._count = sum(map(len, self._requests_by_key.values()))

    def _trim_key(self, database: Database, key_id: int, written: Collection[NewRequest]) -> None:
        if key_id not in self._trims and len(self._trims) >= _MAX_TRIMMED_KEYS:
            self._trims.clear()
        trim = self._trims.setdefault(key_id, _Trim())
        trim.written += len(written)
        trim.since = min(trim.since, *(request.started_at for request in written))
        if trim.written < MAX_REQUESTS_PER_KEY:
            return
        rows = database.rows(
            _DELETE_OLD_REQUESTS, key_id=key_id, since=trim.since, most=MAX_REQUESTS_PER_KEY
        )
        self._trims[key_id] = _Trim(since=rows[0][0] if rows else trim.since)


def list_requests(
    uow: UnitOfWork,
    account_id: AccountId,
    key_id: int,
    page_request: PageRequest,
    *,
    status: str | None = None,
) -> PageOfRows[ApiRequest]:
    """Return a page of the latest requests with a user's API key, newest first.

    ``status`` is an HTTP status such as ``429``, a class of statuses such as ``4xx``, or ``None``
    for all requests.
    """
    api_keys.get_key(uow, account_id, key_id)
    latest = select(ApiRequest).where(ApiRequest.key_id == key_id)
    latest = latest.order_by(ApiRequest.occurred_at.desc(), ApiRequest.id.desc())
    row = aliased(ApiRequest, latest.limit(MAX_REQUESTS_PER_KEY).subquery())
    query = select(row)
    if status is not None:
        query = query.where(
            row.status.between(int(status.replace("x", "0")), int(status.replace("x", "9")))
        )
    query = paging.select_page_by_moment(query, row.occurred_at, row.id, page_request)
    return paging.cut_page(
        uow.session.scalars(query).all(),
        page_request.limit,
        lambda request: paging.build_moment_cursor(request.occurred_at, request.id),
    )
