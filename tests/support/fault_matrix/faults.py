"""What goes wrong: one dependency at a time, with callers that need just that one."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from devstack.harness.proxy import UNAVAILABLE, Proxy
from tests.support.fault_matrix.rig import Rig
from tests.support.stack.held_rows import uncommitted

DELAY_SECONDS = 0.2


@dataclass(frozen=True)
class Fault:
    """Attributes:
    begin: brings it about while the block lasts.
    pressure: how many callers make which call meanwhile, each again and again.
    """

    name: str
    begin: Callable[[Rig], AbstractContextManager[None]]
    pressure: Mapping[str, int] = field(default_factory=dict)


def _of(
    proxy: str, begin: Callable[[Proxy], None]
) -> Callable[[Rig], AbstractContextManager[None]]:
    return lambda rig: rig.proxies[proxy].misbehaving(begin)


def _list_locked(rig: Rig) -> AbstractContextManager[None]:
    """As by a bulk action that takes long."""
    return uncommitted(rig.stack, "SELECT pg_advisory_lock(%s)", rig.list_id)


FAULTS = {
    each.name: each
    for each in (
        Fault("Postgres slow", _of("postgres", lambda proxy: proxy.delay(DELAY_SECONDS))),
        Fault("Postgres gone", _of("postgres", Proxy.refuse)),
        Fault("Redis hung", _of("redis", Proxy.hang), {"composer": 4}),
        Fault("Redis gone", _of("redis", Proxy.refuse), {"composer": 4}),
        Fault("S3 hung", _of("s3", Proxy.hang), {"upload": 24, "media": 8}),
        Fault("S3 refusing", _of("s3", Proxy.refuse), {"upload": 8}),
        Fault(
            "S3 answering 503", _of("s3", lambda proxy: proxy.answer(UNAVAILABLE)), {"upload": 8}
        ),
        Fault("mail server hung", _of("mail", Proxy.hang), {"confirmed subscribe": 24}),
        Fault("model hung", _of("model", Proxy.hang), {"composer": 8}),
        Fault("photo provider hung", _of("photos", Proxy.hang), {"photo search": 8}),
        Fault("payment provider hung", _of("payments", Proxy.hang), {"topup": 8}),
        Fault("one list locked", _list_locked, {"subscribe": 24}),
    )
}
