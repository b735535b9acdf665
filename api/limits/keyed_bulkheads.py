"""Limits the threads that one list or one caller can occupy, so that threads remain for others."""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, TypeVar

from api.limits.bulkhead import MAX_WAIT_SECONDS, KeyedBulkhead, wrap_in_transaction
from api.limits.bulkheads import HOST_LOOKUPS, LISTS, RECORDS, STORAGE
from core.errors import mailing, requests

T = TypeVar("T")


# Limit the threads per list, so that a locked list delays only changes of the same list.
CHANGES_BY_LIST = KeyedBulkhead(
    LISTS, LISTS.threads // 4, mailing.LIST_BUSY, wait_seconds=MAX_WAIT_SECONDS
)
# Limit the threads per caller, so that one caller's uploads leave threads for all other callers.
UPLOADS_BY_CALLER = KeyedBulkhead(
    STORAGE, STORAGE.threads // 2, requests.SERVICE_BUSY, wait_seconds=10.0
)
# Each caller has only one thread for DNS lookups, because a caller's own DNS server may keep a
# thread waiting. The wait for a thread must be shorter than ``MAX_HOST_LOOKUP_SECONDS``, which
# limits the wait and the DNS lookup together.
HOST_LOOKUPS_BY_CALLER = KeyedBulkhead(HOST_LOOKUPS, 1, requests.SERVICE_BUSY, wait_seconds=1.0)
# Limit the threads per caller, because a search for members may read half a million rows and take
# seconds.
SEARCHES_BY_CALLER = KeyedBulkhead(
    RECORDS, RECORDS.threads // 4, requests.SERVICE_BUSY, wait_seconds=MAX_WAIT_SECONDS
)


def threaded_by_list(handler: Callable[..., T]) -> Callable[..., Coroutine[Any, Any, T]]:
    """Decorate a route's handler, so that the handlers for one list occupy only a few threads.

    The handler's parameter ``list_id`` identifies the list.
    """

    @wraps(handler)
    async def in_thread(*, list_id: int, **kwargs: Any) -> T:
        return await CHANGES_BY_LIST.run(
            list_id, wrap_in_transaction(handler), list_id=list_id, **kwargs
        )

    return in_thread
