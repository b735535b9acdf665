"""Defines faults for tests of alerts, with the expected alerts and the calls during the faults."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

import httpx2

from devstack.harness.proxy import Proxy
from tests.support.alerts.watched_site import Site
from tests.support.stack.held_rows import uncommitted
from tests.support.stack.load import repeating

_PAUSE_SECONDS = 0.3

Call = Callable[[Site, httpx2.Client], object]
Begin = Callable[[Site], AbstractContextManager[None]]


@dataclass(frozen=True)
class Trouble:
    """A fault, and the alert that must fire during the fault and stop after it.

    Attributes:
        begin: a context manager that causes the fault until its block ends.
        labels: the labels that the alert must have.
        calls: a call that callers repeat during the fault and after it, ignoring the responses.
        callers: the number of callers.
    """

    name: str
    begin: Begin
    alert: str
    labels: Mapping[str, str] = field(default_factory=dict)
    calls: Call | None = None
    callers: int = 3


def fault_at_proxy(name: str, begin: Callable[[Proxy], None]) -> Begin:
    """Return a fault that the proxy in front of the dependency ``name`` causes."""
    return lambda site: site.proxies[name].misbehaving(begin)


def without_table(name: str) -> Begin:
    """Return a fault in which a table is missing, as after a failed migration."""

    @contextmanager
    def during(site: Site) -> Iterator[None]:
        site.stack.query(f"ALTER TABLE {name} RENAME TO {name}_elsewhere")
        try:
            yield
        finally:
            site.stack.query(f"ALTER TABLE {name}_elsewhere RENAME TO {name}")

    return during


def holding_locks(statement: str) -> Begin:
    """Return a fault in which an open transaction has run a statement, and holds its locks."""
    return lambda site: uncommitted(site.stack, statement)


@contextmanager
def calling_repeatedly(site: Site, calls: Call | None, callers: int = 3) -> Iterator[None]:
    """Let several callers repeat a call until the block ends."""

    def make_call(call: Call, client: httpx2.Client) -> None:
        with suppress(httpx2.HTTPError):
            call(site, client)

    with ExitStack() as clients:
        actions = [
            partial(make_call, calls, clients.enter_context(site.client()))
            for _ in range(callers)
            if calls
        ]
        with repeating(*actions, pause=_PAUSE_SECONDS):
            yield
