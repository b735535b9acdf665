"""Limits how many threads a list or caller can occupy, so that threads remain for others."""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, TypeVar

from api.limits.bulkhead import MAX_WAIT_SECONDS, KeyedBulkhead, wrap_in_transaction
from api.limits.bulkheads import BODIES, HOST_LOOKUPS, LISTS, RECORDS, REPORTS, STORAGE
from core.errors import mailing, requests, senders

T = TypeVar("T")


# Limit the threads per mailing list, so that a locked list delays only its own changes.
CHANGES_BY_LIST = KeyedBulkhead(
    LISTS, LISTS.threads // 4, mailing.LIST_BUSY, wait_seconds=MAX_WAIT_SECONDS
)
# Limit the threads per caller, so that uploads of one caller leave threads for other callers.
UPLOADS_BY_CALLER = KeyedBulkhead(
    STORAGE, STORAGE.threads // 2, requests.SERVICE_BUSY, wait_seconds=10.0
)
# Parse the large bodies of a caller one after the other, so that the bodies of other callers don't
# wait for all of them.
BODIES_BY_CALLER = KeyedBulkhead(BODIES, 1, requests.BODY_TOO_MANY_UNFINISHED, wait_seconds=10.0)
# Each caller gets only one thread for DNS lookups, because a hostile caller's DNS server can block
# a thread by not answering. ``wait_seconds`` must be below ``MAX_HOST_LOOKUP_SECONDS``, which
# limits the total time of waiting and the DNS lookup.
HOST_LOOKUPS_BY_CALLER = KeyedBulkhead(HOST_LOOKUPS, 1, requests.SERVICE_BUSY, wait_seconds=1.0)
# Limit the threads per caller, because a search may take seconds to read half a million members.
SEARCHES_BY_CALLER = KeyedBulkhead(
    RECORDS, RECORDS.threads // 4, requests.SERVICE_BUSY, wait_seconds=MAX_WAIT_SECONDS
)
# While an IP address exceeds its rate limit, verify its senders' requests one after the other.
# Requests with a valid signature may come from the same address, and must not be lost.
PROOFS_BY_ADDRESS = KeyedBulkhead(REPORTS, 1, senders.SENDER_BUSY, wait_seconds=5.0)


def threaded_by_list(handler: Callable[..., T]) -> Callable[..., Coroutine[Any, Any, T]]:
    @wraps(handler)
    async def in_thread(*, list_id: int, **kwargs: Any) -> T:
        return await CHANGES_BY_LIST.run(
            list_id, wrap_in_transaction(handler), list_id=list_id, **kwargs
        )

    return in_thread
