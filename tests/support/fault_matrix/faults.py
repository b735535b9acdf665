"""Faults, such as a slow Postgres, during which tests/faults/matrix makes API calls.

During some faults, concurrent calls that need the faulty dependency cause load.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from devstack.harness.proxy import UNAVAILABLE, Proxy
from tests.support.fault_matrix.rig import Rig
from tests.support.stack.held_rows import uncommitted

DELAY_SECONDS = 0.2


@dataclass(frozen=True)
class Fault:
    """A fault of one dependency.

    Attributes:
        begin: a context manager that causes the fault until its block ends.
        load: maps each call that causes load to its number of concurrent callers.
    """

    name: str
    begin: Callable[[Rig], AbstractContextManager[None]]
    load: Mapping[str, int] = field(default_factory=dict)


def _fault_at_proxy(
    proxy: str, begin: Callable[[Proxy], None]
) -> Callable[[Rig], AbstractContextManager[None]]:
    return lambda rig: rig.proxies[proxy].misbehaving(begin)


def _list_locked(rig: Rig) -> AbstractContextManager[None]:
    """Lock a list, as a long bulk action does."""
    return uncommitted(rig.stack, "SELECT pg_advisory_lock(%s)", rig.list_id)


FAULTS = {
    each.name: each
    for each in (
        Fault(
            "Postgres slow", _fault_at_proxy("postgres", lambda proxy: proxy.delay(DELAY_SECONDS))
        ),
        Fault("Postgres gone", _fault_at_proxy("postgres", Proxy.refuse)),
        Fault("Redis hung", _fault_at_proxy("redis", Proxy.hang), {"composer": 4}),
        Fault("Redis gone", _fault_at_proxy("redis", Proxy.refuse), {"composer": 4}),
        Fault("S3 hung", _fault_at_proxy("s3", Proxy.hang), {"upload": 24, "media": 8}),
        Fault("S3 refusing", _fault_at_proxy("s3", Proxy.refuse), {"upload": 8}),
        Fault(
            "S3 answering 503",
            _fault_at_proxy("s3", lambda proxy: proxy.answer(UNAVAILABLE)),
            {"upload": 8},
        ),
        Fault("mail server hung", _fault_at_proxy("mail", Proxy.hang), {"confirmed subscribe": 24}),
        Fault("model hung", _fault_at_proxy("model", Proxy.hang), {"composer": 8}),
        Fault("photo provider hung", _fault_at_proxy("photos", Proxy.hang), {"photo search": 8}),
        Fault("payment provider hung", _fault_at_proxy("payments", Proxy.hang), {"topup": 8}),
        Fault("one list locked", _list_locked, {"subscribe": 24}),
    )
}
