"""Bulkheads that limit the threads per list or per caller, so that one list can't occupy all."""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, TypeVar

from api.limits.bulkhead import MAX_WAIT_SECONDS, KeyedBulkhead, wrap_in_transaction
from api.limits.bulkheads import HOST_LOOKUPS, LISTS, RECORDS, STORAGE
from core.errors import mailing, requests

T = TypeVar("T")


# A locked list must delay only changes of the same list.
CHANGES_BY_LIST = KeyedBulkhead(
    LISTS, LISTS.threads // 4, mailing.LIST_BUSY, wait_seconds=MAX_WAIT_SECONDS
)
# The uploads of one caller must leave threads for uploads of other callers.
UPLOADS_BY_CALLER = KeyedBulkhead(
    STORAGE, STORAGE.threads // 2, requests.SERVICE_BUSY, wait_seconds=10.0
)
# A caller's own DNS server may keep a thread waiting, so each caller has only one thread. The wait
# for the thread must be shorter than ``MAX_HOST_LOOKUP_SECONDS``, which includes the lookup.
HOST_LOOKUPS_BY_CALLER = KeyedBulkhead(HOST_LOOKUPS, 1, requests.SERVICE_BUSY, wait_seconds=1.0)
# A search may read half a million rows, and a count may take seconds.
SEARCHES_BY_CALLER = KeyedBulkhead(
    RECORDS, RECORDS.threads // 4, requests.SERVICE_BUSY, wait_seconds=MAX_WAIT_SECONDS
)


def threaded_by_list(handler: Callable[..., T]) -> Callable[..., Coroutine[Any, Any, T]]:
    """Decorate a route's handler so that it runs in the threads of the list ``list_id``."""

    @wraps(handler)
    async def in_thread(*, list_id: int, **kwargs: Any) -> T:
        return await CHANGES_BY_LIST.run(
            list_id, wrap_in_transaction(handler), list_id=list_id, **kwargs
        )

    return in_thread
