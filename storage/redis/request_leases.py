"""Keeps the leases of request-only work while a process works at it."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from storage.redis.request_work import RENEW_EVERY_SECONDS, RequestLease


class RequestLeases:
    """Renews the leases of the requests that this process works at.

    While a lease holds, equal requests wait for this process's result instead of starting a run of
    their own. The leases end with the process, so that no request waits for a process that is gone.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, tuple[RequestLease, float]] = {}
        self._keeper: threading.Thread | None = None

    @contextmanager
    def kept(self, lease: RequestLease, *, until: float) -> Iterator[None]:
        """Keep the lease while the block lasts, at most until then by the monotonic clock."""
        with self._lock:
            self._held[lease.worker] = lease, until
            if self._keeper is None:
                self._keeper = threading.Thread(target=self._keep, daemon=True)
                self._keeper.start()
        try:
            yield
        finally:
            with self._lock:
                del self._held[lease.worker]

    def _keep(self) -> None:
        while True:
            time.sleep(RENEW_EVERY_SECONDS)
            with self._lock:
                held = list(self._held.values())
            for lease, until in held:
                if time.monotonic() < until:
                    lease.renew()
