"""Faults of single dependencies, during which tests/faults makes API calls or awaits alerts."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import httpx2

from devstack.harness.proxy import UNAVAILABLE, Proxy
from devstack.harness.stack import Owner, Stack
from tests.support.stack.held_rows import uncommitted
from tests.support.stack.load import repeating


@dataclass
class ProxiedSite:
    """A stack whose processes reach each dependency through a proxy."""

    stack: Stack
    proxies: Mapping[str, Proxy]
    owner: Owner
    list_id: int

    def client(self) -> httpx2.Client:
        return self.stack.client(self.owner.key)


AnySite = TypeVar("AnySite", bound=ProxiedSite)
# A context manager that causes a fault until its block ends.
Fault = Callable[[ProxiedSite], AbstractContextManager[None]]


def fault_at_proxy(proxy: str, begin: Callable[[Proxy], None]) -> Fault:
    return lambda site: site.proxies[proxy].misbehaving(begin)


def _list_locked(site: ProxiedSite) -> AbstractContextManager[None]:
    """Lock a list, as a long bulk action does."""
    return uncommitted(site.stack, "SELECT pg_advisory_lock(%s)", site.list_id)


FAULTS: dict[str, Fault] = {
    "Postgres slow": fault_at_proxy("postgres", lambda proxy: proxy.delay(0.2)),
    "Postgres very slow": fault_at_proxy("postgres", lambda proxy: proxy.delay(1.0)),
    "Postgres hung": fault_at_proxy("postgres", Proxy.hang),
    "Postgres gone": fault_at_proxy("postgres", Proxy.refuse),
    "Redis hung": fault_at_proxy("redis", Proxy.hang),
    "Redis gone": fault_at_proxy("redis", Proxy.refuse),
    "S3 hung": fault_at_proxy("s3", Proxy.hang),
    "S3 refusing": fault_at_proxy("s3", Proxy.refuse),
    "S3 answering 503": fault_at_proxy("s3", lambda proxy: proxy.answer(UNAVAILABLE)),
    "mail server hung": fault_at_proxy("mail", Proxy.hang),
    "mail server refuses": fault_at_proxy("mail", Proxy.refuse),
    "model hung": fault_at_proxy("model", Proxy.hang),
    "photo provider hung": fault_at_proxy("photos", Proxy.hang),
    "photo provider gone": fault_at_proxy("photos", Proxy.refuse),
    "payment provider hung": fault_at_proxy("payments", Proxy.hang),
    "one list locked": _list_locked,
}


@contextmanager
def making_calls(
    site: AnySite, calls: Iterable[Callable[[AnySite, httpx2.Client], object]], *, pause: float
) -> Iterator[None]:
    """Repeat each call in a separate thread until the block ends, ignoring the responses."""

    def make_call(call: Callable[[AnySite, httpx2.Client], object], client: httpx2.Client) -> None:
        with suppress(httpx2.HTTPError):
            call(site, client)

    with ExitStack() as clients:
        actions = [partial(make_call, call, clients.enter_context(site.client())) for call in calls]
        with repeating(*actions, pause=pause):
            yield
