"""What a trouble is: a fault, the alert that is to say so, and what callers do meanwhile."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

import httpx2

from devstack.harness.proxy import Proxy
from tests.support.alerts.watched_site import Site
from tests.support.stack.held_rows import uncommitted
from tests.support.stack.load import repeated

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
    return lambda site: site.proxies[name].misbehaving(begin)


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

    def call(make: Call, client: httpx2.Client) -> None:
        with suppress(httpx2.HTTPError):
            make(site, client)

    with ExitStack() as opened:
        made = [
            partial(call, calls, opened.enter_context(site.client()))
            for _ in range(callers)
            if calls
        ]
        with repeated(*made, pause=_PAUSE_SECONDS):
            yield
