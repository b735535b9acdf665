"""What a trouble is: a fault, the alert that is to say so, and what callers do meanwhile."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field

import httpx2

from tests.faults.alerts.watched_site import Site
from tests.faults.held_rows import uncommitted
from tests.faults.proxy import Proxy

_PAUSE_SECONDS = 0.3

Call = Callable[[Site, httpx2.Client], object]
Begin = Callable[[Site], AbstractContextManager[None]]


@dataclass(frozen=True)
class Trouble:
    """Attributes:
    begin: brings it about while the block lasts.
    alert: which is to fire meanwhile, with these labels, and to clear afterwards.
    calls: what callers do during it and after it, again and again. What becomes of a call is no
        concern of these tests.
    callers: how many of them do it.
    """

    name: str
    begin: Begin
    alert: str
    labels: Mapping[str, str] = field(default_factory=dict)
    calls: Call | None = None
    callers: int = 3


def of_proxy(name: str, begin: Callable[[Proxy], None]) -> Begin:
    @contextmanager
    def during(site: Site) -> Iterator[None]:
        begin(site.proxies[name])
        try:
            yield
        finally:
            site.proxies[name].resume()

    return during


def without_table(name: str) -> Begin:
    """As after a migration that went wrong."""

    @contextmanager
    def during(site: Site) -> Iterator[None]:
        site.stack.query(f"ALTER TABLE {name} RENAME TO {name}_elsewhere")
        try:
            yield
        finally:
            site.stack.query(f"ALTER TABLE {name}_elsewhere RENAME TO {name}")

    return during


def locking(statement: str) -> Begin:
    return lambda site: uncommitted(site.stack, statement)


@contextmanager
def called(site: Site, calls: Call | None, callers: int = 3) -> Iterator[None]:
    """Somebody makes these calls, again and again, while the block lasts."""
    over = threading.Event()

    def call(make: Call) -> None:
        with site.client() as client:
            while not over.wait(_PAUSE_SECONDS):
                with suppress(httpx2.HTTPError):
                    make(site, client)

    threads = [
        threading.Thread(target=call, args=(calls,), daemon=True)
        for _ in range(callers if calls else 0)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()
